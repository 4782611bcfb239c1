"""Tokens for the control plane's API: owner, scope and expiry. Only digests are stored."""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import and_, select
from sqlalchemy.orm import Session

from backends.control.changes import Author, begin_change
from backends.control.organisation import get_team, get_tenant
from backends.control.row_names import row_name
from backends.control.saved_views import delete_views_of
from contracts.access.keys import KEY_PREFIX, digest_of, hint_of, is_well_formed
from contracts.control import AdminToken, Role, RoleGrant, User
from contracts.errors import InvalidRequest, NotFound, PermissionDenied
from contracts.recording.ids import uuid7
from contracts.recording.moments import unix_ns

TOKEN_PREFIX: Final = "tk-admin-"
TOKEN_ID_PREFIX: Final = "tok_"
# Roles whose tokens each role may create and revoke: none above itself.
_GRANTS: Final[dict[Role, Collection[Role]]] = {
    Role.OWNER: tuple(Role),
    Role.ADMIN: (Role.ADMIN, Role.FINANCE, Role.TEAM_LEAD, Role.DEVELOPER, Role.DIRECTORY),
    Role.FINANCE: (),
    Role.TEAM_LEAD: (),
    Role.DEVELOPER: (),
    Role.DIRECTORY: (),
}
_OF_A_TENANT: Final = (Role.DEVELOPER, Role.DIRECTORY)
REVOKED: Final = "revoked"
# Each token with the current role of the account that created it; none if that was removed or is disabled.
_WITH_ACCOUNT: Final = (
    select(AdminToken, RoleGrant)
    .outerjoin(User, and_(User.id == AdminToken.user_id, User.is_active))
    .outerjoin(RoleGrant, RoleGrant.user_id == User.id)
)


@dataclass(frozen=True, slots=True)
class NewToken:
    """A new token. It applies to everything if `tenant_id` is empty, else to that tenant, or one team of it.

    `user_id` and `parent_id` are the account and the token that create it, if any; it ends with either.
    """

    name: str
    role: Role
    tenant_id: str = ""
    team_id: str = ""
    expires_at: datetime | None = None
    user_id: str = ""
    parent_id: str = ""


@dataclass(frozen=True, slots=True)
class ListedToken:
    """A token, and the reason why it is refused now; empty if it is valid."""

    token: AdminToken
    refused: str


def digest_of_token(token: str) -> bytes:
    """Return a digest for comparing tokens in constant time, whatever their lengths."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()


def is_token_like(secret: str) -> bool:
    """Return whether text has a token's format, so that other text needs no lookup."""
    return secret.startswith(TOKEN_PREFIX) and is_well_formed(KEY_PREFIX + secret.removeprefix(TOKEN_PREFIX))


def create_token(
    session: Session, author: Author, granted_by: Role, new: NewToken, secret: str, pepper: bytes
) -> AdminToken:
    """Register a token under the digest of its secret, which the caller shows once and does not store.

    It ends with its parent, unless an earlier time is stated. Raises PermissionDenied on a role above the author's own;
    InvalidRequest on an end in the past or after its parent's, or a role that does not match the tenant and team;
    NotFound on an unknown tenant or team, and on another tenant than the author is restricted to.
    """
    token_id = f"{TOKEN_ID_PREFIX}{uuid7(unix_ns(author.at)).hex}"
    entry = begin_change(session, author, "token.create", _subject(new.tenant_id, token_id))
    check_grant(granted_by, new.role)
    check_reach(session, author, new.role, new.tenant_id, new.team_id)
    if new.expires_at is not None and new.expires_at <= author.at:
        raise InvalidRequest(
            f"expires_at is {new.expires_at.isoformat()}, which is past; name a later moment", param="expires_at"
        )
    expires_at = _end_of(session, new)
    token = AdminToken(
        id=token_id,
        name=new.name,
        digest=digest_of(secret, pepper).hex(),
        hint=hint_of(secret),
        role=new.role,
        tenant_id=new.tenant_id,
        team_id=new.team_id,
        user_id=new.user_id,
        created_at=author.at,
        expires_at=expires_at,
        parent_id=new.parent_id,
    )
    shown_end = None if expires_at is None else expires_at.isoformat()
    entry.detail = {"name": new.name, "role": new.role.value, "team": new.team_id, "expires_at": shown_end}
    session.add(token)
    session.flush()
    return token


