"""Whether the control plane lives, and whether it can serve. Neither needs a token."""

from typing import Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from backends.control.changes import read_revision
from backends.disk_room import shown_disks
from gateway.control.fields import Database

router = APIRouter(tags=["health"])


class HealthOut(BaseModel):
    """The process answers."""

    status: str = "ok"


class ReadyOut(BaseModel):
    """The database answers too; `revision` is the number the gateways poll.

    `disks` are those that hold the control plane's own files: what they hold, the setting that names the place, and
    "ok", "low", "full" or "unknown".
    """

    status: Literal["ready", "disk_full"] = "ready"
    revision: int
    disks: list[dict[str, str]] = []


@router.get("/health", summary="Is the process alive")
async def health() -> HealthOut:
    return HealthOut()


@router.get("/ready", summary="Can it serve; 503 while the database does not answer or its disk is full")
def ready(database: Database, request: Request, response: Response) -> ReadyOut:
    disks = shown_disks(request.app.state.disks)
    is_full = any(disk["state"] == "full" for disk in disks)
    with database.session() as session:
        revision = read_revision(session)
    if is_full:
        response.status_code = 503
    return ReadyOut(status="disk_full" if is_full else "ready", revision=revision, disks=disks)
