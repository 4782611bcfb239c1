"""Whether the control plane lives, and whether it can serve. Neither needs a token."""

from fastapi import APIRouter
from pydantic import BaseModel

from backends.control.changes import read_revision
from gateway.control.fields import Database

router = APIRouter(tags=["health"])


class HealthOut(BaseModel):
    """The process answers."""

    status: str = "ok"


class ReadyOut(BaseModel):
    """The database answers too; `revision` is the number the gateways poll."""

    status: str = "ready"
    revision: int


@router.get("/health", summary="Is the process alive")
async def health() -> HealthOut:
    return HealthOut()


@router.get("/ready", summary="Can it serve; 503 control_unavailable while the database does not answer")
def ready(database: Database) -> ReadyOut:
    with database.session() as session:
        return ReadyOut(revision=read_revision(session))