def list_tokens(
    session: Session, now: datetime, *, tenant_id: str = "", after: str = "", limit: int = 100
) -> list[ListedToken]:
    """Return up to `limit` tokens after an id, oldest first, including refused ones; of one tenant if it is
    not empty.
    """
    wanted = _WITH_ACCOUNT.where(AdminToken.id > after).order_by(AdminToken.id).limit(limit)
    if tenant_id:
        wanted = wanted.where(AdminToken.tenant_id == tenant_id)
    return [_listed(session, token, grant, now) for token, grant in session.execute(wanted)]


def get_token(session: Session, token_id: str, now: datetime, *, tenant_id: str = "") -> ListedToken:
    """Return a token. Raises NotFound, also if it belongs to another tenant."""
    found = session.execute(_WITH_ACCOUNT.where(AdminToken.id == token_id)).first()
    if found is None or tenant_id not in ("", found[0].tenant_id):
        raise NotFound(
            f"token {token_id!r} does not exist; `tollkeeper tokens list` shows those that do",
            rows=[row_name(AdminToken, token_id)],
        )
    return _listed(session, found[0], found[1], now)


def revoke_token(session: Session, author: Author, granted_by: Role, token_id: str) -> ListedToken:
    """Revoke a token permanently, and those that were created with it; an earlier revocation stays.

    Raises PermissionDenied as `create_token` does.
    """
    token = get_token(session, token_id, author.at, tenant_id=author.tenant_id).token
    entry = begin_change(session, author, "token.revoke", _subject(token.tenant_id, token_id))
    check_grant(granted_by, token.role)
    session.refresh(token)
    _revoke(session, token, author.at)
    with_it = _revoke_made_with(session, [token.id], author.at)
    if with_it:
        entry.detail = {"tokens": with_it}
    session.flush()
    return ListedToken(token, REVOKED)


def revoke_tokens_of(session: Session, user_id: str, at: datetime) -> Sequence[str]:
    """Revoke the tokens that an account created, within the change that removes the account; return their ids."""
    made = (AdminToken.user_id == user_id, AdminToken.revoked_at.is_(None))
    tokens = list(session.scalars(select(AdminToken).where(*made).order_by(AdminToken.id)))
    for token in tokens:
        _revoke(session, token, at)
    ended = [token.id for token in tokens]
    return ended + _revoke_made_with(session, ended, at)


def find_token(session: Session, secret: str, pepper: bytes, now: datetime) -> AdminToken | None:
    """Find the token of this secret; `None` if there is no valid one now."""
    digest = digest_of(secret, pepper).hex()
    found = session.execute(_WITH_ACCOUNT.where(AdminToken.digest == digest)).first()
    if found is None or _listed(session, found[0], found[1], now).refused:
        return None
    token: AdminToken = found[0]
    return token


def refusal_of(token: AdminToken, grant: RoleGrant | None, now: datetime) -> str:
    """Return why a token is refused; empty if it is valid. `grant` is the current role of its account, if that is
    enabled.
    """
    if token.revoked_at is not None:
        return REVOKED
    if token.expires_at is not None and token.expires_at <= now:
        return "expired"
    if not token.user_id:
        return ""
    if grant is None:
        return "its account is closed"
    covers = grant.tenant_id in ("", token.tenant_id) and grant.team_id in ("", token.team_id)
    return "" if covers and token.role in _GRANTS[grant.role] else "its account may no longer give it"


