"""Authorization of the control plane, and the author of a change: the name, role and scope of a token or of a signed-in
user, and the address.
"""

import hmac
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Final

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from fastapi.security.utils import get_authorization_scheme_param
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from backends.control.admin_tokens import digest_of_token, find_token, is_token_like
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.saved_views import INSTALLATION
from backends.control.user_sessions import find_session, is_session_like
from backends.web.replies import error_reply
from contracts.control import Role
from contracts.errors import AuthenticationFailed, ControlUnavailable, NotFound, PermissionDenied, TollkeeperError
from gateway.control.permissions import OPEN_PATHS, ScopedRole, is_allowed

_OWNER_NAME: Final = "admin"
_GUARDED: Final = "/v1/"
_OWNER_IN_SCOPE: Final = "tollkeeper.bearer"

bearer = HTTPBearer(
    auto_error=False,  # our error shape, not FastAPI's
    description="An admin token; the owner's is created at the first start",
)


@dataclass(frozen=True, slots=True)
class TokenOwner:
    """The owner of a token: the name for the audit log, the role, and the tenant or team to which it is restricted.

    `id` is the account's or the token's. `account_id` is the account to which either belongs, if any.
    """

    name: str
    role: Role
    tenant_id: str = ""
    team_id: str = ""
    id: str = INSTALLATION
    account_id: str = ""

    @property
    def scoped_role(self) -> ScopedRole:
        """Return the role and its scope, as the table of permissions has them."""
        return ScopedRole.of(self.role, self.tenant_id)


@dataclass(frozen=True, slots=True)
class Caller(Author):
    """The author of a request, with its role. `id` and `account_id` are the bearer's."""

    role: Role = Role.TEAM_LEAD
    id: str = INSTALLATION
    account_id: str = ""


class TokenBook:
    """Recognises tokens: the owner's by the digest in the installation's file, others from the database each time."""

    def __init__(self, owner_token: str, database: ControlDatabase, pepper: bytes) -> None:
        self._owner = digest_of_token(owner_token)
        self._database = database
        self._pepper = pepper

    def owner_of(self, presented: str | None, now: datetime) -> TokenOwner:
        """Return the owner of a token. Raises AuthenticationFailed if it is missing, unknown, revoked or expired, and
        ControlUnavailable; the owner's needs no database.
        """
        if presented is None:
            raise AuthenticationFailed(
                "no admin token; send `Authorization: Bearer <token>`", code="missing_admin_token"
            )
        if hmac.compare_digest(digest_of_token(presented), self._owner):
            return TokenOwner(_OWNER_NAME, Role.OWNER)
        if is_token_like(presented):
            with self._database.session() as session:
                token = find_token(session, presented, self._pepper, now)
                if token is not None:
                    name = f"{token.name} ({token.id})"
                    return TokenOwner(name, token.role, token.tenant_id, token.team_id, token.id, token.user_id)
        elif is_session_like(presented):
            with self._database.session() as session:
                found = find_session(session, presented, self._pepper, now)
                if found is not None:
                    account = found.account
                    user = account.user
                    return TokenOwner(user.email, account.role, account.tenant_id, account.team_id, user.id, user.id)
        raise AuthenticationFailed(
            "the admin token is wrong, expired or revoked; ask the owner of this installation for another",
            code="invalid_admin_token",
        )


class TokenGate:
    """ASGI middleware: requires an admin token before any of the body is read or parsed."""

    def __init__(self, app: ASGIApp, tokens: TokenBook) -> None:
        self.app = app
        self.tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(_GUARDED):
            scheme, token = get_authorization_scheme_param(Headers(scope=scope).get("authorization"))
            presented = token if token and scheme.lower() == "bearer" else None
            try:
                found = await run_in_threadpool(self.tokens.owner_of, presented, datetime.now(UTC))
            except TollkeeperError as error:
                await error_reply(error)(scope, receive, send)
                return
            except PoolTimeout:
                busy = ControlUnavailable("no connection to the control database came free in time; retry shortly")
                await error_reply(busy)(scope, receive, send)
                return
            scope[_OWNER_IN_SCOPE] = found
        await self.app(scope, receive, send)


async def check_permission(request: Request) -> None:
    """Check every route against the table of permissions, in addition to its own checks.

    Runs on the event loop, so that `/health` and `/ready` answer while a hung database blocks all threads. Raises
    AuthenticationFailed if no token was checked, PermissionDenied if its role may not do this, NotFound if the path
    names a tenant or team outside the token's scope.
    """
    path = request.scope["route"].path
    if path in OPEN_PATHS:
        return
    found = _owner_in(request)
    if not is_allowed(found.scoped_role, request.method, path):
        raise PermissionDenied(f"your role, {found.scoped_role.value}, may not {request.method} {request.url.path}")
    tenant, team = request.path_params.get("tenant"), request.path_params.get("team")
    if tenant is not None and found.tenant_id not in ("", tenant):
        raise NotFound(f"tenant {tenant!r} does not exist; `tollkeeper tenants list` shows those that do")
    if team is not None and found.team_id not in ("", team):
        raise NotFound(f"tenant {tenant!r} has no team {team!r}; `tollkeeper teams list` shows yours")


def require_caller(
    request: Request,
    presented: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)],  # only so that the API's page asks
    checked: Annotated[None, Depends(check_permission)],
) -> Caller:
    """Return the author of this request's change, if the table allows it. Raises as `check_permission` does."""
    found = _owner_in(request)
    address = request.client.host if request.client else ""
    return Caller(
        found.name,
        datetime.now(UTC),
        address,
        found.tenant_id,
        found.team_id,
        role=found.role,
        id=found.id,
        account_id=found.account_id,
    )


Admin = Annotated[Caller, Depends(require_caller)]


def _owner_in(request: Request) -> TokenOwner:
    found = request.scope.get(_OWNER_IN_SCOPE)
    if not isinstance(found, TokenOwner):
        raise AuthenticationFailed("no admin token; send `Authorization: Bearer <token>`", code="missing_admin_token")
    return found
