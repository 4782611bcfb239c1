"""Health and readiness checks of the control plane. Neither needs a token."""

import asyncio
from datetime import UTC, datetime
from typing import Final, Literal

from fastapi import APIRouter, Request, Response
from fastapi.security.utils import get_authorization_scheme_param
from pydantic import BaseModel

from backends.segment_log.disk_room import shown_disks
from backends.web.details import shown_to
from contracts.errors import ControlUnavailable, TollkeeperError
from gateway.control.access import TokenBook
from gateway.control.fields import RevisionCheck

_PATIENCE_SECONDS: Final = 2.0

router = APIRouter(tags=["health"])


class HealthOut(BaseModel):
    """The answer of a health check: the process responds."""

    status: str = "ok"


class ReadyOut(BaseModel):
    """The readiness of the control plane; `revision` is the number that gateways poll.

    `disks` are those with the control plane's own files: what they contain, the setting that names the place, and "ok",
    "low", "full" or "unknown". Both are shown only to callers on this machine and holders of an admin token or the
    metrics token.
    """

    status: Literal["ready", "disk_full"] = "ready"
    revision: int | None = None
    disks: list[dict[str, str]] | None = None


@router.get("/health", summary="Liveness")
async def health() -> HealthOut:
    return HealthOut()


@router.get(
    "/ready",
    summary="Readiness; 503 while the database is unreachable or its disk is full",
    response_model_exclude_none=True,
)
async def ready(check: RevisionCheck, request: Request, response: Response) -> ReadyOut:
    """Answer within seconds, even if the database is stopped and all threads wait for it."""
    disks = shown_disks(request.app.state.disks)
    is_full = any(disk["state"] == "full" for disk in disks)
    try:
        revision = await check.within(_PATIENCE_SECONDS)
        is_admin = await asyncio.wait_for(asyncio.to_thread(_is_admin, request), _PATIENCE_SECONDS)
    except TimeoutError as error:
        raise ControlUnavailable(
            f"the control database has not answered for {_PATIENCE_SECONDS:g} s; check TOLLKEEPER_DATABASE_URL and the "
            "server"
        ) from error
    if is_full:
        response.status_code = 503
    page = {"status": "disk_full" if is_full else "ready", "revision": revision, "disks": disks}
    shown = page if is_admin else shown_to(request, request.app.state.detail_access, page)
    return ReadyOut.model_validate(shown)


def _is_admin(request: Request) -> bool:
    scheme, token = get_authorization_scheme_param(request.headers.get("authorization"))
    if scheme.lower() != "bearer" or not token:
        return False
    tokens: TokenBook = request.app.state.tokens
    try:
        tokens.owner_of(token, datetime.now(UTC))
    except TollkeeperError:
        return False
    return True
