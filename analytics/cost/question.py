"""Parameters of a cost report: range, time zone, payers, and levels of the breakdown."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Literal
from zoneinfo import ZoneInfo

from analytics.cost.periods import PeriodGrain, split
from analytics.scope import HOURS_KEPT, MINUTES_KEPT, Period
from contracts.errors import InvalidRequest
from contracts.recording.moments import utc_now

Source = Literal["requests_minute", "requests_hour", "requests_day", "requests"]

# Dimensions of a report, by their names on the command line; "tag:NAME" is the value of one tag.
DIMENSIONS: Final = (
    "tenant",
    "team",
    "project",
    "key",
    "user",
    "model",
    "provider",
    "adapter",
    "prompt",
    "prompt_version",
    "price",
    "operation",
    "session",
    "repo",
    "branch",
    "pr",
    "agent",
    "tool",
    "tags",
)
TAG: Final = "tag:"
_IN_ROLLUPS: Final = frozenset({"tenant", "team", "project", "model"})
MAX_RANGE: Final = timedelta(days=1_200)
REQUESTS_KEPT: Final = timedelta(days=395)  # 13 months (migrations/clickhouse, 0001)
_MARGIN: Final = timedelta(hours=2)
_SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class CostQuestion:
    """From `start` until `end` (exclusive), of one tenant, team, project and model, or of all if `None`.

    `by`: levels in order, such as ("tenant", "team", "model", "tag:feature"). `grain` splits the range into calendar
    periods of `zone`. `asked_at` determines which rollups still have the range. Raises InvalidRequest.
    """

    start: datetime
    end: datetime
    by: tuple[str, ...] = ()
    grain: PeriodGrain | None = None
    zone: ZoneInfo = field(default_factory=lambda: ZoneInfo("UTC"))
    tenant: str | None = None
    team: str | None = None
    project: str | None = None
    model: str | None = None
    asked_at: datetime = field(default_factory=utc_now, compare=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("start", "end"):
            moment: datetime = getattr(self, name)
            if moment.utcoffset() is None:
                raise InvalidRequest(f"{name} ({moment:%Y-%m-%d %H:%M}) needs a time zone; use UTC", param=name)
            if moment.microsecond:
                raise InvalidRequest(f"{name} ({moment.isoformat()}) must be a whole second", param=name)
            if not 1969 <= moment.year <= 2105:  # the limits of datetime cannot be converted to UTC
                raise InvalidRequest("the range must lie between 1970 and 2105", param="start")
            object.__setattr__(self, name, moment.astimezone(UTC))
        if self.end <= self.start:
            raise InvalidRequest(
                f"the range ends ({self.end:%Y-%m-%d %H:%M} UTC) before it starts ({self.start:%Y-%m-%d %H:%M} "
                "UTC); choose a later end",
                param="end",
            )
        if not datetime(1970, 1, 1, tzinfo=UTC) <= self.start or self.end > datetime(2105, 1, 1, tzinfo=UTC):
            raise InvalidRequest("the range must lie between 1970 and 2105", param="start")
        if self.end - self.start > MAX_RANGE:
            raise InvalidRequest(
                f"the range is {(self.end - self.start).days} days long; choose at most {MAX_RANGE.days}", param="start"
            )
        _check_dimensions(self.by)

    @property
    def periods(self) -> tuple[Period, ...]:
        """Return the periods of the report in order; at least one. Raises InvalidRequest beyond 2,400."""
        return split(Period(self.start, self.end), self.grain, self.zone)

    @property
    def tag(self) -> str:
        """Return the name of the tag in `by`; "" if there is none."""
        return next((name.removeprefix(TAG) for name in self.by if name.startswith(TAG)), "")

    @property
    def source(self) -> Source:
        """Return the coarsest table with exact results: a rollup, if it has the dimensions and all periods start on its
        grain; else single requests.

        Example: a day in Berlin starts at 22:00 or 23:00 UTC, so it is read from the hourly rollup while that has it
        (90 days), and from single requests after that (13 months).
        """
        if not _IN_ROLLUPS.issuperset(self.by):
            return "requests"
        bounds = [*(period.start_s for period in self.periods), int(self.end.timestamp())]
        age = self.asked_at - self.start
        if not any(bound % 86_400 for bound in bounds):
            return "requests_day"
        if not any(bound % 3_600 for bound in bounds) and age <= HOURS_KEPT - _MARGIN:
            return "requests_hour"
        if not any(bound % 60 for bound in bounds) and age <= MINUTES_KEPT - _MARGIN:
            return "requests_minute"
        return "requests"

    @property
    def whole_days(self) -> Period:
        """Return the whole days (UTC) within the range; empty (start = end) if there is none."""
        first = -(-int(self.start.timestamp()) // 86_400) * 86_400
        last = max(int(self.end.timestamp()) // 86_400 * 86_400, first)
        return Period(datetime.fromtimestamp(first, UTC), datetime.fromtimestamp(last, UTC))

    @property
    def keeps_requests(self) -> bool:
        """Return whether single requests of the whole range are still stored."""
        return self.asked_at - self.start <= REQUESTS_KEPT

    def check_kept(self, source: Source) -> None:
        """Raise InvalidRequest, with the possible range, unless the table still has the whole range."""
        if source == "requests" and not self.keeps_requests:
            oldest = self.asked_at - REQUESTS_KEPT
            raise InvalidRequest(
                f"single requests are kept for 13 months, since {oldest:%Y-%m-%d}; start later, or group by "
                "tenant, team, project and model only for whole days in UTC, which are kept forever",
                param="start",
            )


def _check_dimensions(by: tuple[str, ...]) -> None:
    for name in by:
        if name not in DIMENSIONS and not (name.startswith(TAG) and len(name) > len(TAG)):
            raise InvalidRequest(
                f"{name!r} is nothing to break a report down by; choose one of {', '.join(DIMENSIONS)} and tag:NAME",
                param="by",
            )
    if len(set(by)) < len(by):
        raise InvalidRequest(f"{', '.join(by)} names a level twice; name each once", param="by")
    if sum(name.startswith(TAG) for name in by) > 1:
        raise InvalidRequest("use one tag at a time, as each request belongs to one line", param="by")
