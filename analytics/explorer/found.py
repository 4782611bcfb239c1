"""Searches requests: returns a page of matches, and their number over time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final, cast
from uuid import UUID

from analytics.deleted import deleted_since
from analytics.explorer.question import PAGE_ROWS, RequestQuestion
from analytics.explorer.summed import summed_parts
from analytics.queries import query
from analytics.rows import money_of, number_of, text_of
from analytics.scope import RECENT_KEPT, Scope
from backends.store.client import Row, StoreClient
from contracts.recording.records import Outcome

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MARGIN: Final = timedelta(hours=2)  # retention of rollups: see `analytics.scope`
_WORD_COLUMNS: Final = frozenset(
    {"model", "team", "project", "error_code", "prompt_name", "run_id", "conversation_id", "end_user"}
)
_MATCHES_TOLD: Final = 5_000  # up to so many matches of a name are counted here instead of in the store
_ROUNDED_SECONDS: Final = 2e-6  # precision of a current time as a float


@dataclass(frozen=True, slots=True)
class FoundRequest:
    """One row of the list. `None`: not measured, reported or priced; "" means that there is none."""

    request_id: UUID
    started_at: datetime
    duration_ns: int
    tenant: str
    team: str
    project: str
    key_id: str
    end_user: str
    requested_model: str
    model: str
    route: str
    provider: str
    replica: str
    outcome: Outcome
    status: int
    error_code: str
    finish_reason: str
    is_streamed: bool
    attempts: int
    cache: str
    ttft_ns: int | None
    input_tokens: int | None
    cached_input_tokens: int | None
    output_tokens: int | None
    cost_usd: Decimal | None

    def as_json(self) -> dict[str, object]:
        """Return the row as JSON types; money as decimal text."""
        return {
            "request_id": str(self.request_id),
            "started_at": self.started_at.isoformat(),
            "duration_ns": self.duration_ns,
            "tenant": self.tenant,
            "team": self.team or None,
            "project": self.project or None,
            "key_id": self.key_id or None,
            "end_user": self.end_user or None,
            "requested_model": self.requested_model,
            "model": self.model or None,
            "outcome": self.outcome,
            "status": self.status,
            "error_code": self.error_code or None,
            "attempts": self.attempts,
            "ttft_ns": self.ttft_ns,
            "input_tokens": self.input_tokens,
            "cached_input_tokens": self.cached_input_tokens,
            "output_tokens": self.output_tokens,
            "cost_usd": None if self.cost_usd is None else format(self.cost_usd, "f"),
        }


@dataclass(frozen=True, slots=True)
class Searched:
    """Intermediate results of a search, which counting can reuse.

    `columns`: those that may contain the word. `matches`: all matches, with time (Unix ns) and outcome; `None` if there
    are many, or if they were not read.
    """

    columns: frozenset[str] = _WORD_COLUMNS
    matches: tuple[tuple[int, Outcome], ...] | None = None


@dataclass(frozen=True, slots=True)
class FoundPage:
    """A page of the list in the requested order, and the search's intermediate results."""

    question: RequestQuestion
    requests: tuple[FoundRequest, ...]
    has_more: bool
    searched: Searched = field(default_factory=Searched)


@dataclass(frozen=True, slots=True)
class MatchesOverTime:
    """Number of matches by outcome, with one count per entry of `steps` (starts, UTC)."""

    step: timedelta
    steps: tuple[datetime, ...]
    outcomes: Mapping[Outcome, tuple[int, ...]]

    @property
    def total(self) -> int:
        """Return the total number of matches."""
        return sum(sum(counts) for counts in self.outcomes.values())


def find_requests(store: StoreClient, question: RequestQuestion) -> FoundPage:
    """Return one page of matches. Raises StoreUnavailable, InvalidRequest if the search contradicts its filters."""
    columns = _searched(store, question)
    parameters = {**question.parameters(), **question.page_parameters(), **_flags(columns)}
    if question.is_of_a_name:
        first = (question.page - 1) * PAGE_ROWS
        most = max(first + PAGE_ROWS, _MATCHES_TOLD) + 1
        rows = store.query(query("requests_found"), {**parameters, "row_limit": most, "row_offset": 0})
        matches = tuple((number_of(row["started_at_ns"]), cast(Outcome, text_of(row["outcome_label"]))) for row in rows)
        searched = Searched(columns, matches if len(matches) < most else None)
        rows = rows[first : first + PAGE_ROWS + 1]
    else:
        searched = Searched(columns)
        narrowed = _narrowed(store, question)
        rows = store.query(query("requests_found"), {**parameters, **narrowed})
        if narrowed and len(rows) <= PAGE_ROWS:  # a retention rule has deleted some of the counted requests
            rows = store.query(query("requests_found"), parameters)
    page = _listed(store, rows[:PAGE_ROWS], parameters)
    return FoundPage(question, page, len(rows) > PAGE_ROWS, searched)


def _listed(store: StoreClient, rows: Sequence[Row], parameters: Mapping[str, object]) -> tuple[FoundRequest, ...]:
    """Read the found requests, in their order; some may have been deleted by a rule meanwhile."""
    if not rows:
        return ()
    moments = [number_of(row["started_at_ns"]) for row in rows]
    more = {
        "page_tenants": [text_of(row["tenant_label"]) for row in rows],
        "page_moments": moments,
        "start": min(moments) / 1e9 - _ROUNDED_SECONDS,
        "end": max(moments) / 1e9 + _ROUNDED_SECONDS,
        "row_limit": len(rows),
    }
    return tuple(_found(row) for row in store.query(query("requests_listed"), {**parameters, **more}))


