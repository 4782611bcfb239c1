"""An incident over time: requests, failures, refusals and latency by step."""

from dataclasses import dataclass
from datetime import UTC, datetime

from analytics.queries import query
from analytics.rows import number_of
from analytics.scope import Scope
from backends.store.client import StoreClient


@dataclass(frozen=True, slots=True)
class Step:
    """One time step. Latency is the time to first token, or of a whole answer; `None` without an answer."""

    at: datetime
    requests: int
    errors: int
    refused: int
    p50_ns: float | None
    p95_ns: float | None


def incident_timeline(store: StoreClient, scope: Scope) -> tuple[Step, ...]:
    """Read the time steps of a scope's range that have requests. Raises StoreUnavailable."""
    parameters = {"team": None, **scope.parameters(), "step": scope.step_seconds, "origin": scope.step_origin}
    return tuple(
        Step(
            datetime.fromtimestamp(number_of(row["step_start"]), UTC),
            number_of(row["request_count"]),
            number_of(row["error_count"]),
            number_of(row["rejected_count"]),
            _real(row["p50_ns"]) if number_of(row["answered_count"]) else None,
            _real(row["p95_ns"]) if number_of(row["answered_count"]) else None,
        )
        for row in store.query(query("incident_timeline"), parameters)
    )


def _real(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
