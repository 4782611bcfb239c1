"""API keys in the control database: create, list, change, rotate, revoke. Only digests of secrets are stored.

A key is an identity with scopes; a rotation replaces its secret and keeps its id, so that limits, budgets and records
of the key continue.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from backends.control.changes import Author, begin_change, raise_keys_floor, read_revision
from backends.control.key_scopes import SCOPE_FIELDS, check_models, normal_scopes
from backends.control.organisation import get_project, get_team, get_tenant
from backends.control.row_names import row_name
from contracts.access.keys import digest_of, hint_of, is_well_formed, new_key_id
from contracts.control import ApiKey, FormerSecret
from contracts.errors import Conflict, InvalidRequest, NotFound
from contracts.recording.moments import unix_ns

MAX_OVERLAP_SECONDS: Final = 2_592_000  # 30 days
# How long a former secret's row is kept after its end. A gateway that was offline for longer must read all keys.
_KEPT_AFTER_END: Final = timedelta(days=1)
_CHANGEABLE: Final = ("name", "expires_at", *SCOPE_FIELDS)


@dataclass(frozen=True, slots=True)
class KeyRequest:
    """A new key. A scope that is `None` restricts nothing.

    A service account's key belongs to a program; it has the same permissions as others.
    """

    tenant_id: str
    name: str
    id: str = ""  # empty: generated
    team_id: str = ""
    project_id: str = ""
    expires_at: datetime | None = None
    models: Sequence[str] | None = None
    endpoints: Sequence[str] | None = None
    is_service_account: bool = False
    addresses: Sequence[str] | None = None
    priority: str | None = None
    user_id: str = ""  # the account that creates it for itself, and with which it ends
    max_reasoning_effort: str | None = None
    max_thinking_tokens: int | None = None

    def scopes(self) -> dict[str, object]:
        """Return the scopes in the form that the table stores. Raises InvalidRequest."""
        return normal_scopes({name: getattr(self, name) for name in SCOPE_FIELDS})


def create_key(session: Session, author: Author, wanted: KeyRequest, secret: str, pepper: bytes) -> ApiKey:
    """Register a key under the digest of its secret, which the caller shows once and does not store.

    Raises InvalidRequest on a secret without a key's format, an end in the past, a project without its team or an
    invalid scope; NotFound on an unknown tenant, team or project, and on another team than the author is restricted to;
    Conflict on an inactive tenant or a secret already in use.
    """
    _check_form(secret)
    key_id = wanted.id or new_key_id(unix_ns(author.at))
    scopes = wanted.scopes()
    detail: dict[str, object] = {"name": wanted.name, "hint": hint_of(secret), "scopes": scopes}
    begin_change(session, author, "key.create", f"{wanted.tenant_id}/{key_id}", detail)
    _check_owner(session, author, wanted)
    if wanted.id and session.get(ApiKey, wanted.id) is not None:
        raise Conflict(f"a key {wanted.id!r} exists already, perhaps revoked; choose another id", param="id")
    check_models(session, scopes)
    _check_end(author, wanted.expires_at)
    key = ApiKey(
        id=key_id,
        tenant_id=wanted.tenant_id,
        team_id=wanted.team_id,
        project_id=wanted.project_id,
        name=wanted.name,
        digest=_free_digest(session, secret, pepper),
        hint=hint_of(secret),
        is_service_account=wanted.is_service_account,
        user_id=wanted.user_id,
        scopes=scopes,
        created_at=author.at,
        expires_at=wanted.expires_at,
        changed_revision=read_revision(session),
    )
    session.add(key)
    session.flush()
    return key


def list_keys(
    session: Session,
    tenant_id: str,
    *,
    after: str = "",
    limit: int = 100,
    team_id: str = "",
    is_service_account: bool | None = None,
) -> list[ApiKey]:
    """Return up to `limit` keys of a tenant, including revoked ones, oldest first. Raises NotFound on the tenant.

    `team_id` restricts them to one team, if it is not empty; `is_service_account` to one kind.
    """
    get_tenant(session, tenant_id)
    wanted = select(ApiKey).where(ApiKey.tenant_id == tenant_id, ApiKey.id > after).order_by(ApiKey.id).limit(limit)
    if team_id:
        wanted = wanted.where(ApiKey.team_id == team_id)
    if is_service_account is not None:
        wanted = wanted.where(ApiKey.is_service_account.is_(is_service_account))
    return list(session.scalars(wanted))


def get_key(session: Session, tenant_id: str, key_id: str, *, team_id: str = "") -> ApiKey:
    """Return a key of this tenant. Raises NotFound, also for a key of another tenant or team."""
    get_tenant(session, tenant_id)
    key = session.get(ApiKey, key_id)
    if key is None or key.tenant_id != tenant_id or team_id not in ("", key.team_id):
        raise NotFound(f"tenant {tenant_id!r} has no key {key_id!r}", rows=[row_name(ApiKey, key_id)])
    return key


def list_former_secrets(session: Session, key_id: str) -> list[FormerSecret]:
    """Return the secrets that rotations replaced and that may still work, the last to end first."""
    of_key = select(FormerSecret).where(FormerSecret.key_id == key_id)
    return list(session.scalars(of_key.order_by(FormerSecret.expires_at.desc(), FormerSecret.digest)))


def revoke_key(session: Session, author: Author, tenant_id: str, key_id: str) -> ApiKey:
    """Revoke a key with all its secrets, permanently. Revoking a revoked key only writes an audit entry."""
    begin_change(session, author, "key.revoke", f"{tenant_id}/{key_id}")
    key = get_key(session, tenant_id, key_id, team_id=author.team_id)
    if key.revoked_at is None:
        key.revoked_at = author.at
        key.changed_revision = read_revision(session)
    session.flush()
    return key


def keys_of_user(session: Session, user_id: str) -> list[ApiKey]:
    """Return the keys that an account created for itself and that are not revoked, oldest first."""
    own = (ApiKey.user_id == user_id, ApiKey.revoked_at.is_(None))
    return list(session.scalars(select(ApiKey).where(*own).order_by(ApiKey.id))) if user_id else []


def revoke_keys_of(session: Session, user_id: str, at: datetime) -> list[str]:
    """Revoke the keys that an account created for itself, within the change that closes the account; return
    their ids.
    """
    ended = keys_of_user(session, user_id)
    for key in ended:
        key.revoked_at = at
        key.changed_revision = read_revision(session)
    session.flush()
    return [key.id for key in ended]


def update_key(session: Session, author: Author, tenant_id: str, key_id: str, changes: Mapping[str, Any]) -> ApiKey:
    """Change a key's name, expiry or scopes; `None` removes an expiry or a scope, absent fields stay.

    Raise Conflict on a revoked key, InvalidRequest on an expiry in the past, an invalid scope, or no fields. The audit
    log has the values before and after.
    """
    entry = begin_change(session, author, "key.update", f"{tenant_id}/{key_id}")
    key = get_key(session, tenant_id, key_id, team_id=author.team_id)
    _refuse_revoked(key)
    if not changes:
        raise InvalidRequest(f"nothing to change; name one of {', '.join(_CHANGEABLE)}")
    before = _described(key)
    if "expires_at" in changes:
        _check_end(author, changes["expires_at"])
        key.expires_at = changes["expires_at"]
    key.name = changes.get("name", key.name)
    key.scopes = normal_scopes({**key.scopes, **changes})
    if changes.get("models") is not None:
        check_models(session, key.scopes)
    key.changed_revision = read_revision(session)
    after = _described(key)
    changed = [name for name in _CHANGEABLE if before.get(name) != after.get(name)]
    entry.detail = {
        "before": {name: before.get(name) for name in changed},
        "after": {name: after.get(name) for name in changed},
    }
    session.flush()
    return key


def rotate_key(
    session: Session,
    author: Author,
    tenant_id: str,
    key_id: str,
    *,
    secret: str,
    pepper: bytes,
    overlap_seconds: int,
) -> ApiKey:
    """Replace a key's secret. The current one stays valid for `overlap_seconds`, and earlier ones no longer than that.

    Without overlap, every secret except the new one ends. Raises Conflict on a revoked or expired key, InvalidRequest
    on an overlap that is negative or above 30 days.
    """
    _check_form(secret)
    if not 0 <= overlap_seconds <= MAX_OVERLAP_SECONDS:
        raise InvalidRequest(
            f"overlap_seconds is {overlap_seconds}; it is 0 to {MAX_OVERLAP_SECONDS}", param="overlap_seconds"
        )
    detail: dict[str, object] = {"hint": hint_of(secret), "overlap_seconds": overlap_seconds}
    begin_change(session, author, "key.rotate", f"{tenant_id}/{key_id}", detail)
    key = get_key(session, tenant_id, key_id, team_id=author.team_id)
    _refuse_revoked(key)
    if key.expires_at is not None and key.expires_at <= author.at:
        raise Conflict(f"key {key_id!r} expired at {key.expires_at.isoformat()}; set a later expires_at first")
    digest, number = _free_digest(session, secret, pepper), read_revision(session)
    ends_at = author.at + timedelta(seconds=overlap_seconds)
    for former in list_former_secrets(session, key_id):
        if former.expires_at > ends_at:
            former.expires_at, former.revision = ends_at, number
    session.add(FormerSecret(digest=key.digest, key_id=key.id, hint=key.hint, expires_at=ends_at, revision=number))
    key.digest, key.hint, key.rotated_at, key.changed_revision = digest, hint_of(secret), author.at, number
    session.flush()
    _forget_long_ended(session, author)
    return key


def _forget_long_ended(session: Session, author: Author) -> None:
    long_ended = FormerSecret.expires_at <= author.at - _KEPT_AFTER_END
    last_told = session.scalar(select(func.max(FormerSecret.revision)).where(long_ended))
    if last_told is not None:
        raise_keys_floor(session, last_told)
        session.execute(delete(FormerSecret).where(long_ended))


def _described(key: ApiKey) -> dict[str, object]:
    expires_at = None if key.expires_at is None else key.expires_at.isoformat()
    return {"name": key.name, "expires_at": expires_at, **key.scopes}


def _check_form(secret: str) -> None:
    if not is_well_formed(secret):
        raise InvalidRequest("a key is `tk-` and 43 URL-safe characters; let the control plane make it", param="key")


def _check_end(author: Author, expires_at: datetime | None) -> None:
    if expires_at is not None and expires_at <= author.at:
        raise InvalidRequest(
            f"expires_at is {expires_at.isoformat()}, which is past; name a later moment, or revoke the key",
            param="expires_at",
        )


def _refuse_revoked(key: ApiKey) -> None:
    if key.revoked_at is not None:
        raise Conflict(f"key {key.id!r} was revoked at {key.revoked_at.isoformat()}; make a new one")


def _free_digest(session: Session, secret: str, pepper: bytes) -> str:
    digest = digest_of(secret, pepper).hex()
    current = session.scalar(select(ApiKey.id).where(ApiKey.digest == digest))
    if current is not None or session.get(FormerSecret, digest) is not None:
        raise Conflict("this key is registered already; let the control plane make a new one", param="key")
    return digest


def _check_owner(session: Session, author: Author, wanted: KeyRequest) -> None:
    tenant = get_tenant(session, wanted.tenant_id)
    if author.team_id not in ("", wanted.team_id):
        raise NotFound(f"tenant {tenant.id!r} has no team {wanted.team_id!r} that you lead; name yours in `team`")
    if not tenant.is_active:
        raise Conflict(f"tenant {tenant.id!r} is not active; activate it before making keys")
    if wanted.project_id and not wanted.team_id:
        raise InvalidRequest(f"project {wanted.project_id!r} needs its team; name it in `team`", param="team")
    if wanted.project_id:
        get_project(session, wanted.tenant_id, wanted.team_id, wanted.project_id)
    elif wanted.team_id:
        get_team(session, wanted.tenant_id, wanted.team_id)
