"""Authenticates callers (admin tokens, API keys) and determines the tenants and teams they may see."""

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from analytics.access_scope import AccessScope
from backends.control.admin_tokens import digest_of_token, find_token, is_token_like
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.key_owners import find_key
from backends.secrets.secret_files import SecretFiles
from contracts.access.keys import is_well_formed
from contracts.control import Role
from contracts.errors import AuthenticationFailed, PermissionDenied
from contracts.recording.moments import utc_now

# Developers see only their own keys' usage, at the control plane; directory tokens see nothing.
_KEPT_OUT: Final = (Role.DEVELOPER, Role.DIRECTORY)
_BOOKKEEPERS: Final = (Role.OWNER, Role.ADMIN, Role.FINANCE)
BEARER: Final = HTTPBearer(auto_error=False, description="An admin token, or an application's key")


@dataclass(frozen=True, slots=True)
class Caller:
    """The authenticated caller. `tenant` and `team` are `None` if all may be seen; `key_id` is "" for an admin token,
    `role` is `None` for an API key. `is_personal`: the key is one that a person created for themselves.
    """

    name: str
    tenant: str | None = None
    team: str | None = None
    key_id: str = ""
    role: Role | None = None
    is_personal: bool = False

    @property
    def access(self) -> AccessScope:
        """Return the tenant and team that the caller's queries are restricted to."""
        return AccessScope(self.tenant, self.team)

    def narrowed(self, tenant: str | None, team: str | None = None) -> tuple[str | None, str | None]:
        """Return the tenant and team that restrict a query. Raises NotFound if the caller may not see them."""
        return self.access.narrowed(tenant, team)

    def require_no_team(self) -> None:
        """Raise PermissionDenied if the caller may see only one team, because the data is not stored by team."""
        self.access.require_no_team()


class CallerBook:
    """Looks up the owner of a token or key. The installation's admin token is read from its file."""

    def __init__(self, database: ControlDatabase, secrets: SecretFiles, now: Callable[[], datetime]) -> None:
        self._database = database
        self._secrets = secrets
        self._now = now

    def caller_of(self, presented: str | None) -> Caller:
        """Return the caller of a token or key. Raises AuthenticationFailed if missing, unknown, revoked or expired."""
        if presented is None:
            raise AuthenticationFailed("no token; send `Authorization: Bearer <token>`", code="missing_admin_token")
        owner, pepper = self._secrets.get("admin_token"), (self._secrets.get("key_pepper") or "").encode()
        if owner is not None and hmac.compare_digest(digest_of_token(presented), digest_of_token(owner)):
            return Caller("admin", role=Role.OWNER)
        if is_token_like(presented):
            with self._database.session() as session:
                token = find_token(session, presented, pepper, self._now())
                if token is not None:
                    bounds = (token.tenant_id or None, token.team_id or None)
                    return Caller(f"{token.name} ({token.id})", *bounds, role=token.role)
        elif is_well_formed(presented):
            with self._database.session() as session:
                key = find_key(session, presented, pepper, self._now())
                if key is not None:
                    return Caller(key.id, key.tenant_id, key.team_id or None, key.id, is_personal=bool(key.user_id))
        raise AuthenticationFailed("the token or key is wrong, expired or revoked", code="invalid_admin_token")


def anybody(request: Request, presented: Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)]) -> Caller:
    """Return the caller, for endpoints that applications and people may use.

    Raises AuthenticationFailed, and PermissionDenied for a role without access to reports.
    """
    book: CallerBook = request.app.state.callers
    caller = book.caller_of(None if presented is None else presented.credentials)
    if caller.role is not None and caller.role in _KEPT_OUT:
        raise PermissionDenied(f"the role {caller.role.value!r} may not read reports; ask for finance or team_lead")
    return caller


def reader(caller: Annotated[Caller, Depends(anybody)]) -> Caller:
    """Return a caller who may read reports. Raises PermissionDenied for keys without a team and for personal keys.

    A key without a team would give an application access to its whole tenant's data. Personal keys show only the
    person's own usage, at the control plane.
    """
    if caller.is_personal:
        raise PermissionDenied("a personal key cannot read reports; the dashboard's page My keys shows its usage")
    if caller.key_id and caller.team is None:
        raise PermissionDenied("this key belongs to no team; use an admin token or a team's key")
    return caller


def bookkeeper(request: Request, caller: Annotated[Caller, Depends(anybody)]) -> Author:
    """Return the author of a change to the books. Raises PermissionDenied unless the caller is owner, admin or finance
    of the whole installation."""
    if caller.role not in _BOOKKEEPERS or caller.tenant is not None:
        raise PermissionDenied(
            "your role may not change corrections, closed months or invoices; owner, admin and finance of the whole "
            "installation may"
        )
    return Author(caller.name, utc_now(), request.client.host if request.client else "")


Anybody = Annotated[Caller, Depends(anybody)]
Reader = Annotated[Caller, Depends(reader)]
Bookkeeper = Annotated[Author, Depends(bookkeeper)]
