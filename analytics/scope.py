"""The scope of a query: a time range, and optionally a tenant and a model. Validated on creation.

Rollups have whole minutes, hours or days, so results cover whole ones: `covered` is that range, which is the same for
everything on one page (totals, series, table, percentiles), so that the parts sum to the totals.
"""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, Self

from contracts.errors import InvalidRequest
from contracts.recording.moments import utc_now

Grain = Literal["minute", "hour", "day"]

MAX_RANGE: Final = timedelta(days=400)  # a year, to compare with the same month of the previous year
MAX_BARS: Final = 100  # with more steps a chart's bars are too thin to see

_GRAIN_SECONDS: Final[dict[Grain, int]] = {"minute": 60, "hour": 3_600, "day": 86_400}
# Retention of the finer rollups (migrations/clickhouse, 0005); older ranges are read from coarser ones.
MINUTES_KEPT: Final = timedelta(days=7)
HOURS_KEPT: Final = timedelta(days=90)
DAYS_BY_MODEL: Final = "tenant_model_day"  # a quarter of the rows of requests_day (0021)
# Tables sorted by time (0023), for charts of all tenants by one of these dimensions.
_HOURS_BY_ONE: Final = {"tenant": "tenant_hour", "model": "model_hour"}
_DAYS_BY_TENANT: Final = "tenant_cost_day"
TENANT_HOURS_KEPT: Final = timedelta(days=16)
RECENT_KEPT: Final = timedelta(hours=72)  # requests sorted by time (0013)
_MARGIN: Final = timedelta(hours=2)  # tolerance for rounding outward, and for a clock ahead of the store's

