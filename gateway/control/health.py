"""Whether the control plane lives, and whether it can serve. Neither needs a token."""

from datetime import UTC, datetime

from fastapi import APIRouter, Request
from fastapi.security.utils import get_authorization_scheme_param
from pydantic import BaseModel

from backends.control.changes import read_revision
from backends.web.details import shown_to
from contracts.errors import TollkeeperError
from gateway.control.access import TokenBook
from gateway.control.fields import Database

router = APIRouter(tags=["health"])


class HealthOut(BaseModel):
    """The process answers."""

    status: str = "ok"


class ReadyOut(BaseModel):
    """The database answers too; `revision` is the number the gateways poll, for callers on this machine and holders of
    an admin token or the metrics token.
    """

    status: str = "ready"
    revision: int | None = None


@router.get("/health", summary="Is the process alive")
async def health() -> HealthOut:
    return HealthOut()


@router.get(
    "/ready",
    summary="Can it serve; 503 control_unavailable while the database does not answer",
    response_model_exclude_none=True,
)
def ready(request: Request, database: Database) -> ReadyOut:
    with database.session() as session:
        page = {"status": "ready", "revision": read_revision(session)}
    shown = page if _is_admin(request) else shown_to(request, request.app.state.detail_access, page)
    return ReadyOut.model_validate(shown)


def _is_admin(request: Request) -> bool:
    scheme, token = get_authorization_scheme_param(request.headers.get("authorization"))
    if scheme.lower() != "bearer" or not token:
        return False
    tokens: TokenBook = request.app.state.tokens
    try:
        tokens.bearer_of(token, datetime.now(UTC))
    except TollkeeperError:
        return False
    return True
