"""API keys in the control database: made, listed, revoked. Of the secret only its digest is kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from backends.control.changes import Author, begin_change
from backends.control.organisation import get_project, get_team, get_tenant
from contracts.control import ApiKey, Model, Route
from contracts.errors import Conflict, InvalidRequest, NotFound
from contracts.keys import digest_of, hint_of, is_well_formed, new_key_id
from contracts.moments import unix_ns


@dataclass(frozen=True, slots=True)
class KeyRequest:
    """What a new key shall be. `models` and `endpoints` are what it may use, `None` meaning all."""

    tenant_id: str
    name: str
    team_id: str = ""
    project_id: str = ""
    expires_at: datetime | None = None
    models: Sequence[str] | None = None
    endpoints: Sequence[str] | None = None
    is_service_account: bool = False

    def scopes(self) -> dict[str, object]:
        """Give the scopes as the table keeps them: only those that restrict."""
        stated = {"models": self.models, "endpoints": self.endpoints}
        return {name: sorted(set(allowed)) for name, allowed in stated.items() if allowed is not None}


def create_key(session: Session, author: Author, wanted: KeyRequest, secret: str, pepper: bytes) -> ApiKey:
    """Register a key under the digest of its secret, which the caller shows once and forgets.

    Raises InvalidRequest on a secret that is not of a key's form, an end in the past, a project without its
    team or an unknown model; NotFound on an unknown tenant, team or project; Conflict on an inactive tenant or
    a secret already in use.
    """
    if not is_well_formed(secret):
        raise InvalidRequest("a key is `tk-` and 43 URL-safe characters; let the control plane make it", param="key")
    key_id = new_key_id(unix_ns(author.at))
    detail: dict[str, object] = {"name": wanted.name, "hint": hint_of(secret), "scopes": wanted.scopes()}
    begin_change(session, author, "key.create", f"{wanted.tenant_id}/{key_id}", detail)
    _check_owner(session, wanted)
    _check_scopes(session, wanted)
    if wanted.expires_at is not None and wanted.expires_at <= author.at:
        moment = wanted.expires_at.isoformat()
        raise InvalidRequest(f"expires_at is {moment}, which is past; name a later moment", param="expires_at")
    digest = digest_of(secret, pepper).hex()
    if session.scalar(select(ApiKey.id).where(ApiKey.digest == digest)) is not None:
        raise Conflict("this key is registered already; let the control plane make a new one", param="key")
    key = ApiKey(
        id=key_id,
        tenant_id=wanted.tenant_id,
        team_id=wanted.team_id,
        project_id=wanted.project_id,
        name=wanted.name,
        digest=digest,
        hint=hint_of(secret),
        is_service_account=wanted.is_service_account,
        scopes=wanted.scopes(),
        created_at=author.at,
        expires_at=wanted.expires_at,
    )
    session.add(key)
    session.flush()
    return key


def list_keys(session: Session, tenant_id: str, *, after: str = "", limit: int = 100) -> list[ApiKey]:
    """Give up to `limit` keys of a tenant, revoked ones too, oldest first. Raises NotFound on the tenant."""
    get_tenant(session, tenant_id)
    wanted = select(ApiKey).where(ApiKey.tenant_id == tenant_id, ApiKey.id > after).order_by(ApiKey.id).limit(limit)
    return list(session.scalars(wanted))


def get_key(session: Session, tenant_id: str, key_id: str) -> ApiKey:
    """Give a key of this tenant. Raises NotFound, also for a key of another tenant."""
    get_tenant(session, tenant_id)
    key = session.get(ApiKey, key_id)
    if key is None or key.tenant_id != tenant_id:
        raise NotFound(f"tenant {tenant_id!r} has no key {key_id!r}")
    return key


def revoke_key(session: Session, author: Author, tenant_id: str, key_id: str) -> ApiKey:
    """End a key at once, for good. Revoking a revoked key changes nothing: the first moment stands."""
    begin_change(session, author, "key.revoke", f"{tenant_id}/{key_id}")
    key = get_key(session, tenant_id, key_id)
    if key.revoked_at is None:
        key.revoked_at = author.at
    session.flush()
    return key


def expire_key(session: Session, author: Author, tenant_id: str, key_id: str, expires_at: datetime) -> ApiKey:
    """Set the moment from which a key is refused, such as the end of a rotation's overlap.

    Raises Conflict on a revoked key, InvalidRequest on a moment already past.
    """
    begin_change(session, author, "key.expire", f"{tenant_id}/{key_id}", {"expires_at": expires_at.isoformat()})
    key = get_key(session, tenant_id, key_id)
    if key.revoked_at is not None:
        raise Conflict(f"key {key_id!r} was revoked at {key.revoked_at.isoformat()}; it cannot expire later")
    if expires_at <= author.at:
        raise InvalidRequest(
            f"expires_at is {expires_at.isoformat()}, which is past; revoke the key to end it now", param="expires_at"
        )
    key.expires_at = expires_at
    session.flush()
    return key


def _check_owner(session: Session, wanted: KeyRequest) -> None:
    tenant = get_tenant(session, wanted.tenant_id)
    if not tenant.is_active:
        raise Conflict(f"tenant {tenant.id!r} is not active; activate it before making keys")
    if wanted.project_id and not wanted.team_id:
        raise InvalidRequest(f"project {wanted.project_id!r} needs its team; name it in `team`", param="team")
    if wanted.project_id:
        get_project(session, wanted.tenant_id, wanted.team_id, wanted.project_id)
    elif wanted.team_id:
        get_team(session, wanted.tenant_id, wanted.team_id)


def _check_scopes(session: Session, wanted: KeyRequest) -> None:
    for scope, allowed in (("models", wanted.models), ("endpoints", wanted.endpoints)):
        if allowed is not None and not allowed:
            raise InvalidRequest(f"{scope} is empty: the key could use nothing; leave it out for all", param=scope)
    for model in wanted.models or ():
        if session.get(Model, model) is None and session.get(Route, model) is None:
            raise InvalidRequest(f"models names {model!r}, which is neither a model nor a route here", param="models")
