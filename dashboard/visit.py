"""One viewer's look at one page: who, what of, when, and the way to every answer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar, cast

from analytics.distinct import Kind, Seen, distinct, distinct_of_team, made_in_order
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
FIXED_SECONDS: Final = 60  # how long answers about a range that does not move are kept
CHOICE_SECONDS: Final = 5  # how long the lists that filters choose from are kept
MISS_SECONDS: Final = 1  # ... before a value that is not among them is said to be unknown
# How much longer than the rhythm answers of a moment are kept: a page that waited for others is drawn from them again.
_LINGER_SECONDS: Final = 10
_AT_ONCE: Final = timedelta(days=1)

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Visit:
    """What a page is handed. `now` is floored to the refresh rhythm, so that all viewers of a range share answers.

    `scope` is what the page's filters ask for, narrowed to what the viewer may see; `before` is the period it is
    compared with, `None` if no comparison was chosen.
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
        """Return how often the page is drawn again by itself; `None` if its range does not move."""
        return REFRESH_SECONDS.get(self.filters.range) if self.page.is_live else None

    @property
    def control(self) -> ControlPlane:
        """Return the control plane, with this viewer's rights."""
        return ControlPlane(control_connections(), self.viewer.token, self.unreadable)

    def read(self, question: Callable[..., Answer], *arguments: Any, **options: Any) -> Answer:
        """Query analytics: return `question(store, *arguments, **options)`, cached for one refresh and shared.

        Arguments must be hashable; nobody may change what comes back. Raises what the question raises, and
        PermissionDenied where it is not held to the viewer's reach.
        """
        return ask_store(question, self.viewer.reach, _kept_seconds(self.filters), *arguments, **options)

    def ahead(self, question: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        """Begin to find what `read` will be asked for in a moment, beside what is read and drawn till then."""
        ask_ahead(question, self.viewer.reach, _kept_seconds(self.filters), *arguments, **options)

    def read_slow(
        self, question: Callable[..., Answer], *arguments: Any, keep_seconds: float = 300, **options: Any
    ) -> Answer | Pending:
        """Run a slow query in the background; return `Pending` until it is done. Otherwise as `read`.

        Once it is drawn, the page waits for it a moment and is drawn again.
        """
        return slow_answers().ask(question, self.viewer.reach, keep_seconds, *arguments, **options)

    def read_counted(
        self, question: Callable[..., Answer], *arguments: Any, keep_seconds: float = 300
    ) -> Answer | Pending:
        """Query single requests of the scope: directly for a day or less, else as `read_slow`.

        `question` is asked with the scope before `arguments`.
        """
        scope = self.scope
        if scope.end - scope.start <= _AT_ONCE:
            return self.read(question, scope, *arguments)
        # One answer does for all who ask for as long as these hours or days last.
        return self.read_slow(question, scope.settled, *arguments, keep_seconds=keep_seconds)

    def ahead_slow(self, question: Callable[..., Any], *arguments: Any, keep_seconds: float, **options: Any) -> None:
        """Begin to find what `read_slow` may be asked for later, perhaps by another page."""
        slow_answers().ahead(question, self.viewer.reach, keep_seconds, *arguments, **options)

    def read_beside(
        self, question: Callable[..., Answer], *arguments: Any, keep_seconds: float = 300, **options: Any
    ) -> Answer | Pending:
        """Run a query that takes seconds, such as a forecast, and that the page can do without. Else as `read_slow`."""
        return slow_answers().ask_beside(question, self.viewer.reach, keep_seconds, *arguments, **options)

    def read_control(self, question: Callable[..., Answer], *arguments: Any, **options: Any) -> Answer:
        """Query the control database: return `question(session, *arguments, **options)`, at most five seconds old.

        For reading only. Raises PermissionDenied if it is not about the viewer's own tenant and team: hand it
        `scope.tenant` and `scope.team`.
        """
        require_within(self.viewer.reach, question, arguments, options)
        return ask_database(question, *arguments, **options)

    def choices(self, kind: Kind) -> list[str]:
        """Return the values of a kind that the viewer may see, those of the chosen tenant where one is. Raises
        StoreUnavailable.
        """
        return [seen.value for seen in self.seen(kind)]

    def seen(self, kind: Kind) -> tuple[Seen, ...]:
        """Return what `choices` gives, each with when it was last seen."""
        return seen_by(self.viewer, kind, self.scope.tenant, self.now)

    def colors(self, kind: Kind) -> Mapping[str, str]:
        """Return a colour for each value of a kind: the same on every page, however it is filtered, and when others
        come later."""
        known = {one.value for one in seen_by(self.viewer, kind, None, self.now)}
        try:
            made = self.read_control(made_in_order, kind, self.viewer.tenant)
        except ControlUnavailable:
            made = ()
        return charts.assign_colors([*(name for name in made if name in known), *sorted(known.difference(made))])


def seen_by(
    viewer: Viewer, kind: Kind, tenant: str | None, now: datetime, seconds: float = CHOICE_SECONDS
) -> tuple[Seen, ...]:
    """List the values of a kind within a viewer's reach, of one tenant where it is not `None`.

    The list is at most `seconds` old.
    """
    reach = viewer.reach
    if reach.tenant is None or reach.team is None:
        return ask_store(distinct, reach, seconds, kind, reach.tenant or tenant)
    if kind in ("tenant", "team"):
        own = reach.tenant if kind == "tenant" else reach.team
        return (Seen(own, now),)
    if kind not in ("model", "project", "key_id"):
        return ()
    hour = now.replace(minute=0, second=0, microsecond=0)
    return ask_store(distinct_of_team, reach, seconds, cast(Any, kind), reach.tenant, reach.team, hour)


def now_of(filters: Filters, clock: datetime) -> datetime:
    """Floor a moment to the rhythm that a range is refreshed in; the same for everyone."""
    rhythm = REFRESH_SECONDS.get(filters.range, 2)
    return datetime.fromtimestamp(int(clock.timestamp()) // rhythm * rhythm, UTC)


def _kept_seconds(filters: Filters) -> float:
    return REFRESH_SECONDS.get(filters.range, FIXED_SECONDS) + _LINGER_SECONDS
