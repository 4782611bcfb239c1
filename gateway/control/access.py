"""Who may use the control plane, and how a change is signed: the bearer token and the caller's address."""

import hashlib
import hmac
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from fastapi.security.utils import get_authorization_scheme_param
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from backends.control.changes import Author
from contracts.errors import AuthenticationFailed
from gateway.control.replies import error_reply

_ADMIN = "admin"
_GUARDED = "/v1/"  # health, readiness and the page that documents the API are for everyone

bearer = HTTPBearer(
    auto_error=False,  # our error shape, not FastAPI's
    description="The admin token, made at the first start in `<data>/secrets/admin_token`",
)


class AdminTokenCheck:
    """Compares a presented token with the installation's, by digest and in constant time."""

    def __init__(self, token: str) -> None:
        self._digest = _digest(token)

    def require(self, presented: str | None) -> None:
        """Raise AuthenticationFailed where this is not the admin token; `None` where nothing was presented."""
        if presented is None:
            raise AuthenticationFailed(
                "no admin token; send `Authorization: Bearer <token>`", code="missing_admin_token"
            )
        if not hmac.compare_digest(_digest(presented), self._digest):
            raise AuthenticationFailed(
                "the admin token is wrong; it lies in the data directory under secrets/admin_token",
                code="invalid_admin_token",
            )


class TokenGate:
    """ASGI middleware: asks for the admin token before anything of the body is read or parsed."""

    def __init__(self, app: ASGIApp, check: AdminTokenCheck) -> None:
        self.app = app
        self.check = check

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(_GUARDED):
            scheme, token = get_authorization_scheme_param(Headers(scope=scope).get("authorization"))
            try:
                self.check.require(token if token and scheme.lower() == "bearer" else None)
            except AuthenticationFailed as error:
                await error_reply(error)(scope, receive, send)
                return
        await self.app(scope, receive, send)


def require_admin(
    request: Request, presented: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]
) -> Author:
    """Give the author of this request's change. Raises AuthenticationFailed without the admin token."""
    check: AdminTokenCheck = request.app.state.admin_token
    check.require(presented.credentials if presented else None)  # again: a route must not lean on what stands before
    address = request.client.host if request.client else ""
    return Author(name=_ADMIN, at=datetime.now(UTC), address=address)


Admin = Annotated[Author, Depends(require_admin)]


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()
