"""Limits and budgets that an author restricted to a tenant or team may see and change.

Authors may not change rules for the whole of their own scope: a tenant's administrator not those with level tenant,
and a team lead not those of the team.
"""

from sqlalchemy import ColumnElement, and_, or_, select
from sqlalchemy.orm import Session

from backends.control.changes import Author
from contracts.control import ApiKey, Budget, Limit
from contracts.errors import PermissionDenied


def visible_rules(table: type[Limit] | type[Budget], tenant_id: str, team_id: str) -> ColumnElement[bool]:
    """Return the SQL condition for visible rules: all of a tenant, or those of one team, its projects and its keys."""
    of_tenant = table.tenant_id == tenant_id
    if not team_id:
        return of_tenant
    keys = select(ApiKey.id).where(ApiKey.tenant_id == tenant_id, ApiKey.team_id == team_id)
    of_team = or_(
        and_(table.level == "team", table.subject == team_id),
        and_(table.level == "project", table.subject.startswith(f"{team_id}/", autoescape=True)),
        and_(table.level == "key", table.subject.in_(keys)),
    )
    return and_(of_tenant, of_team)


def refuse_beyond_bounds(session: Session, author: Author, level: str, subject: str) -> None:
    """Raise PermissionDenied if the author may not create, change or delete a rule of this level and subject."""
    if author.team_id:
        if not _is_within_team(session, author, level, subject):
            raise PermissionDenied(
                f"a lead of team {author.team_id!r} sets limits and budgets of the team's projects and keys, "
                f"not with level {level!r}{f' for {subject!r}' if subject else ''}; ask an administrator of the tenant"
            )
    elif author.tenant_id and level == "tenant":
        raise PermissionDenied(
            f"limits and budgets of the whole tenant {author.tenant_id!r} cannot be changed by its own administrators; "
            "ask an owner of the installation"
        )


def _is_within_team(session: Session, author: Author, level: str, subject: str) -> bool:
    if level == "project":
        return subject.partition("/")[0] == author.team_id
    key = session.get(ApiKey, subject) if level == "key" else None
    return key is not None and (key.tenant_id, key.team_id) == (author.tenant_id, author.team_id)
