"""Teams over HTTP: groups within a tenant."""

from datetime import datetime

from fastapi import APIRouter

from backends.control import organisation
from gateway.control.access import Admin
from gateway.control.fields import (
    Body,
    Database,
    Deleted,
    Name,
    Page,
    Resource,
    Slug,
    TeamPath,
    TenantPath,
    Wanted,
    page_of,
)

router = APIRouter(prefix="/v1/tenants/{tenant}/teams", tags=["teams"])


class TeamBody(Body):
    """A new team."""

    id: Slug
    name: Name


class TeamPatch(Body):
    """Fields to change."""

    name: Name


class TeamOut(Resource):
    """A team."""

    tenant_id: str
    id: str
    name: str
    created_at: datetime


@router.post("", status_code=201, summary="Create a team")
def create(tenant: TenantPath, body: TeamBody, author: Admin, database: Database) -> TeamOut:
    with database.session() as session:
        return TeamOut.model_validate(organisation.create_team(session, author, tenant, body.id, body.name))


@router.get("", summary="List a tenant's teams")
def list_all(tenant: TenantPath, wanted: Wanted, author: Admin, database: Database) -> Page[TeamOut]:
    with database.session() as session:
        limit, only = wanted.limit + 1, author.team_id
        rows = organisation.list_teams(session, tenant, after=wanted.after, limit=limit, only=only)
        return page_of(rows, wanted, TeamOut.model_validate)


@router.get("/{team}", summary="Get a team")
def get(tenant: TenantPath, team: TeamPath, author: Admin, database: Database) -> TeamOut:
    with database.session() as session:
        return TeamOut.model_validate(organisation.get_team(session, tenant, team))


@router.patch("/{team}", summary="Rename a team")
def rename(tenant: TenantPath, team: TeamPath, body: TeamPatch, author: Admin, database: Database) -> TeamOut:
    with database.session() as session:
        return TeamOut.model_validate(organisation.rename_team(session, author, tenant, team, body.name))


@router.delete("/{team}", summary="Delete a team and its projects")
def delete(tenant: TenantPath, team: TeamPath, author: Admin, database: Database) -> Deleted:
    """Refused while keys of the team are in use."""
    with database.session() as session:
        organisation.delete_team(session, author, tenant, team)
    return Deleted(id=team)
