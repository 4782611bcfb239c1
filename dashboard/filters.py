"""Filters in the page's URL: time range, comparison period, and scope.

The URL is the single source of truth: `?range=1h` or `?from=2026-11-01T00:00Z&to=...`, `&compare=previous`,
`&tenant=`, `&team=`, `&project=`, `&key=`, `&model=`. An invalid value gets an error message, and is never replaced
silently.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final, cast, get_args
from zoneinfo import ZoneInfo

from analytics.access_scope import EVERYTHING, AccessScope
from analytics.scope import Scope
from analytics.series import Dimension
from contracts.errors import InvalidRequest

RANGES: Final[dict[str, timedelta]] = {
    "15m": timedelta(minutes=15),
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
}
MONTHS: Final = ("month", "last_month")  # calendar months of the viewer's zone
DEFAULT_RANGE: Final = "1h"
CUSTOM: Final = "custom"
COMPARISONS: Final[dict[str, timedelta | None]] = {
    "previous": None,  # the same length as the range, immediately before it
    "day": timedelta(days=1),
    "week": timedelta(days=7),
    "four_weeks": timedelta(days=28),  # whole weeks, so that weekdays are compared with weekdays
    "year": timedelta(days=364),
}
TIME_FORMAT: Final = "%Y-%m-%dT%H:%MZ"
_YEARS: Final = range(1970, 2106)  # any time zone can represent these; scopes allow a year less


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters in the URL. `range` is a name of RANGES or MONTHS, or "custom", which has `start` and `end` (UTC)."""

    range: str = DEFAULT_RANGE
    start: datetime | None = None
    end: datetime | None = None
    tenant: str | None = None
    model: str | None = None
    by: Dimension = "tenant"
    compare: str | None = None
    team: str | None = None
    project: str | None = None
    key: str | None = None

    @property
    def is_live(self) -> bool:
        """Return whether the range is relative to now."""
        return self.range not in (CUSTOM, "last_month")

    def scope(self, now: datetime, zone: ZoneInfo | None = None, access: AccessScope = EVERYTHING) -> Scope:
        """Return the scope of queries now, restricted to the viewer's access.

        Months are those of `zone`. Raises InvalidRequest for an invalid range, NotFound for a tenant or team outside
        the viewer's access.
        """
        start, end = self._bounds(now, zone or ZoneInfo("UTC"))
        tenant, team = access.narrowed(self.tenant, self.team)
        scope = Scope(start, end, tenant, self.model, now, team, self.project, self.key)
        return replace(scope, end=now) if scope.start < now < scope.end else scope  # a month may begin right now

    def before(self, scope: Scope) -> Scope | None:
        """Return the period that a scope is compared with; `None` if no comparison was chosen."""
        if self.compare is None:
            return None
        shift = COMPARISONS[self.compare] or scope.end - scope.start
        return replace(scope, start=scope.start - shift, end=scope.end - shift)

    def _bounds(self, now: datetime, zone: ZoneInfo) -> tuple[datetime, datetime]:
        if self.start is not None and self.end is not None:
            if self.start >= now:
                raise InvalidRequest(f"the range starts in the future ({written(self.start)}); choose an earlier start")
            return self.start, self.end
        if self.range in MONTHS:
            first = now.astimezone(zone).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
            if self.range == "month":
                return first, max(now, first + timedelta(minutes=1))
            return (first - timedelta(days=1)).replace(day=1), first
        return now - RANGES[self.range], now


def read_filters(address: Mapping[str, str]) -> Filters:
    """Parse the filters from a URL's parameters. Raises InvalidRequest for an invalid value."""
    by = address.get("by", "tenant")
    if by not in get_args(Dimension):
        raise InvalidRequest(f"cannot group by {by!r}; choose tenant or model", param="by")
    compare = address.get("compare") or None
    if compare is not None and compare not in COMPARISONS:
        raise InvalidRequest(
            f"{compare!r} is not a period to compare with; choose one of {', '.join(COMPARISONS)}", param="compare"
        )
    found = Filters(
        tenant=address.get("tenant") or None,
        team=address.get("team") or None,
        project=address.get("project") or None,
        key=address.get("key") or None,
        model=address.get("model") or None,
        by=cast(Dimension, by),
        compare=compare,
    )
    if "from" in address or "to" in address:
        start, end = (_time(address, name) for name in ("from", "to"))
        return replace(found, range=CUSTOM, start=start, end=end)
    name = address.get("range", DEFAULT_RANGE)
    if name not in RANGES and name not in MONTHS:
        raise InvalidRequest(
            f"no range is called {name!r}; choose one of {', '.join((*RANGES, *MONTHS))}", param="range"
        )
    return replace(found, range=name)


def written(moment: datetime) -> str:
    """Format a time for a URL: in UTC, as `TIME_FORMAT`."""
    return moment.astimezone(UTC).strftime(TIME_FORMAT)


def _time(address: Mapping[str, str], name: str) -> datetime:
    text = address.get(name)
    if text is None:
        raise InvalidRequest("a date range needs a start and an end", param=name)
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidRequest(
            f"{text!r} is not a valid date and time; use the form {datetime(2026, 11, 1, tzinfo=UTC):{TIME_FORMAT}}",
            param=name,
        ) from error
    outside = InvalidRequest(f"{text!r} is outside the supported range of dates; choose another", param=name)
    try:
        moment = time.replace(tzinfo=UTC) if time.utcoffset() is None else time.astimezone(UTC)
    except OverflowError as error:  # a year that another time zone cannot represent
        raise outside from error
    if moment.year not in _YEARS:
        raise outside
    return moment
