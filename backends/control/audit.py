"""Lists the audit log: who changed what, latest first."""

from typing import Final

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from contracts.control import AuditEntry

# Nouns of entries whose subject begins with a tenant. Other subjects may look alike, such as a model "acme/small".
_OF_TENANTS: Final = (
    *("tenant", "team", "project", "key", "limit", "budget", "token", "user", "session", "saved_view"),
    *("slo", "alert_rule", "alert_channel", "alert_silence", "alert"),
)


def list_audit(
    session: Session, *, tenant_id: str = "", action: str = "", before: int | None = None, limit: int = 100
) -> list[AuditEntry]:
    """Return up to `limit` entries with ids below `before`, latest first.

    `tenant_id` restricts them to changes within a tenant, `action` to one action ("key.revoke") or noun ("key").
    """
    wanted = select(AuditEntry).order_by(AuditEntry.id.desc()).limit(limit)
    if before is not None:
        wanted = wanted.where(AuditEntry.id < before)
    if tenant_id:
        of_tenant = or_(
            AuditEntry.subject == tenant_id, AuditEntry.subject.startswith(f"{tenant_id}/", autoescape=True)
        )
        wanted = wanted.where(of_tenant, or_(*(AuditEntry.action.startswith(f"{noun}.") for noun in _OF_TENANTS)))
    if action:
        of_noun = AuditEntry.action.startswith(f"{action}.", autoescape=True)
        wanted = wanted.where(or_(AuditEntry.action == action, of_noun))
    return [entry for entry in session.scalars(wanted) if entry is not None]  # a forged row may lack a number
