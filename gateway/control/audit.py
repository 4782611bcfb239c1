"""The audit trail over HTTP: who changed what, when and from where, latest first."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from backends.control.audit import list_audit
from contracts.errors import NotFound
from gateway.control.access import Admin
from gateway.control.fields import Database, Page, Resource

router = APIRouter(prefix="/v1/audit", tags=["audit"])


class AuditQuery(BaseModel):
    """Filter of audit entries."""

    after: int | None = Field(default=None, ge=1, lt=2**63, description="Return entries before this id")
    limit: int = Field(default=100, ge=1, le=1000, description="Maximum number of items")
    tenant: str = Field(default="", max_length=63, description="Only changes within this tenant")
    action: str = Field(
        default="", max_length=60, description="Only an action such as `key.revoke`, or all of a noun: `key`"
    )


class AuditOut(Resource):
    """One change."""

    id: int
    at: datetime
    actor: str
    action: str
    subject: str
    address: str
    detail: dict[str, object]


@router.get("", summary="List changes, latest first")
def list_all(wanted: Annotated[AuditQuery, Query()], author: Admin, database: Database) -> Page[AuditOut]:
    """When `has_more`, ask again with `after` set to the last item's id. A tenant's caller sees only that tenant's
    changes.
    """
    if author.tenant_id and wanted.tenant not in ("", author.tenant_id):
        raise NotFound(f"tenant {wanted.tenant!r} does not exist; `tollkeeper tenants list` shows those that do")
    tenant = author.tenant_id or wanted.tenant
    with database.session() as session:
        rows = list_audit(session, tenant_id=tenant, action=wanted.action, before=wanted.after, limit=wanted.limit + 1)
        shown = [AuditOut.model_validate(row) for row in rows[: wanted.limit]]
    return Page(data=shown, has_more=len(rows) > wanted.limit)
