"""Feedback on answers: applications send scores with their API key; a summary joins them with the requests."""

from datetime import timedelta
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from analytics.api.access import Anybody, Reader
from analytics.api.store import Store
from analytics.quality.feedback import Feedback, feedback_summary, write_feedback
from contracts.recording.moments import utc_now

router = APIRouter(prefix="/v1/feedback", tags=["quality"])

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_.-]{0,62}$")]


class FeedbackBody(BaseModel):
    """A score for an answer."""

    model_config = ConfigDict(extra="forbid")

    request_id: UUID = Field(description="The response's `x-request-id`")
    name: Name = Field(default="helpful", description="Name of the score")
    score: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, description="0 worst, 1 best")]
    comment: Annotated[str, Field(max_length=2000)] = ""


@router.post("", status_code=201, summary="Score an answer")
def write(body: FeedbackBody, caller: Anybody, store: Store) -> dict[str, Any]:
    """Store a score of an answer; a repeated one replaces the former. The request must be in the store (seconds after
    its end) and of the caller's tenant and team.
    """
    given = Feedback(body.request_id, body.name, body.score, body.comment, caller.name, bool(caller.key_id))
    return write_feedback(store, given, caller.tenant, caller.team, utc_now())


@router.get("", summary="Scores by model, prompt version and name")
def summary(reader: Reader, store: Store, days: Annotated[int, Field(ge=1, le=90)] = 7) -> dict[str, Any]:
    now = utc_now()
    return {"days": days, "data": feedback_summary(store, now - timedelta(days=days), now, reader.tenant, reader.team)}
