"""Regret of the router's choices, from sampled requests with recorded alternatives (docs/replicas.md)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import msgspec

from analytics.queries import query
from analytics.rows import UnexpectedRow, number_of, text_of
from analytics.scope import Scope
from backends.store.client import Row, StoreClient

MAX_DECISIONS: Final = 20


@dataclass(frozen=True, slots=True)
class PolicyRegret:
    """A pool's sampled choices under one policy; times are milliseconds to first token.

    `overruled` counts choices of another target than the one predicted to be fastest. `missed` is the error of
    predictions for the chosen targets.
    """

    pool: str
    policy: str
    samples: int
    overruled: int
    mean_ms: float
    p95_ms: float
    mean_missed_ms: float | None
    mean_ttft_ms: float | None


class _Outcome(msgspec.Struct):
    replica: str = ""
    ttft_ms: float | None = None
    cached_tokens: int | None = None
    error_ms: float | None = None
    regret_ms: float | None = None


class _Sample(msgspec.Struct):
    policy: str = ""
    chosen: str = ""
    prompt_tokens: int = 0
    predicted_ms: dict[str, float] = {}
    cached_tokens: dict[str, int] = {}
    outcome: _Outcome = msgspec.field(default_factory=_Outcome)


class _Decision(msgspec.Struct):
    replica: _Sample


@dataclass(frozen=True, slots=True)
class Decision:
    """One sampled choice: predicted time per target (ms, fastest first), and actual time."""

    request_id: str
    at: datetime
    tenant: str
    model: str
    pool: str
    policy: str
    chosen: str
    answered_by: str
    prompt_tokens: int
    predicted_ms: Mapping[str, float]
    cached_tokens: Mapping[str, int]
    ttft_ms: float | None
    regret_ms: float | None


def regret_by_pool(store: StoreClient, scope: Scope) -> tuple[PolicyRegret, ...]:
    """Read the regret of sampled choices, pools with most samples first. Raises StoreUnavailable."""
    rows = store.query(query("routing_regret"), {"team": None, **scope.parameters()})
    return tuple(
        PolicyRegret(
            text_of(row["pool_label"]),
            text_of(row["policy_label"]),
            number_of(row["sample_count"]),
            number_of(row["other_count"]),
            _real(row["regret_mean"]) or 0.0,
            _real(row["regret_p95"]) or 0.0,
            _real(row["missed_mean"]),
            _real(row["came_mean"]),
        )
        for row in rows
    )


def worst_decisions(store: StoreClient, scope: Scope, most: int = MAX_DECISIONS) -> tuple[Decision, ...]:
    """Read the sampled choices with the largest regret. Raises StoreUnavailable."""
    parameters = {"team": None, **scope.parameters(), "row_limit": most}
    return tuple(_decision(row) for row in store.query(query("routing_decisions"), parameters))


def _decision(row: Row) -> Decision:
    try:
        sample = msgspec.json.decode(text_of(row["decision_json"]), type=_Decision).replica
    except msgspec.MsgspecError as error:
        raise UnexpectedRow("a record's route_decision is of another version; run `python -m migrations`") from error
    return Decision(
        text_of(row["request_label"]),
        datetime.fromtimestamp(number_of(row["started_at_ns"]) / 1e9, UTC),
        text_of(row["tenant_label"]),
        text_of(row["model_label"]),
        text_of(row["pool_label"]),
        sample.policy,
        sample.chosen,
        sample.outcome.replica,
        sample.prompt_tokens,
        sample.predicted_ms,
        sample.cached_tokens,
        sample.outcome.ttft_ms,
        sample.outcome.regret_ms,
    )


def _real(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, int | float):
        return float(value)
    raise UnexpectedRow(f"the store gave {type(value).__name__} for a number; run `python -m migrations`")
