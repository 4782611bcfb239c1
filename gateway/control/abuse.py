"""Abuse incidents over HTTP: what the gateways detected, with explanations."""

from datetime import UTC, datetime
from typing import Annotated, Any, Self

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from algorithms.abuse.incident import Incident
from backends.control.abuse_incidents import get_incident, list_incidents
from contracts.recording.moments import utc_moment
from gateway.control.access import Admin
from gateway.control.fields import Database, Page, Wanted, page_of

router = APIRouter(prefix="/v1/abuse", tags=["abuse"])

IncidentPath = Annotated[str, Path(max_length=40, description="The incident's id")]
IsOpen = Annotated[bool, Query(alias="open", description="Only open ones")]
OfKey = Annotated[str, Query(alias="key", max_length=63, description="Only this key")]
OfTenant = Annotated[str, Query(alias="tenant", max_length=63, description="Only this tenant")]


class IncidentOut(BaseModel):
    """An incident: one key, one kind of abuse, from the first request above the limit to the last."""

    id: str
    tenant: str
    key: str = Field(description="The key's id")
    kind: str = Field(description="flood, probing, harvest, address_sharing or agent_sharing")
    action: str = Field(description="What the policy does: throttle or alert")
    summary: str
    limit: int
    window_seconds: int
    peak: int = Field(description="Highest count in one window")
    sightings: int = Field(description="Requests above the limit")
    throttled: int = Field(description="Of these, refused with status 429")
    first_at: datetime
    last_at: datetime
    is_open: bool
    gateway: str

    @classmethod
    def of(cls, incident: Incident) -> Self:
        """Convert an incident."""
        return cls(**shown(incident))


class ExplainedOut(IncidentOut):
    """An incident with its facts and their explanation, in sentences."""

    facts: dict[str, Any]
    explanation: list[str]

    @classmethod
    def of(cls, incident: Incident) -> Self:
        """Convert an incident and explain it."""
        return cls(**shown(incident), facts=dict(incident.facts), explanation=incident.explained())


@router.get("", summary="List incidents, latest first")
def list_all(
    wanted: Wanted, author: Admin, database: Database, is_open: IsOpen = False, key: OfKey = "", tenant: OfTenant = ""
) -> Page[IncidentOut]:
    """Limited to the caller's tenant, if the caller is bound to one."""
    with database.session() as session:
        found = list_incidents(
            session,
            tenant=author.tenant_id or tenant,
            key_id=key,
            is_open=is_open,
            now=datetime.now(UTC),
            before=wanted.after,
            limit=wanted.limit + 1,
        )
        return page_of(found, wanted, IncidentOut.of)


@router.get("/{incident_id}", summary="Explain an incident")
def explain(incident_id: IncidentPath, author: Admin, database: Database) -> ExplainedOut:
    with database.session() as session:
        return ExplainedOut.of(get_incident(session, incident_id, tenant=author.tenant_id, now=datetime.now(UTC)))


def shown(incident: Incident) -> dict[str, Any]:
    """Return the fields that both response formats share."""
    return {
        "id": incident.id,
        "tenant": incident.tenant,
        "key": incident.key_id,
        "kind": incident.kind,
        "action": incident.action,
        "summary": incident.summary,
        "limit": incident.limit,
        "window_seconds": incident.window_seconds,
        "peak": incident.peak,
        "sightings": incident.sightings,
        "throttled": incident.throttled,
        "first_at": utc_moment(incident.first_at_ns),
        "last_at": utc_moment(incident.last_at_ns),
        "is_open": incident.is_open,
        "gateway": incident.gateway,
    }
