"""Feedback on requests: written to the store, and read joined with its requests."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal
from uuid import UUID

from analytics.queries import query
from analytics.rows import number_of, text_of
from backends.store.client import Row, StoreClient
from contracts.errors import InvalidRequest, NotFound

Source = Literal["user", "person", "judge"]
# A request's id has its start time; clocks of gateways may differ by this much.
_AROUND: Final = timedelta(hours=1)
_FIRST_MS: Final = int(datetime(2020, 1, 1, tzinfo=UTC).timestamp()) * 1000  # earlier than any gateway
_LAST_MS: Final = int(datetime(2100, 1, 1, tzinfo=UTC).timestamp()) * 1000  # the store's seconds end in 2106
_INSERT: Final = """
INSERT INTO feedback (tenant, request_id, name, source, author, score, comment, request_started_at, at)
VALUES (
    {tenant:String}, {request_id:UUID}, {name:String}, {source:String}, {author:String}, {score:Float64},
    {comment:String}, fromUnixTimestamp64Milli({started_ms:Int64}, 'UTC'),
    fromUnixTimestamp64Milli({at_ms:Int64}, 'UTC')
)
"""


@dataclass(frozen=True, slots=True)
class Feedback:
    """A rating of an answer. `score` is from 0 (worst) to 1 (best)."""

    request_id: UUID
    name: str
    score: float
    comment: str
    author: str
    is_application: bool


def write_feedback(
    store: StoreClient, given: Feedback, tenant: str | None, team: str | None, now: datetime
) -> dict[str, Any]:
    """Store feedback; it replaces earlier feedback of the same author and name.

    Raises NotFound if the request is not (or not yet) in the store or not this tenant's and team's; InvalidRequest on
    an id that no gateway made; StoreUnavailable.
    """
    began = began_about(given.request_id)
    parameters = {
        "start": int((began - _AROUND).timestamp()),
        "end": int((began + _AROUND).timestamp()),
        "tenant": tenant,
        "team": team,
        "request_id": given.request_id,
    }
    rows = store.query(query("judged_request"), parameters)
    if not rows:
        raise NotFound(
            f"request {given.request_id} is not in the store; send the reply's x-request-id, a few seconds after it",
            param="request_id",
        )
    source: Source = "user" if given.is_application else "person"
    insert_feedback(store, rows[0], given, source, now)
    return {"request_id": str(given.request_id), "name": given.name, "score": given.score, "source": source}


def insert_feedback(store: StoreClient, request: Row, given: Feedback, source: Source, now: datetime) -> None:
    """Store feedback on a request whose row, with `tenant` and `started_at`, is known. Raises StoreUnavailable."""
    started_at = request["started_at"]
    assert isinstance(started_at, datetime)  # the store's type for DateTime64
    store.command(
        _INSERT,
        {
            "tenant": text_of(request["tenant"]),
            "request_id": given.request_id,
            "name": given.name,
            "source": source,
            "author": given.author,
            "score": given.score,
            "comment": given.comment,
            "started_ms": int(started_at.timestamp() * 1000),
            "at_ms": int(now.timestamp() * 1000),
        },
        settings={"async_insert": 0},
    )


def feedback_summary(
    store: StoreClient, start: datetime, end: datetime, tenant: str | None, team: str | None
) -> list[dict[str, Any]]:
    """Return mean scores of a period's requests, by tenant, model, prompt version, name and source."""
    bounds = {"start": int(start.timestamp()), "end": int(end.timestamp()) + 1}  # includes the current second
    parameters = {**bounds, "tenant": tenant, "team": team}
    return [
        {
            "tenant": text_of(row["tenant_name"]),
            "model": text_of(row["model_name"]),
            "prompt": text_of(row["prompt"]) or None,
            "prompt_version": text_of(row["version"]) or None,
            "name": text_of(row["score_name"]),
            "source": text_of(row["score_source"]),
            "scores": number_of(row["scores"]),
            "mean_score": _real(row["mean_score"]),
            "low_scores": number_of(row["low_scores"]),
        }
        for row in store.query(query("feedback_scores"), parameters)
    ]


def began_about(request_id: UUID) -> datetime:
    """Return a request's start time (UTC) from its id (UUIDv7, RFC 9562).

    Raises InvalidRequest on another kind of id, and on a time before 2020 or after 2100.
    """
    if request_id.version != 7:
        raise InvalidRequest(
            f"request_id {request_id} is not an id that the gateway makes (UUID version 7)", param="request_id"
        )
    milliseconds = request_id.int >> 80
    if not _FIRST_MS <= milliseconds < _LAST_MS:
        raise InvalidRequest(
            f"request_id {request_id} is of a time before 2020 or after 2100; send the reply's x-request-id",
            param="request_id",
        )
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _real(value: object) -> float | None:
    return round(float(value), 6) if isinstance(value, int | float) else None
