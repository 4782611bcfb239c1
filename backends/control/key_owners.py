"""Look up the owner of an API key, for processes that need this rarely."""

from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from contracts.access.keys import digest_of
from contracts.control import ApiKey, FormerSecret, Tenant


def find_key(session: Session, secret: str, pepper: bytes, now: datetime) -> ApiKey | None:
    """Return the valid key with this secret, including a rotated secret until it ends; `None` if there is none."""
    digest = digest_of(secret, pepper).hex()
    wanted = select(ApiKey).join(Tenant, Tenant.id == ApiKey.tenant_id).where(Tenant.is_active)
    key = session.scalars(wanted.where(ApiKey.digest == digest)).first()
    if key is None:
        former = (FormerSecret.digest == digest, FormerSecret.expires_at > now)
        key = session.scalars(wanted.join(FormerSecret, FormerSecret.key_id == ApiKey.id).where(*former)).first()
    if key is None or key.revoked_at is not None:
        return None
    return None if key.expires_at is not None and key.expires_at <= now else key
