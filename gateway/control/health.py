"""Whether the control plane lives, and whether it can serve. Neither needs a token."""

from typing import Final

from fastapi import APIRouter
from pydantic import BaseModel

from contracts.errors import ControlUnavailable
from gateway.control.fields import RevisionCheck

_PATIENCE_SECONDS: Final = 2.0

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
async def ready(check: RevisionCheck) -> ReadyOut:
    """Answer within seconds, also where the database is stopped and all threads wait for it."""
    try:
        return ReadyOut(revision=await check.within(_PATIENCE_SECONDS))
    except TimeoutError as error:
        raise ControlUnavailable(
            f"the control database has not answered for {_PATIENCE_SECONDS:g} s; check TOLLKEEPER_DATABASE_URL and the "
            "server"
        ) from error
