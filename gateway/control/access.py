"""Who may use the control plane, and how a change is signed: the bearer token and the caller's address."""

import hashlib
import hmac
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from backends.control.changes import Author
from contracts.errors import AuthenticationFailed

_ADMIN = "admin"

bearer = HTTPBearer(
    auto_error=False,  # our error shape, not FastAPI's
    description="The admin token, made at the first start in `<data>/secrets/admin_token`",
)


class AdminTokenCheck:
    """Compares a presented token with the installation's, by digest and in constant time."""

    def __init__(self, token: str) -> None:
        self._digest = _digest(token)

    def admits(self, presented: str) -> bool:
        """Say whether this is the admin token."""
        return hmac.compare_digest(_digest(presented), self._digest)


def require_admin(
    request: Request, presented: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]
) -> Author:
    """Give the author of this request's change. Raises AuthenticationFailed without the admin token."""
    if presented is None:
        raise AuthenticationFailed("no admin token; send `Authorization: Bearer <token>`", code="missing_admin_token")
    check: AdminTokenCheck = request.app.state.admin_token
    if not check.admits(presented.credentials):
        raise AuthenticationFailed(
            "the admin token is wrong; it lies in the data directory under secrets/admin_token",
            code="invalid_admin_token",
        )
    address = request.client.host if request.client else ""
    return Author(name=_ADMIN, at=datetime.now(UTC), address=address)


Admin = Annotated[Author, Depends(require_admin)]


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()