def _listed(session: Session, token: AdminToken, grant: RoleGrant | None, now: datetime) -> ListedToken:
    refused = refusal_of(token, grant, now)
    parent_id, seen = token.parent_id, {token.id}
    while parent_id and not refused and parent_id not in seen:
        seen.add(parent_id)
        parent = session.get(AdminToken, parent_id)
        # The parent's account need not be checked: it is the token's own.
        if parent is None or parent.revoked_at is not None:
            refused = "the token that made it is revoked"
        elif parent.expires_at is not None and parent.expires_at <= now:
            refused = "the token that made it has expired"
        else:
            parent_id = parent.parent_id
    return ListedToken(token, refused)


def _end_of(session: Session, new: NewToken) -> datetime | None:
    """Return when a new token ends: as stated, else with its parent. Raises InvalidRequest if it would outlive its
    parent.
    """
    parent = session.get(AdminToken, new.parent_id) if new.parent_id else None
    latest = None if parent is None else parent.expires_at
    if latest is not None and new.expires_at is not None and new.expires_at > latest:
        raise InvalidRequest(
            f"expires_at is {new.expires_at.isoformat()}, but the token that makes it ends at {latest.isoformat()}; "
            "name no later moment, or leave it out",
            param="expires_at",
        )
    return new.expires_at if new.expires_at is not None else latest


def _revoke_made_with(session: Session, parents: Sequence[str], at: datetime) -> list[str]:
    """Revoke the tokens that were created with these tokens, recursively; return their ids."""
    ended: list[str] = []
    seen = set(parents)
    while parents:
        made = select(AdminToken).where(AdminToken.parent_id.in_(parents)).order_by(AdminToken.id)
        children = [child for child in session.scalars(made) if child.id not in seen]
        for child in children:
            if child.revoked_at is None:
                _revoke(session, child, at)
                ended.append(child.id)
        parents = [child.id for child in children]
        seen.update(parents)
    return ended


def _revoke(session: Session, token: AdminToken, at: datetime) -> None:
    if token.revoked_at is None:
        token.revoked_at = at
        delete_views_of(session, token.id)


def _subject(tenant_id: str, token_id: str) -> str:
    return f"{tenant_id}/{token_id}" if tenant_id else token_id


def check_grant(granted_by: Role, role: Role) -> None:
    """Raise PermissionDenied if a role may not grant or remove another, since that is above it."""
    if role not in _GRANTS[granted_by]:
        raise PermissionDenied(f"the role {granted_by.value!r} may not give or take the role {role.value!r}")


def check_reach(session: Session, author: Author, role: Role, tenant_id: str, team_id: str) -> None:
    """Check that a role fits its scope (tenant, team), and that the author's scope includes it.

    Raises InvalidRequest if role and scope do not fit, NotFound on an unknown tenant or team, or on a tenant outside
    the author's scope.
    """
    if author.tenant_id not in ("", tenant_id):
        raise NotFound(f"tenant {tenant_id!r} is not yours; name {author.tenant_id!r} in `tenant`")
    if role is Role.OWNER and tenant_id:
        raise InvalidRequest("an owner reaches everything; leave `tenant` out", param="tenant")
    if role in _OF_A_TENANT and not tenant_id:
        raise InvalidRequest(f"the role {role.value!r} belongs to one tenant; name it in `tenant`", param="tenant")
    if role is Role.TEAM_LEAD and not team_id:
        raise InvalidRequest("a team lead needs `team`", param="team")
    if team_id and role not in (Role.TEAM_LEAD, Role.DEVELOPER):
        raise InvalidRequest(
            f"`team` is for the roles team_lead and developer, no other role's; {role.value!r} has none", param="team"
        )
    if team_id and not tenant_id:
        raise InvalidRequest(f"team {team_id!r} needs its tenant; name it in `tenant`", param="tenant")
    if tenant_id:
        get_tenant(session, tenant_id)
    if team_id:
        get_team(session, tenant_id, team_id)
