"""Tenants, teams and projects in the control database. Each function works in the caller's transaction."""

from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from backends.control.changes import Author, begin_change
from backends.control.row_names import row_name
from contracts.control import (
    AdminToken,
    ApiKey,
    BookAdjustment,
    BookEntry,
    BookPeriod,
    Project,
    RoleGrant,
    Team,
    Tenant,
)
from contracts.control.organisation import AUDIT_SETTING, CONTENT_SETTING
from contracts.errors import Conflict, NotFound

_SWITCHES: Final = (CONTENT_SETTING, AUDIT_SETTING)  # of a tenant, in its settings


@dataclass(frozen=True, slots=True)
class TenantChange:
    """New values for a tenant; `None` leaves one as it is."""

    name: str | None = None
    time_zone: str | None = None
    weight: int | None = None
    is_active: bool | None = None
    keeps_content: bool | None = None
    audits_requests: bool | None = None


def create_tenant(
    session: Session, author: Author, tenant_id: str, name: str, *, time_zone: str = "UTC", weight: int = 1
) -> Tenant:
    """Add a tenant. Raises Conflict if the id is in use."""
    begin_change(session, author, "tenant.create", tenant_id, {"name": name, "time_zone": time_zone, "weight": weight})
    if session.get(Tenant, tenant_id) is not None:
        raise Conflict(f"tenant {tenant_id!r} exists already; choose another id", param="id")
    tenant = Tenant(
        id=tenant_id,
        name=name,
        time_zone=time_zone,
        weight=weight,
        is_active=True,
        settings={},
        created_at=author.at,
    )
    session.add(tenant)
    session.flush()
    return tenant


def list_tenants(session: Session, *, after: str = "", limit: int = 100, only: str = "") -> list[Tenant]:
    """Return up to `limit` tenants whose ids sort after `after`, in order; only the tenant `only` if it is named."""
    wanted = select(Tenant).where(Tenant.id > after).order_by(Tenant.id).limit(limit)
    return list(session.scalars(wanted.where(Tenant.id == only) if only else wanted))


def get_tenant(session: Session, tenant_id: str) -> Tenant:
    """Return a tenant. Raises NotFound."""
    tenant = session.get(Tenant, tenant_id)
    if tenant is None:
        raise NotFound(
            f"tenant {tenant_id!r} does not exist; `tollkeeper tenants list` shows those that do",
            rows=[row_name(Tenant, tenant_id)],
        )
    return tenant


def check_reach(session: Session, author: Author, tenant: str) -> None:
    """Raise NotFound unless a tenant exists (empty: all tenants) and the author may write for it."""
    if author.tenant_id not in ("", tenant):
        raise NotFound(f"tenant {tenant!r} is not yours; name {author.tenant_id!r} in `tenant`", param="tenant")
    if tenant:
        get_tenant(session, tenant)


def update_tenant(session: Session, author: Author, tenant_id: str, change: TenantChange) -> Tenant:
    """Change a tenant. An inactive one keeps its rows, but all its keys are refused.

    Raises NotFound, and Conflict on another time zone if months are closed or costs were corrected in the current one.
    """
    values = {
        name: value
        for name in ("name", "time_zone", "weight", "is_active", *_SWITCHES)
        if (value := getattr(change, name)) is not None
    }
    entry = begin_change(session, author, "tenant.update", tenant_id)
    tenant = get_tenant(session, tenant_id)
    if values.get("time_zone", tenant.time_zone) != tenant.time_zone:
        _refuse_booked(session, tenant)
    entry.detail = {"before": {name: getattr(tenant, name) for name in values}, "after": dict(values)}
    switched: dict[str, object] = {name: values.pop(name) for name in _SWITCHES if name in values}
    if switched:
        tenant.settings = {**tenant.settings, **switched}
    for name, value in values.items():
        setattr(tenant, name, value)
    session.flush()
    return tenant


def _refuse_booked(session: Session, tenant: Tenant) -> None:
    """Raise Conflict if a tenant has closed months or corrected costs, whose bounds another time zone would move."""
    closed = select(BookPeriod.month).where(BookPeriod.tenant_id == tenant.id, BookPeriod.state == "closed")
    month = session.scalar(closed.order_by(BookPeriod.month.desc()).limit(1))
    undone = select(BookAdjustment.reverses).where(
        BookAdjustment.reverses.is_not(None), BookAdjustment.state == "booked"
    )
    standing = (
        select(BookAdjustment.id)
        .join(BookEntry)
        .where(
            BookEntry.tenant_id == tenant.id,
            BookAdjustment.state != "rejected",
            BookAdjustment.kind != "reversal",
            BookAdjustment.id.not_in(undone),
        )
    )
    adjustment = session.scalar(standing.limit(1))
    if month is None and adjustment is None:
        return
    what = f"{month} is closed" if month is not None else f"{adjustment} is booked"
    raise Conflict(
        f"the time zone of {tenant.id} stays {tenant.time_zone}: {what} by its calendar, and days and months of "
        "another zone are others. Reopen its closed months and reverse its corrections first (`tollkeeper books "
        "periods`, `adjustments`), or make a new tenant",
        param="time_zone",
    )


def create_team(session: Session, author: Author, tenant_id: str, team_id: str, name: str) -> Team:
    """Add a team to a tenant. Raises NotFound or Conflict."""
    begin_change(session, author, "team.create", f"{tenant_id}/{team_id}", {"name": name})
    get_tenant(session, tenant_id)
    if session.get(Team, (tenant_id, team_id)) is not None:
        raise Conflict(f"team {team_id!r} of tenant {tenant_id!r} exists already; choose another id", param="id")
    team = Team(tenant_id=tenant_id, id=team_id, name=name, created_at=author.at)
    session.add(team)
    session.flush()
    return team


