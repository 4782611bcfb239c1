"""Parameters of a request search: range, owner, outcome, order, and page."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal, get_args

from analytics.explorer.search import Search
from analytics.scope import Period, Scope
from contracts.errors import InvalidRequest
from contracts.recording.moments import utc_now
from contracts.recording.records import Outcome

Sort = Literal["newest", "ttft", "duration", "cost", "tokens"]
SORTS: Final[tuple[Sort, ...]] = get_args(Sort)
OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)
PAGE_ROWS: Final = 50
MAX_PAGES: Final = 200  # maximum page; further results need a narrower search

_SORT_COLUMNS: Final[dict[Sort, str]] = {
    "newest": "started_at",
    "ttft": "ttft_ns",
    "duration": "duration_ns",
    "cost": "cost_usd",
    "tokens": "total_tokens",
}


@dataclass(frozen=True, slots=True)
class RequestQuestion:
    """Requests that started in `period`, of one tenant, team and so on, or of all if `None`. `page` counts from 1.

    Unknown values are sorted last. `asked_at` determines which rollups still have the range. Raises InvalidRequest for
    a page beyond 200.
    """

    period: Period
    tenant: str | None = None
    team: str | None = None
    project: str | None = None
    key: str | None = None
    model: str | None = None
    outcome: Outcome | None = None
    search: Search = field(default_factory=Search)
    sort: Sort = "newest"
    page: int = 1
    asked_at: datetime = field(default_factory=utc_now, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not 1 <= self.page <= MAX_PAGES:
            raise InvalidRequest(
                f"page {self.page} does not exist; pages are 1 to {MAX_PAGES}; narrow the search to see more",
                param="page",
            )

    @classmethod
    def of(cls, scope: Scope, search: Search, outcome: Outcome | None, sort: Sort, page: int) -> "RequestQuestion":
        """Return the question for a scope."""
        return cls(
            Period(scope.start, scope.end),
            scope.tenant,
            scope.team,
            scope.project,
            scope.key_id,
            scope.model,
            outcome,
            search,
            sort,
            page,
            scope.asked_at,
        )

    def parameters(self) -> dict[str, object]:
        """Return the parameters of both queries."""
        search = self.search
        return {
            "start": self.period.start.timestamp(),
            "end": self.period.end.timestamp(),
            "tenant": self.tenant,
            "team": self.team,
            "project": _both(self.project, search.project, "project"),
            "key": _both(self.key, search.key, "key"),
            "model": _both(self.model, search.model, "model"),
            "outcome": self.outcome,
            "request_id": search.request_id,
            "route": search.route,
            "provider": search.provider,
            "replica": search.replica,
            "error": search.error,
            "status": search.status,
            "upstream_status": search.upstream_status,
            "user": search.user,
            "conversation": search.conversation,
            "run": search.run,
            "prompt": search.prompt,
            "trace": search.trace,
            "tag_name": search.tag_name,
            "tag_value": search.tag_value,
            "min_ttft_ns": search.min_ttft_ns,
            "min_duration_ns": search.min_duration_ns,
            "min_attempts": search.min_attempts,
            "word": search.word,
            "word_pattern": search.word_pattern,
            "user_pattern": search.user_pattern,
        }

    @property
    def is_in_sums(self) -> bool:
        """Return whether rollups can count the matches, because they have all dimensions of the filters."""
        return self.search == Search() and self.key is None

    @property
    def is_in_order_of_time(self) -> bool:
        """Return whether `requests_recent` can find the newest matches; it has only tenant and model."""
        return self.is_in_sums and self.sort == "newest" and self.outcome is None and not (self.team or self.project)

    @property
    def is_of_a_name(self) -> bool:
        """Return whether the search is for a (partial) name over all tenants, which has few matches at any time."""
        return self.tenant is None and (self.search.word is not None or self.search.user is not None)

    def page_parameters(self) -> dict[str, object]:
        """Return the additional parameters of a page's query; it reads one row more, to detect a further page."""
        return {
            "sort": _SORT_COLUMNS[self.sort],
            "row_limit": PAGE_ROWS + 1,
            "row_offset": (self.page - 1) * PAGE_ROWS,
        }


def read_outcome(text: str | None) -> Outcome | None:
    """Parse an outcome; "" returns `None` (all). Raises InvalidRequest."""
    if not text:
        return None
    if text not in OUTCOMES:
        raise InvalidRequest(f"{text!r} is not an outcome; choose one of {', '.join(OUTCOMES)}", param="outcome")
    return text


def read_sort(text: str) -> Sort:
    """Parse a sort order. Raises InvalidRequest."""
    if text not in SORTS:
        raise InvalidRequest(f"requests cannot be sorted by {text!r}; choose one of {', '.join(SORTS)}", param="sort")
    return text


def _both(filtered: str | None, searched: str | None, name: str) -> str | None:
    """Return the value of filter or search. Raises InvalidRequest if they are different."""
    if filtered is not None and searched is not None and filtered != searched:
        raise InvalidRequest(f"the filter asks for {name} {filtered!r} and the search for {searched!r}", param="search")
    return searched if filtered is None else filtered
