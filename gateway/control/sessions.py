"""Signing in and out over HTTP: a password or ID token is exchanged for a session token."""

from datetime import UTC, datetime, timedelta
from threading import BoundedSemaphore
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Request
from fastapi.security import HTTPAuthorizationCredentials
from pydantic import Field, SecretStr
from starlette.concurrency import run_in_threadpool

from backends.control.accounts import Account, find_account
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.directory import sign_in_with_groups
from backends.control.user_sessions import begin_session, end_session, is_session_like, new_secret
from backends.secrets.passwords import MAX_LENGTH, is_password
from contracts.control import Role
from contracts.errors import AuthenticationFailed, InvalidRequest, LimitExceeded, PermissionDenied
from gateway.control.access import Admin, bearer
from gateway.control.fields import Body, Database, Resource
from gateway.control.identity_provider import IdentityProvider
from gateway.control.people import Person, SignInGroups
from gateway.control.sign_in_limit import SignInLimit
from gateway.identity.caller_address import TrustedProxies

router = APIRouter(tags=["sessions"])

# Each check of a password takes 64 MiB and a core for 50 ms: more at once would be a way to fill the machine.
_CHECKS: Final = BoundedSemaphore(2)
_PATIENCE_SECONDS: Final = 5.0
_WRONG: Final = "e-mail address or password is wrong, or the account is closed"


class SignInBody(Body):
    """Credentials. `address` is the browser's; it is trusted from a dashboard on this machine or in
    TOLLKEEPER_TRUSTED_PROXIES.
    """

    email: str = Field(max_length=320)
    password: SecretStr = Field(max_length=MAX_LENGTH)
    hours: int = Field(default=12, ge=1, le=720, description="Duration of the session in hours")
    address: str = Field(default="", max_length=64)


class IdTokenBody(Body):
    """The ID token that the identity provider gave to the dashboard."""

    id_token: SecretStr = Field(max_length=16_384)
    hours: int = Field(default=12, ge=1, le=720)
    address: str = Field(default="", max_length=64)


class SessionOut(Resource):
    """The current user, with role and scope (empty: the whole installation)."""

    name: str
    role: Role
    tenant_id: str
    team_id: str


class NewSessionOut(SessionOut):
    """A new session. `token` is shown once; send it as `Authorization: Bearer`."""

    token: str
    expires_at: datetime


@router.post("/sign-in", status_code=201, summary="Sign in with a password; the session's token is shown once")
def sign_in(body: SignInBody, database: Database, request: Request) -> NewSessionOut:
    """Per account and address five failures are answered at once, per address twenty, per account a hundred; further
    ones get status 429. The last bound does not apply to an address from which the account has signed in.
    """
    limit: SignInLimit = request.app.state.sign_in_limit
    email = body.email.strip().lower()
    address = _caller_of(request, body.address)
    limit.begin(email, address)
    with database.session() as session:
        account = find_account(session, email)
    if not _CHECKS.acquire(timeout=_PATIENCE_SECONDS):
        limit.take_back(email, address)
        raise LimitExceeded("too many people sign in at this moment; try again in a few seconds", retry_after_seconds=5)
    try:
        is_right = is_password(
            None if account is None else account.user.password_digest, body.password.get_secret_value()
        )
    finally:
        _CHECKS.release()
    if account is None or not is_right or not account.user.is_active:
        raise AuthenticationFailed(_WRONG, code="wrong_password")
    limit.succeed(email, address)
    return open_session(request, account, "password", address, body.hours)


@router.post("/sign-in/oidc", status_code=201, summary="Sign in with an ID token of the identity provider")
async def sign_in_by_provider(body: IdTokenBody, database: Database, request: Request) -> NewSessionOut:
    """The token's e-mail address must have an account, unless TOLLKEEPER_OIDC_TENANT creates a developer account.

    The provider states who a person is and to which groups they belong, not other roles.
    """
    provider: IdentityProvider | None = request.app.state.identity_provider
    if provider is None:
        raise InvalidRequest("no identity provider is set up; set TOLLKEEPER_OIDC_METADATA_URL and _CLIENT_ID")
    person = await provider.person_of(body.id_token.get_secret_value())
    return await run_in_threadpool(_open_for, person, body, database, request)


def _open_for(person: Person, body: IdTokenBody, database: ControlDatabase, request: Request) -> NewSessionOut:
    groups: SignInGroups = request.app.state.sign_in_groups
    if groups.tenant:
        author = Author("identity provider", datetime.now(UTC), _caller_of(request, body.address), groups.tenant)
        with database.session() as session:
            sign_in_with_groups(session, author, person.email, person.name, groups.teams_of(person))
    with database.session() as session:
        account = find_account(session, person.email)
    if account is None or not account.user.is_active:
        raise PermissionDenied(f"{person.email} has no open account here; who administers Tollkeeper makes one")
    return open_session(request, account, "oidc", _caller_of(request, body.address), body.hours)


@router.get("/v1/sessions/current", summary="Get the current user")
def current(author: Admin) -> SessionOut:
    """Works with any token."""
    return SessionOut(name=author.name, role=author.role, tenant_id=author.tenant_id, team_id=author.team_id)


@router.delete("/v1/sessions/current", summary="Sign out: end the session of this token at once")
def sign_out(
    author: Admin,
    database: Database,
    request: Request,
    presented: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)],
) -> SessionOut:
    """The token of a session ends for good; an admin token stays as it is."""
    if presented is not None and is_session_like(presented.credentials):
        pepper: bytes = request.app.state.key_pepper
        with database.session() as session:
            end_session(session, author, presented.credentials, pepper)
    return current(author)


def _caller_of(request: Request, stated: str) -> str:
    """Return the browser's address: as stated, if the sender is trusted, else where the request came from."""
    proxies: TrustedProxies = request.app.state.dashboards
    peer = request.client.host if request.client else ""
    return str(proxies.caller_of(peer, stated) or peer)


def open_session(request: Request, account: Account, method: str, address: str, hours: int) -> NewSessionOut:
    """Start a session for a user who has signed in."""
    pepper: bytes = request.app.state.key_pepper
    now, secret = datetime.now(UTC), new_secret()
    author = Author(account.user.email, now, address, account.tenant_id, account.team_id)
    with request.app.state.database.session() as session:
        begun = begin_session(session, author, account, method, secret, timedelta(hours=hours), pepper)
    return NewSessionOut(
        token=secret,
        expires_at=begun.expires_at,
        name=account.user.name or account.user.email,
        role=account.role,
        tenant_id=account.tenant_id,
        team_id=account.team_id,
    )
