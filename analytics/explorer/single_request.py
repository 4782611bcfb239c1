"""Reads all stored data of one request by its id."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, cast
from uuid import UUID

from analytics.cost.question import REQUESTS_KEPT
from analytics.explorer.decision import RouteDecision, read_decision
from analytics.quality.feedback import began_about
from analytics.queries import query
from analytics.rows import money_of, number_of, numbers_of, text_of
from analytics.scope import Period
from backends.store.client import Row, StoreClient
from contracts.errors import InvalidRequest, NotFound
from contracts.metering.gaps import GAP_UNIT_NS
from contracts.metering.usage import LEAVES, Leaf, Usage, column_of

_AROUND: Final = timedelta(minutes=10)  # maximum difference of the id's and the record's time
_LONGEST: Final = timedelta(days=1)  # time range in which a request's attempts are searched
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Try:
    """One attempt at a target. `began_ns` counts from the request's start; `ttft_ns` from the attempt's own."""

    number: int
    began_ns: int
    duration_ns: int
    reason: str
    outcome: str
    status: int
    error_code: str
    model: str
    provider: str
    replica: str
    region: str
    ttft_ns: int | None
    tokens: int
    cost_usd: Decimal | None


@dataclass(frozen=True, slots=True)
class GpuSplit:
    """The GPU time charged to a request by phase, in nanoseconds, and the method of attribution."""

    prefill_ns: int
    decode_ns: int
    recompute_ns: int
    wasted_ns: int
    kv_block_seconds: float | None
    method: str
    confidence: float | None

    @property
    def total_ns(self) -> int:
        """Return the sum of the phases in nanoseconds."""
        return self.prefill_ns + self.decode_ns + self.recompute_ns + self.wasted_ns


@dataclass(frozen=True, slots=True)
class SingleRequest:
    """One request. `labels`: its text columns by name ("" if empty); `counts`: its numeric columns.

    `gaps_ns`: times between its tokens. `usage` and money are `None` if not reported or priced. `gpu` is `None` if no
    own engine answered.
    """

    request_id: UUID
    started_at_ns: int
    duration_ns: int
    status: int
    is_streamed: bool
    labels: Mapping[str, str]
    tags: Mapping[str, str]
    counts: Mapping[str, int | None]
    temperature: float | None
    verdicts: tuple[str, ...]
    schema_failed: bool | None
    ttft_ns: int | None
    admission_ns: int | None
    wait_ns: int | None
    queue_ns: int | None
    cold_start_ns: int | None
    gaps_ns: tuple[int, ...]
    usage: Usage
    cost_usd: Decimal | None
    charged_usd: Decimal | None
    gpu: GpuSplit | None
    decision: RouteDecision
    tries: tuple[Try, ...]
    unpriced_leaves: tuple[str, ...] = ()  # used kinds of tokens without a price on its price card

    @property
    def started_at(self) -> datetime:
        """Return its start (UTC) with microseconds."""
        return _EPOCH + timedelta(microseconds=self.started_at_ns // 1000)

    @property
    def tenant(self) -> str:
        """Return its tenant."""
        return self.labels["tenant"]

    @property
    def is_of_engine(self) -> bool:
        """Return whether an own engine answered: its token times are by the engine's clock, or it has GPU time."""
        return self.gpu is not None or self.labels["gap_clock"] == "engine"


# Field name -> column of the query.
_LABELS: Final[Mapping[str, str]] = {
    **{name: f"{name}_label" for name in ("tenant", "team", "project", "outcome", "route", "model", "provider")},
    **{"replica": "replica_label", "cache": "cache_label", "trace_id": "trace_hex"},
    **{
        name: name
        for name in (
            *("key_id", "end_user", "operation", "api", "error_code", "finish_reason", "requested_model"),
            *("model_version", "pool", "adapter", "region", "gateway", "priority", "gap_clock", "count_method"),
            *("cost_basis", "price_state", "service_tier", "price_version", "limit_name", "run_id", "conversation_id"),
            *("prompt_name",),
            *("prompt_version", "upstream_error", "upstream_message"),
        )
    },
}
_COUNTS: Final = (
    *("attempts", "choices", "max_tokens", "engine_output_tokens", "recompute_tokens", "overrun_tokens"),
    *("wasted_tokens", "request_bytes", "response_bytes", "reserved_tokens", "overdraft_tokens", "tool_calls"),
    "thinking_over_tokens",
    "upstream_status",
)