_MINUTES_UP_TO: Final = timedelta(hours=6)
_HOURS_UP_TO: Final = timedelta(days=14)
_WEEK: Final = 7 * 86_400
_STEPS: Final = (60, 300, 900, 3_600, 3 * 3_600, 6 * 3_600, 86_400, _WEEK)
_FIRST_MONDAY: Final = 4 * 86_400  # 5 January 1970: weeks begin on Mondays, Unix time on a Thursday
# ClickHouse's DateTime counts seconds in 32 bits, until February 2106; a year's margin for rounding outward.
_FIRST_MOMENT: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MOMENT: Final = datetime(2105, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Period:
    """A time range in UTC; `end` is exclusive."""

    start: datetime
    end: datetime

    @property
    def start_s(self) -> int:
        """Return the start in Unix seconds."""
        return int(self.start.timestamp())

    @property
    def end_s(self) -> int:
        """Return the end in Unix seconds."""
        return int(self.end.timestamp())


@dataclass(frozen=True, slots=True)
class Scope:
    """A time range from `start` to `end` (exclusive, UTC), and a tenant, team, project, key and model; `None`: all.

    `asked_at` determines which rollups still have the range; it does not count for equality. Raises InvalidRequest if
    times have no zone, are reversed, or span more than 400 days.
    """

    start: datetime
    end: datetime
    tenant: str | None = None
    model: str | None = None
    asked_at: datetime = field(default_factory=utc_now, compare=False, repr=False)
    team: str | None = None
    project: str | None = None
    key_id: str | None = None

    def __post_init__(self) -> None:
        for name in ("start", "end"):
            moment: datetime = getattr(self, name)
            if moment.utcoffset() is None:
                raise InvalidRequest(f"{name} ({moment:%Y-%m-%d %H:%M}) needs a time zone; use UTC", param=name)
            if not _FIRST_MOMENT <= moment <= _LAST_MOMENT:
                raise InvalidRequest(f"{name} ({_spoken(moment)}) must lie between 1970 and 2105", param=name)
            object.__setattr__(self, name, moment.astimezone(UTC))
        if self.end < self.start:
            raise InvalidRequest(
                f"the range ends ({_spoken(self.end)}) before it begins ({_spoken(self.start)}); swap the two",
                param="end",
            )
        if self.end == self.start:
            raise InvalidRequest(f"the range begins and ends at {_spoken(self.start)}; choose a later end", param="end")
        if self.end - self.start > MAX_RANGE:
            days = (self.end - self.start).days
            raise InvalidRequest(f"the range is {days} days long; choose at most {MAX_RANGE.days} days", param="start")

    @classmethod
    def last(cls, length: timedelta, now: datetime, tenant: str | None = None, model: str | None = None) -> Self:
        """Return the scope of the last `length` until `now`."""
        return cls(now - length, now, tenant, model, asked_at=now)

    @property
    def grain(self) -> Grain:
        """Return the time unit of the rollup to read: the finest that is still stored and has few enough rows.

        Minutes for up to 6 hours (stored for 7 days), hours for up to 14 days (stored for 90), else days (permanent).
        """
        length, age = self.end - self.start, self.asked_at - self.start
        if length <= _MINUTES_UP_TO and age <= MINUTES_KEPT - _MARGIN:
            return "minute"
        return "hour" if length <= _HOURS_UP_TO and age <= HOURS_KEPT - _MARGIN else "day"

    @property
    def rollup(self) -> str:
        """Return the name of the rollup table by tenant and model; for days, a smaller table without teams and projects
        if neither is in the scope."""
        if self.grain == "day" and self.team is None and self.project is None:
            return DAYS_BY_MODEL
        return f"requests_{self.grain}"

    @property
    def edges_rollup(self) -> str:
        """Return the rollup table for the time outside whole days. For all tenants, minutes are used instead of
        hours: they are sorted by day, which is faster.
        """
        is_of_all = self.tenant is None and self.grain == "hour"
        return "requests_minute" if is_of_all and self._is_kept(MINUTES_KEPT) else self.rollup

    @property
    def days_rollup(self) -> str:
        """Return the name of the rollup table for the whole days."""
        return DAYS_BY_MODEL if self.team is None and self.project is None else "requests_day"

    def series_rollup(self, by: str) -> str:
        """Return the name of the smallest rollup table for a series by one dimension."""
        if by not in _HOURS_BY_ONE:
            return f"requests_{self.grain}"
        is_of_all = self.tenant is None and self.team is None and self.project is None
        if is_of_all and self.grain == "day" and self.model is None and by == "tenant":
            return _DAYS_BY_TENANT
        kept = TENANT_HOURS_KEPT if by == "tenant" else HOURS_KEPT
        if is_of_all and (self.model is None or by == "model") and self.grain != "minute" and self._is_kept(kept):
            return _HOURS_BY_ONE[by]
        return self.rollup

    def _is_kept(self, kept: timedelta) -> bool:
        return self.asked_at - self.covered.start <= kept - _MARGIN

    @property
    def covered(self) -> Period:
        """Return the range rounded outward to whole minutes, hours or days, which results cover.

        Example: 14:20 to 20:30 is more than 6 hours, so hours are read: 14:00 to 21:00.
        """
        seconds = _GRAIN_SECONDS[self.grain]
        start = int(self.start.timestamp()) // seconds * seconds
        end = -(-self.end.timestamp() // seconds) * seconds
        return Period(_moment(start), _moment(int(end)))

    @property
    def settled(self) -> Self:
        """Return a scope that is equal for all ranges that cover the same minutes, hours or days; for use as a cache
        key.

        Its range is the covered one, or if that is too long for its time unit, the shortest range that covers the same
        units.
        """
        covered = self.covered
        if covered.end - covered.start <= MAX_RANGE:
            whole = replace(self, start=covered.start, end=covered.end)
            if whole.grain == self.grain:
                return whole
        within = timedelta(seconds=_GRAIN_SECONDS[self.grain], microseconds=-1)
        start, end = covered.start + within, covered.end - within
        return replace(self, start=start, end=end) if start < end else self

    @property
    def whole_days(self) -> Period:
        """Return the whole days of the covered range; empty (start = end) if there is none."""
        covered = self.covered
        first = -(-covered.start_s // 86_400) * 86_400
        last = covered.end_s // 86_400 * 86_400
        return Period(_moment(first), _moment(max(first, last)))

    @property
    def step_seconds(self) -> int:
        """Return a chart's time step in seconds: for at most 100 steps, and not less than the rollup's unit."""
        length = (self.end - self.start).total_seconds()
        grain = _GRAIN_SECONDS[self.grain]
        return next(step for step in _STEPS if step >= grain and length / step <= MAX_BARS)

    @property
    def rows_since(self) -> datetime:
        """Return the start of the time outside whole days."""
        covered, days = self.covered, self.whole_days
        return days.end if covered.start == days.start < days.end else covered.start

    @property
    def is_recent(self) -> bool:
        """Return whether table `requests_recent`, which is sorted by time, still has the whole range."""
        return self.keeps_in_time(self.covered.start)

    def keeps_in_time(self, since: datetime) -> bool:
        """Return whether table `requests_recent`, which is sorted by time, still has requests since `since`."""
        return self.asked_at - since <= RECENT_KEPT - _MARGIN

    @property
    def step_origin(self) -> int:
        """Return the Unix time (s) from which steps are counted."""
        return _FIRST_MONDAY if self.step_seconds == _WEEK else 0

    @property
    def step_starts(self) -> range:
        """Return the start times (Unix s) of the steps of the covered range."""
        covered, step, origin = self.covered, self.step_seconds, self.step_origin
        return range((covered.start_s - origin) // step * step + origin, covered.end_s, step)

    def parameters(self) -> dict[str, object]:
        """Return the parameters that each query of `analytics/sql` may bind: covered range, tenant, model and so on."""
        covered = self.covered
        return {
            "start": covered.start_s,
            "end": covered.end_s,
            "tenant": self.tenant,
            "team": self.team,
            "project": self.project,
            "key_id": self.key_id,
            "model": self.model,
        }


def _moment(unix_seconds: int) -> datetime:
    return datetime.fromtimestamp(unix_seconds, UTC)


def _spoken(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} {moment.tzname()}"
