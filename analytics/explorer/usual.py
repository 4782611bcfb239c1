"""Reads usual times to first token at a request's target: in the day before, and around that time."""

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from analytics.queries import query
from analytics.rows import number_of
from backends.store.client import StoreClient

_SECOND: Final = 10**9
_DAY_SECONDS: Final = 86_400
_NEAR_SECONDS: Final = 300


@dataclass(frozen=True, slots=True)
class UsualTimes:
    """Times to first token in ns of the same tenant's requests to the same model at the same target.

    `day_count`: requests in the day before; `near_count`: within five minutes of it. Times are `None` without requests.
    """

    day_count: int
    day_p50_ns: int | None
    day_p95_ns: int | None
    near_count: int
    near_p50_ns: int | None


@dataclass(frozen=True, slots=True)
class AnsweredBy:
    """The request to compare: its start (Unix ns), and the model and target that answered it."""

    request_id: UUID
    started_at_ns: int
    model: str
    replica: str


def usual_times(store: StoreClient, tenant: str, team: str | None, request: AnsweredBy) -> UsualTimes:
    """Return the usual times for a request, among those of its tenant (and team, if given). Raises StoreUnavailable."""
    at = request.started_at_ns // _SECOND
    parameters = {
        "tenant": tenant,
        "team": team,
        "at": at,
        "start": at - _DAY_SECONDS,
        "near_start": at - _NEAR_SECONDS,
        "end": at + _NEAR_SECONDS,
        "model": request.model,
        "replica": request.replica,
        "request_id": str(request.request_id),
    }
    (row,) = store.query(query("usual_ttft"), parameters)
    day, near = number_of(row["day_count"]), number_of(row["near_count"])
    return UsualTimes(
        day_count=day,
        day_p50_ns=number_of(row["day_p50"]) if day else None,
        day_p95_ns=number_of(row["day_p95"]) if day else None,
        near_count=near,
        near_p50_ns=number_of(row["near_p50"]) if near else None,
    )
