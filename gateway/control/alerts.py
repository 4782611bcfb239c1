"""Alerts over HTTP: list open and past ones, and acknowledge them."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from backends.control.alert_log import acknowledge_alert, alert_facts, list_alerts
from gateway.control.access import Admin
from gateway.control.fields import Database, Page, Wanted, page_of

router = APIRouter(prefix="/v1/alerts", tags=["alerts"])

AlertPath = Annotated[str, Path(max_length=63, description="The alert's id, `alt_...`")]
IsOpen = Annotated[bool, Query(alias="open", description="Only open alerts")]


class AlertOut(BaseModel):
    """An alert. `facts` are plain values by name, money as decimal text."""

    id: str
    rule: str
    kind: str
    tenant: str | None
    team: str | None
    fingerprint: str = Field(description="Subject within its rule; silences match its beginning")
    severity: str
    summary: str
    facts: dict[str, Any]
    opened_at: datetime
    resolved_at: datetime | None
    is_silenced: bool
    acknowledged_at: datetime | None
    acknowledged_by: str | None = Field(description="The token's name")


@router.get("", summary="List alerts, latest first")
def list_all(wanted: Wanted, author: Admin, database: Database, is_open: IsOpen = False) -> Page[AlertOut]:
    """Limited to the caller's tenant, or team."""
    with database.session() as session:
        rows = list_alerts(
            session,
            tenant=author.tenant_id,
            team=author.team_id,
            is_open=is_open,
            before=wanted.after,
            limit=wanted.limit + 1,
        )
        return page_of(rows, wanted, lambda row: AlertOut.model_validate(alert_facts(row)))


@router.post("/{alert_id}/acknowledge", summary="Acknowledge an alert")
def acknowledge(alert_id: AlertPath, author: Admin, database: Database) -> AlertOut:
    """The first acknowledgement stays. The alert stays open until its condition ends."""
    with database.session() as session:
        return AlertOut.model_validate(alert_facts(acknowledge_alert(session, author, alert_id)))
