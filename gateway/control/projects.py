"""Projects over HTTP: pieces of work of one team."""

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
    ProjectPath,
    Resource,
    Slug,
    TeamPath,
    TenantPath,
    Wanted,
    page_of,
)

router = APIRouter(prefix="/v1/tenants/{tenant}/teams/{team}/projects", tags=["projects"])


class ProjectBody(Body):
    """A new project."""

    id: Slug
    name: Name


class ProjectPatch(Body):
    """Fields to change."""

    name: Name


class ProjectOut(Resource):
    """A project."""

    tenant_id: str
    team_id: str
    id: str
    name: str
    created_at: datetime


@router.post("", status_code=201, summary="Create a project")
def create(tenant: TenantPath, team: TeamPath, body: ProjectBody, author: Admin, database: Database) -> ProjectOut:
    with database.session() as session:
        project = organisation.create_project(session, author, tenant, team, body.id, body.name)
        return ProjectOut.model_validate(project)


@router.get("", summary="List a team's projects")
def list_all(tenant: TenantPath, team: TeamPath, wanted: Wanted, author: Admin, database: Database) -> Page[ProjectOut]:
    with database.session() as session:
        rows = organisation.list_projects(session, tenant, team, after=wanted.after, limit=wanted.limit + 1)
        return page_of(rows, wanted, ProjectOut.model_validate)


@router.get("/{project}", summary="Get a project")
def get(tenant: TenantPath, team: TeamPath, project: ProjectPath, author: Admin, database: Database) -> ProjectOut:
    with database.session() as session:
        return ProjectOut.model_validate(organisation.get_project(session, tenant, team, project))


@router.patch("/{project}", summary="Rename a project")
def rename(
    tenant: TenantPath, team: TeamPath, project: ProjectPath, body: ProjectPatch, author: Admin, database: Database
) -> ProjectOut:
    with database.session() as session:
        renamed = organisation.rename_project(session, author, tenant, team, project, body.name)
        return ProjectOut.model_validate(renamed)


@router.delete("/{project}", summary="Delete a project")
def delete(tenant: TenantPath, team: TeamPath, project: ProjectPath, author: Admin, database: Database) -> Deleted:
    """Refused while keys of the project are in use."""
    with database.session() as session:
        organisation.delete_project(session, author, tenant, team, project)
    return Deleted(id=project)
