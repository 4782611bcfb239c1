"""The requests that were looked for: a page of them, and how many there are over time."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final, cast
from uuid import UUID

from analytics.explorer.question import PAGE_ROWS, RequestQuestion
from analytics.queries import query
from analytics.rows import money_of, number_of, text_of
from analytics.scope import Scope
from backends.store.client import Row, StoreClient
from contracts.records import Outcome

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class FoundRequest:
    """One line of the list. `None` was not measured, reported or priced; an empty text says that there was none."""

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
        """Give it as plain values; money as decimal text."""
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
class FoundPage:
    """A page of the list, in the order that was asked for."""

    question: RequestQuestion
    requests: tuple[FoundRequest, ...]
    has_more: bool


@dataclass(frozen=True, slots=True)
class MatchesOverTime:
    """How many requests match, by outcome; each has one count per entry of `steps` (starts, UTC)."""

    step: timedelta
    steps: tuple[datetime, ...]
    outcomes: Mapping[Outcome, tuple[int, ...]]

    @property
    def total(self) -> int:
        """Count them all."""
        return sum(sum(counts) for counts in self.outcomes.values())


def find_requests(store: StoreClient, question: RequestQuestion) -> FoundPage:
    """Find one page of requests. Raises StoreUnavailable, InvalidRequest on a search that contradicts its filters."""
    rows = store.query(query("requests_found"), {**question.parameters(), **question.page_parameters()})
    return FoundPage(question, tuple(_found(row) for row in rows[:PAGE_ROWS]), len(rows) > PAGE_ROWS)


def count_matches(store: StoreClient, question: RequestQuestion) -> MatchesOverTime:
    """Count all that match, over time. Raises as `find_requests` does."""
    period = question.period
    scope = Scope(period.start, period.end)
    step, origin = scope.step_seconds, scope.step_origin
    first = (period.start_s - origin) // step * step + origin
    starts = range(first, -(-int(period.end.timestamp() * 1000) // 1000), step)
    places = {start: place for place, start in enumerate(starts)}
    parameters = {**question.parameters(), "step": step, "origin": origin}
    counts: dict[Outcome, list[int]] = {}
    for row in store.query(query("requests_counted"), parameters):
        place = places.get(number_of(row["step_start"]))
        if place is not None:
            of_outcome = counts.setdefault(cast(Outcome, text_of(row["outcome_label"])), [0] * len(starts))
            of_outcome[place] += number_of(row["request_count"])
    return MatchesOverTime(
        timedelta(seconds=step),
        tuple(datetime.fromtimestamp(start, UTC) for start in starts),
        {outcome: tuple(each) for outcome, each in sorted(counts.items())},
    )


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
