"""Alerts as plain values, as `tollkeeper alerts list --json` prints them."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from backends.control.alert_log import alert_facts, list_alerts
from contracts.control import Alert

AlertFacts = Mapping[str, Any]


def raised_alerts(
    session: Session, tenant: str | None = None, team: str | None = None, is_open: bool = True, limit: int = 100
) -> tuple[AlertFacts, ...]:
    """Return up to `limit` alerts, latest first, of all tenants, one tenant or one team; by default only open ones."""
    rows = list_alerts(session, tenant=tenant or "", team=team or "", is_open=is_open, limit=limit)
    return tuple(alert_facts(row) for row in rows)


def open_by_severity(session: Session, tenant: str | None = None, team: str | None = None) -> Mapping[str, int]:
    """Return the number of open alerts by severity (`page`, `ticket`), of all tenants, one tenant or one team."""
    wanted = select(Alert.severity, func.count()).where(Alert.resolved_at.is_(None)).group_by(Alert.severity)
    if tenant:
        wanted = wanted.where(Alert.tenant_id == tenant)
    if team:
        wanted = wanted.where(Alert.team_id == team)
    return {severity: count for severity, count in session.execute(wanted)}


def raised_alert(
    session: Session, alert_id: str, tenant: str | None = None, team: str | None = None
) -> AlertFacts | None:
    """Return one alert; `None` if it does not exist, or is not of the tenant and team, if these are given."""
    row = session.get(Alert, alert_id)
    if row is None or (tenant and row.tenant_id != tenant) or (team and row.team_id != team):
        return None
    return alert_facts(row)
