"""One viewer's visit to one page: viewer, scope, time, and the methods that query data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar, cast

from analytics.distinct import DistinctValue, Kind, distinct, distinct_of_team, made_in_order
from analytics.scope import Scope
from contracts.errors import ControlUnavailable
from dashboard import charts
from dashboard.control_plane import ControlPlane
from dashboard.control_reach import require_within
from dashboard.filters import Filters
from dashboard.formats import Formats
from dashboard.page import Page
from dashboard.reader import ask_ahead, ask_database, ask_store, control_connections
from dashboard.slow_answers import Pending, slow_answers
from dashboard.viewer import Viewer

REFRESH_SECONDS: Final = {"15m": 2, "1h": 2, "6h": 5, "24h": 10, "7d": 30, "30d": 60, "month": 60}
FIXED_SECONDS: Final = 60  # cache time of results about a fixed range
CHOICE_SECONDS: Final = 5  # cache time of the filters' options
MISS_SECONDS: Final = 1  # ... and before a value that is not among them is reported as unknown
# Additional cache time, so that a page that waited for slow results is redrawn from the same others.
_LINGER_SECONDS: Final = 10
_AT_ONCE: Final = timedelta(days=1)

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Visit:
    """The argument of a page's `draw`. `now` is floored to the refresh interval, so that viewers share query results.

    `scope`: the filters, restricted to what the viewer may see; `before`: the comparison period, `None` if none was
    chosen.
    """

    page: Page
    viewer: Viewer
    filters: Filters
    now: datetime
    scope: Scope
    before: Scope | None
    formats: Formats
    unreadable: list[dict[str, Any]] = field(default_factory=list, compare=False)  # rows that lists could not show

    @property
    def refresh_seconds(self) -> int | None:
        """Return the refresh interval in seconds; `None` if the range is fixed."""
        return REFRESH_SECONDS.get(self.filters.range) if self.page.is_live else None

    @property
    def control(self) -> ControlPlane:
        """Return a client of the control plane with this viewer's rights."""
        return ControlPlane(control_connections(), self.viewer.token, self.unreadable)

    def read(self, question: Callable[..., Answer], *arguments: Any, **options: Any) -> Answer:
        """Query analytics: return `question(store, *arguments, **options)`, cached for one refresh and shared.

        Arguments must be hashable; callers must not change the result. Raises the question's errors, and
        PermissionDenied if the question is not restricted to the viewer's tenant and team.
        """
        return ask_store(question, self.viewer.access, _kept_seconds(self.filters), *arguments, **options)

    def ahead(self, question: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        """Start a query in parallel for a later `read` with the same arguments."""
        ask_ahead(question, self.viewer.access, _kept_seconds(self.filters), *arguments, **options)

    def read_slow(
        self, question: Callable[..., Answer], *arguments: Any, keep_seconds: float = 300, **options: Any
    ) -> Answer | Pending:
        """Run a slow query in the background; return `Pending` until it is done. Otherwise as `read`.

        After drawing, the page waits a moment for the result and is redrawn.
        """
        return slow_answers().ask(question, self.viewer.access, keep_seconds, *arguments, **options)

    def read_counted(
        self, question: Callable[..., Answer], *arguments: Any, keep_seconds: float = 300
    ) -> Answer | Pending:
        """Query single requests of the scope: directly for a day or less, else as `read_slow`.

        `question` gets the scope before `arguments`.
        """
        scope = self.scope
        if scope.end - scope.start <= _AT_ONCE:
            return self.read(question, scope, *arguments)
        # All viewers share one result while these hours or days last.
        return self.read_slow(question, scope.settled, *arguments, keep_seconds=keep_seconds)

    def ahead_slow(self, question: Callable[..., Any], *arguments: Any, keep_seconds: float, **options: Any) -> None:
        """Start a query for a later `read_slow`, perhaps by another page."""
        slow_answers().ahead(question, self.viewer.access, keep_seconds, *arguments, **options)

    def read_beside(
        self, question: Callable[..., Answer], *arguments: Any, keep_seconds: float = 300, **options: Any
    ) -> Answer | Pending:
        """Run a slow query, such as a forecast, that the page can do without. Otherwise as `read_slow`."""
        return slow_answers().ask_beside(question, self.viewer.access, keep_seconds, *arguments, **options)

    def read_control(self, question: Callable[..., Answer], *arguments: Any, **options: Any) -> Answer:
        """Query the control database: return `question(session, *arguments, **options)`, at most five seconds old.

        Raises PermissionDenied if the query is not restricted to the viewer's tenant and team: pass `scope.tenant` and
        `scope.team`.
        """
        require_within(self.viewer.access, question, arguments, options)
        return ask_database(question, *arguments, **options)

    def choices(self, kind: Kind) -> list[str]:
        """Return the values of a kind (such as models) that the viewer may see, of the chosen tenant if there is one.

        Raises StoreUnavailable.
        """
        return [seen.value for seen in self.seen(kind)]

    def seen(self, kind: Kind) -> tuple[DistinctValue, ...]:
        """Return the values of `choices`, each with the time when it was last seen."""
        return seen_by(self.viewer, kind, self.scope.tenant, self.now)

    def colors(self, kind: Kind) -> Mapping[str, str]:
        """Return a colour for each value of a kind, the same on every page and with any filters."""
        known = {one.value for one in seen_by(self.viewer, kind, None, self.now)}
        try:
            made = self.read_control(made_in_order, kind, self.viewer.tenant)
        except ControlUnavailable:
            made = ()
        return charts.assign_colors([*(name for name in made if name in known), *sorted(known.difference(made))])


def seen_by(
    viewer: Viewer, kind: Kind, tenant: str | None, now: datetime, seconds: float = CHOICE_SECONDS
) -> tuple[DistinctValue, ...]:
    """Return the values of a kind that a viewer may see, of one tenant unless it is `None`.

    The list is at most `seconds` old.
    """
    access = viewer.access
    if access.tenant is None or access.team is None:
        return ask_store(distinct, access, seconds, kind, access.tenant or tenant)
    if kind in ("tenant", "team"):
        own = access.tenant if kind == "tenant" else access.team
        return (DistinctValue(own, now),)
    if kind not in ("model", "project", "key_id"):
        return ()
    hour = now.replace(minute=0, second=0, microsecond=0)
    return ask_store(distinct_of_team, access, seconds, cast(Any, kind), access.tenant, access.team, hour)


def now_of(filters: Filters, clock: datetime) -> datetime:
    """Return a time floored to the refresh interval of the range, so that it is the same for all viewers."""
    rhythm = REFRESH_SECONDS.get(filters.range, 2)
    return datetime.fromtimestamp(int(clock.timestamp()) // rhythm * rhythm, UTC)


def _kept_seconds(filters: Filters) -> float:
    return REFRESH_SECONDS.get(filters.range, FIXED_SECONDS) + _LINGER_SECONDS