def single_request(
    store: StoreClient, request_id: UUID, tenant: str | None = None, team: str | None = None
) -> SingleRequest:
    """Return one request, of one tenant and team, or of any if `None`.

    Raises NotFound if it is not in the store (yet) or not of that tenant and team; StoreUnavailable.
    """
    period = about_when(request_id)
    access: dict[str, object] = {"tenant": tenant, "team": team, "request_id": request_id}
    bounds = {"start": period.start.timestamp(), "end": period.end.timestamp()}
    rows = store.query(query("request"), {**access, **bounds})
    if not rows:
        raise NotFound(
            f"request {request_id} was not found: it is not in the store yet, has expired, or you may not see it",
            param="request_id",
        )
    (row,) = rows
    tries: tuple[Try, ...] = ()
    if number_of(row["attempts"]) > 1:
        began = _EPOCH + timedelta(microseconds=number_of(row["started_at_ns"]) // 1000)
        around = {"start": (began - _AROUND).timestamp(), "end": (began + _LONGEST).timestamp()}
        found = store.query(query("request_attempts"), {**access, **around})
        tries = tuple(_try(each, number_of(row["started_at_ns"])) for each in found)
    return _request(row, tries)


def about_when(request_id: UUID) -> Period:
    """Return the period in which a request started: ten minutes around a UUIDv7's time, else the whole retention."""
    try:
        began = began_about(request_id)
    except InvalidRequest:
        now = datetime.now(UTC)
        return Period(now - REQUESTS_KEPT, now + _AROUND)
    return Period(began - _AROUND, began + _AROUND)


def _request(row: Row, tries: tuple[Try, ...]) -> SingleRequest:
    usage: dict[Leaf, int | None] = {leaf: _optional(row[column_of(leaf)]) for leaf in LEAVES}
    return SingleRequest(
        request_id=cast(UUID, row["request_id"]),
        started_at_ns=number_of(row["started_at_ns"]),
        duration_ns=number_of(row["duration_ns"]),
        status=number_of(row["status_code"]),
        is_streamed=bool(row["stream"]),
        labels={name: text_of(row[column]) for name, column in _LABELS.items()},
        tags=dict(cast(Mapping[str, str], row["tags"])),
        counts={name: _optional(row[name]) for name in _COUNTS},
        temperature=_real(row["temperature"]),
        verdicts=tuple(cast(list[str], row["verdict_labels"])),
        unpriced_leaves=tuple(cast(list[str], row["unpriced_leaves"])),
        schema_failed=None if row["schema_failed"] is None else bool(row["schema_failed"]),
        ttft_ns=_optional(row["ttft_ns"]),
        admission_ns=_optional(row["admission_ns"]),
        wait_ns=_optional(row["wait_ns"]),
        queue_ns=_optional(row["queue_ns"]),
        cold_start_ns=_optional(row["cold_start_ns"]),
        gaps_ns=tuple(int(gap) * GAP_UNIT_NS for gap in numbers_of(row["gaps"])),
        usage=Usage(**usage),
        cost_usd=None if row["cost_usd"] is None else money_of(row["cost_usd"]),
        charged_usd=None if row["charged_usd"] is None else money_of(row["charged_usd"]),
        gpu=_gpu(row),
        decision=read_decision(text_of(row["route_decision"])),
        tries=tries,
    )


def _gpu(row: Row) -> GpuSplit | None:
    names = ("gpu_prefill_ns", "gpu_decode_ns", "gpu_recompute_ns", "gpu_wasted_ns")
    if all(row[name] is None for name in names):
        return None
    prefill, decode, again, wasted = (_optional(row[name]) or 0 for name in names)
    return GpuSplit(
        prefill_ns=prefill,
        decode_ns=decode,
        recompute_ns=again,
        wasted_ns=wasted,
        kv_block_seconds=_real(row["kv_block_seconds"]),
        method=text_of(row["attribution_method"]),
        confidence=_real(row["attribution_confidence"]),
    )


def _try(row: Row, started_at_ns: int) -> Try:
    ttft = _optional(row["ttft_ns"])
    return Try(
        number=number_of(row["number"]),
        began_ns=max(number_of(row["started_at_ns"]) - started_at_ns, 0),
        duration_ns=number_of(row["duration_ns"]),
        reason=text_of(row["reason"]),
        outcome=text_of(row["outcome_label"]),
        status=number_of(row["status_code"]),
        error_code=text_of(row["error_code"]),
        model=text_of(row["model_label"]),
        provider=text_of(row["provider_label"]),
        replica=text_of(row["replica_label"]),
        region=text_of(row["region"]),
        ttft_ns=ttft,
        tokens=0 if ttft is None else number_of(row["gap_count"]) + 1,
        cost_usd=None if row["cost_usd"] is None else money_of(row["cost_usd"]),
    )


def _optional(value: object) -> int | None:
    return None if value is None else number_of(value)


def _real(value: Any) -> float | None:
    return None if value is None else float(value)