def _searched(store: StoreClient, question: RequestQuestion) -> frozenset[str]:
    """Return the columns to search for a word: those that contain it anywhere; all columns for a single tenant."""
    if question.search.word is None or question.tenant is not None:
        return _WORD_COLUMNS
    rows = store.query(query("word_columns"), question.parameters())
    return frozenset({"end_user", *(text_of(row["column_name"]) for row in rows)})


def _flags(searched: frozenset[str]) -> dict[str, object]:
    return {f"in_{name}": name in searched for name in _WORD_COLUMNS}


def _narrowed(store: StoreClient, question: RequestQuestion) -> dict[str, object]:
    """Return a later start for the search of the newest requests of all tenants, from `requests_recent`; `requests` is
    not ordered by time, so the whole range would be scanned.
    """
    recent = question.asked_at - RECENT_KEPT + _MARGIN
    if not question.is_in_order_of_time or question.tenant is not None or question.period.end <= recent:
        return {}
    wanted = question.page * PAGE_ROWS + 1
    parameters = {
        **question.parameters(),
        "start": max(question.period.start, recent).timestamp(),
        "row_limit": wanted,
    }
    (row,) = store.query(query("newest_since"), parameters)
    if number_of(row["request_count"]) < wanted:
        return {}
    return {"start": max(number_of(row["since_ns"]) / 1e9 - _ROUNDED_SECONDS, question.period.start.timestamp())}


def count_matches(store: StoreClient, question: RequestQuestion, searched: Searched | None = None) -> MatchesOverTime:
    """Return the number of matches over time, from rollups if possible. Raises as `find_requests` does.

    `searched`: intermediate results of the same question's page; without it they are computed again.
    """
    period = question.period
    scope = Scope(period.start, period.end)
    step, origin = scope.step_seconds, scope.step_origin
    first = (period.start_s - origin) // step * step + origin
    starts = range(first, -(-int(period.end.timestamp() * 1000) // 1000), step)
    places = {start: place for place, start in enumerate(starts)}
    counts: dict[Outcome, list[int]] = {}
    for at, outcome, count in _counted(store, question, searched, step, origin):
        place = places.get(at)
        if place is not None:
            counts.setdefault(outcome, [0] * len(starts))[place] += count
    return MatchesOverTime(
        timedelta(seconds=step),
        tuple(datetime.fromtimestamp(start, UTC) for start in starts),
        {outcome: tuple(each) for outcome, each in sorted(counts.items())},
    )


def _counted(
    store: StoreClient, question: RequestQuestion, searched: Searched | None, step: int, origin: int
) -> Iterator[tuple[int, Outcome, int]]:
    """Yield (step's start in Unix seconds, outcome, count), in any order."""
    if searched is not None and searched.matches is not None:
        steps = ((at_ns // 10**9 - origin) // step * step + origin for at_ns, _ in searched.matches)
        yield from ((at, outcome, 1) for at, (_, outcome) in zip(steps, searched.matches, strict=True))
        return
    parameters = {**question.parameters(), "step": step, "origin": origin}
    name = "requests_counted"
    if question.is_in_sums and deleted_since(store, question.period.start, question.tenant, question.team) is None:
        name = "requests_summed"
        parameters |= summed_parts(question, step)
    else:
        parameters |= _flags(_searched(store, question) if searched is None else searched.columns)
    for row in store.query(query(name), parameters):
        outcome = cast(Outcome, text_of(row["outcome_label"]))
        yield number_of(row["step_start"]), outcome, number_of(row["request_count"])


def _found(row: Row) -> FoundRequest:
    has_input, has_output = not row["has_no_input"], not row["has_no_output"]
    return FoundRequest(
        request_id=cast(UUID, row["request_id"]),
        started_at=_EPOCH + timedelta(microseconds=number_of(row["started_at_ns"]) // 1000),
        duration_ns=number_of(row["duration_ns"]),
        tenant=text_of(row["tenant_label"]),
        team=text_of(row["team_label"]),
        project=text_of(row["project_label"]),
        key_id=text_of(row["key_id"]),
        end_user=text_of(row["end_user"]),
        requested_model=text_of(row["requested_model"]),
        model=text_of(row["model_label"]),
        route=text_of(row["route_label"]),
        provider=text_of(row["provider_label"]),
        replica=text_of(row["replica_label"]),
        outcome=cast(Outcome, text_of(row["outcome_label"])),
        status=number_of(row["status_code"]),
        error_code=text_of(row["error_code"]),
        finish_reason=text_of(row["finish_reason"]),
        is_streamed=bool(row["stream"]),
        attempts=number_of(row["attempts"]),
        cache=text_of(row["cache_label"]),
        ttft_ns=None if row["ttft_ns"] is None else number_of(row["ttft_ns"]),
        input_tokens=number_of(row["input_sum"]) if has_input else None,
        cached_input_tokens=number_of(row["cached_sum"]) if has_input else None,
        output_tokens=number_of(row["output_sum"]) if has_output else None,
        cost_usd=None if row["cost_usd"] is None else money_of(row["cost_usd"]),
    )