def list_teams(session: Session, tenant_id: str, *, after: str = "", limit: int = 100, only: str = "") -> list[Team]:
    """Return up to `limit` teams of a tenant after an id; only the team `only` if it is named.

    Raises NotFound if the tenant does not exist.
    """
    get_tenant(session, tenant_id)
    wanted = select(Team).where(Team.tenant_id == tenant_id, Team.id > after).order_by(Team.id).limit(limit)
    return list(session.scalars(wanted.where(Team.id == only) if only else wanted))


def get_team(session: Session, tenant_id: str, team_id: str) -> Team:
    """Return a team. Raises NotFound."""
    get_tenant(session, tenant_id)
    team = session.get(Team, (tenant_id, team_id))
    if team is None:
        raise NotFound(
            f"tenant {tenant_id!r} has no team {team_id!r}; `tollkeeper teams list --tenant {tenant_id}` shows them",
            rows=[row_name(Team, tenant_id, team_id)],
        )
    return team


def rename_team(session: Session, author: Author, tenant_id: str, team_id: str, name: str) -> Team:
    """Rename a team; its id stays. Raises NotFound."""
    begin_change(session, author, "team.update", f"{tenant_id}/{team_id}", {"name": name})
    team = get_team(session, tenant_id, team_id)
    team.name = name
    session.flush()
    return team


def delete_team(session: Session, author: Author, tenant_id: str, team_id: str) -> None:
    """Remove a team and its projects. Raises Conflict while keys of it are in use, or users or tokens bound to it."""
    begin_change(session, author, "team.delete", f"{tenant_id}/{team_id}")
    team = get_team(session, tenant_id, team_id)
    of_team = (ApiKey.tenant_id == tenant_id, ApiKey.team_id == team_id)
    what = f"team {team_id!r} of tenant {tenant_id!r}"
    _refuse_while_keys(session, what, *of_team)
    # They would apply to a later team with the same id.
    led = select(RoleGrant.user_id).where(RoleGrant.tenant_id == tenant_id, RoleGrant.team_id == team_id)
    if (user := session.scalars(led.limit(1)).first()) is not None:
        raise Conflict(f"{what} has accounts bound to it, {user} for one; remove them or give them another role first")
    bound = (AdminToken.tenant_id == tenant_id, AdminToken.team_id == team_id, AdminToken.revoked_at.is_(None))
    if (token := session.scalars(select(AdminToken.id).where(*bound).limit(1)).first()) is not None:
        raise Conflict(f"{what} has admin tokens bound to it, {token} for one; revoke them first")
    session.delete(team)
    session.flush()


def create_project(
    session: Session, author: Author, tenant_id: str, team_id: str, project_id: str, name: str
) -> Project:
    """Add a project to a team. Raises NotFound or Conflict."""
    begin_change(session, author, "project.create", f"{tenant_id}/{team_id}/{project_id}", {"name": name})
    get_team(session, tenant_id, team_id)
    if session.get(Project, (tenant_id, team_id, project_id)) is not None:
        raise Conflict(f"project {project_id!r} of team {team_id!r} exists already; choose another id", param="id")
    project = Project(tenant_id=tenant_id, team_id=team_id, id=project_id, name=name, created_at=author.at)
    session.add(project)
    session.flush()
    return project


def list_projects(
    session: Session, tenant_id: str, team_id: str, *, after: str = "", limit: int = 100
) -> list[Project]:
    """Return up to `limit` projects of a team after an id. Raises NotFound if the team does not exist."""
    get_team(session, tenant_id, team_id)
    of_team = (Project.tenant_id == tenant_id, Project.team_id == team_id, Project.id > after)
    return list(session.scalars(select(Project).where(*of_team).order_by(Project.id).limit(limit)))


def get_project(session: Session, tenant_id: str, team_id: str, project_id: str) -> Project:
    """Return a project. Raises NotFound."""
    get_team(session, tenant_id, team_id)
    project = session.get(Project, (tenant_id, team_id, project_id))
    if project is None:
        raise NotFound(
            f"team {team_id!r} of tenant {tenant_id!r} has no project {project_id!r}; "
            f"`tollkeeper projects list --tenant {tenant_id}` shows them",
            rows=[row_name(Project, tenant_id, team_id, project_id)],
        )
    return project


def rename_project(
    session: Session, author: Author, tenant_id: str, team_id: str, project_id: str, name: str
) -> Project:
    """Rename a project; its id stays. Raises NotFound."""
    begin_change(session, author, "project.update", f"{tenant_id}/{team_id}/{project_id}", {"name": name})
    project = get_project(session, tenant_id, team_id, project_id)
    project.name = name
    session.flush()
    return project


def delete_project(session: Session, author: Author, tenant_id: str, team_id: str, project_id: str) -> None:
    """Remove a project. Raises Conflict while keys of it are in use."""
    begin_change(session, author, "project.delete", f"{tenant_id}/{team_id}/{project_id}")
    project = get_project(session, tenant_id, team_id, project_id)
    of_project = (ApiKey.tenant_id == tenant_id, ApiKey.team_id == team_id, ApiKey.project_id == project_id)
    _refuse_while_keys(session, f"project {project_id!r} of team {team_id!r}", *of_project)
    session.delete(project)
    session.flush()


def _refuse_while_keys(session: Session, what: str, *of_it: ColumnElement[bool]) -> None:
    in_use = session.scalars(select(ApiKey.id).where(*of_it, ApiKey.revoked_at.is_(None)).limit(1)).first()
    if in_use is not None:
        raise Conflict(f"{what} has keys in use, {in_use} for one; revoke them first")
