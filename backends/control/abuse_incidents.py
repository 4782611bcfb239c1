"""Incidents of abuse in the control database: written by gateways, read by people and by alerts."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, cast

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from algorithms.abuse.incident import Incident
from algorithms.abuse.spec import AbuseAction, AbuseKind
from backends.control.budget_states import insert_into
from backends.control.row_names import row_name
from contracts.control import AbuseIncident, Tenant
from contracts.errors import NotFound
from contracts.recording.moments import unix_ns, utc_moment

_CHUNK_ROWS: Final = 200
_GRACE: Final = timedelta(minutes=5)  # within this time a running gateway has reported the end of an incident
_OF_CALLERS: Final = ("networks", "user_agents")  # facts that may identify callers
_CHANGING: Final = (
    "action",
    "limit_count",
    "window_seconds",
    "peak",
    "sightings",
    "throttled",
    "last_at",
    "is_open",
    "facts",
)


def write_incidents(session: Session, incidents: Sequence[Incident]) -> None:
    """Write the state of incidents; newer states replace older ones."""
    insert: Any = insert_into(session, AbuseIncident)
    new = {name: insert.excluded[name] for name in _CHANGING}
    upsert = insert.on_conflict_do_update(index_elements=("id",), set_=new)
    for start in range(0, len(incidents), _CHUNK_ROWS):
        session.execute(upsert, [_row_of(each) for each in incidents[start : start + _CHUNK_ROWS]])


def of_tenants_that_exist(session: Session, incidents: Sequence[Incident]) -> list[Incident]:
    """Return the incidents of existing tenants: a gateway may still report incidents of an erased one for a while."""
    here = set(session.scalars(select(Tenant.id).where(Tenant.id.in_({each.tenant for each in incidents}))))
    return [each for each in incidents if each.tenant in here]


def list_incidents(
    session: Session,
    *,
    tenant: str = "",
    key_id: str = "",
    is_open: bool = False,
    now: datetime,
    before: str = "",
    limit: int = 100,
) -> list[Incident]:
    """Return up to `limit` incidents, latest start first; `before`: only those older than the one with this id.

    An open incident that was not reported for its window and five more minutes counts as ended: its gateway no longer
    runs.
    """
    wanted = select(AbuseIncident).order_by(AbuseIncident.id.desc())
    if tenant:
        wanted = wanted.where(AbuseIncident.tenant_id == tenant)
    if key_id:
        wanted = wanted.where(AbuseIncident.key_id == key_id)
    if is_open:
        wanted = wanted.where(AbuseIncident.is_open)
    if before:
        wanted = wanted.where(AbuseIncident.id < before)
    found = (_incident_of(row, now) for row in session.scalars(wanted.limit(limit)))
    return [incident for incident in found if incident.is_open or not is_open]


def get_incident(session: Session, incident_id: str, *, tenant: str = "", now: datetime) -> Incident:
    """Return an incident. Raises NotFound, also for one of another tenant than named."""
    row = session.get(AbuseIncident, incident_id)
    if row is None or tenant not in ("", row.tenant_id):
        raise NotFound(
            f"incident {incident_id!r} does not exist; `tollkeeper abuse list --all` shows those that do",
            rows=[row_name(AbuseIncident, incident_id)],
        )
    return _incident_of(row, now)


def forget_callers(session: Session, tenant_id: str) -> None:
    """Remove the networks and user agents of callers from a tenant's incidents; counts stay."""
    for row in session.scalars(select(AbuseIncident).where(AbuseIncident.tenant_id == tenant_id)):
        row.facts = {name: value for name, value in row.facts.items() if name not in _OF_CALLERS}


def forget_incidents(session: Session, before: datetime) -> None:
    """Remove incidents that were last seen before a time."""
    session.execute(
        delete(AbuseIncident).where(AbuseIncident.last_at < before), execution_options={"synchronize_session": False}
    )


def _row_of(incident: Incident) -> dict[str, object]:
    return {
        "id": incident.id,
        "gateway": incident.gateway,
        "tenant_id": incident.tenant,
        "team_id": incident.team,
        "key_id": incident.key_id,
        "kind": incident.kind,
        "action": incident.action,
        "limit_count": incident.limit,
        "window_seconds": incident.window_seconds,
        "peak": incident.peak,
        "sightings": incident.sightings,
        "throttled": incident.throttled,
        "first_at": utc_moment(incident.first_at_ns),
        "last_at": utc_moment(incident.last_at_ns),
        "is_open": incident.is_open,
        "facts": dict(incident.facts),
    }


def _incident_of(row: AbuseIncident, now: datetime) -> Incident:
    is_heard = now - row.last_at <= timedelta(seconds=row.window_seconds) + _GRACE
    return Incident(
        id=row.id,
        gateway=row.gateway,
        tenant=row.tenant_id,
        team=row.team_id,
        key_id=row.key_id,
        kind=cast(AbuseKind, row.kind),
        action=cast(AbuseAction, row.action),
        limit=row.limit_count,
        window_seconds=row.window_seconds,
        peak=row.peak,
        sightings=row.sightings,
        throttled=row.throttled,
        first_at_ns=unix_ns(row.first_at),
        last_at_ns=unix_ns(row.last_at),
        is_open=row.is_open and is_heard,
        facts=row.facts,
    )
