"""Checks the scope of a limit or budget against the objects in the control database."""

from typing import cast

from sqlalchemy.orm import Session

from backends.control.organisation import get_tenant
from contracts.control import ApiKey, McpServer, Model, Project, Route, Team
from contracts.errors import ConfigurationError, InvalidRequest
from contracts.mcp.servers import SEPARATOR
from contracts.rules.limits import EACH, Level, Scope


def checked_scope(session: Session, tenant_id: str, level: str, subject: str, model: str) -> Scope:
    """Return the checked scope of a rule.

    Raises NotFound on an unknown tenant; InvalidRequest naming `level`, `subject` or `model` if the level is unknown,
    the subject does not have its level's form, or no object has that name.
    """
    get_tenant(session, tenant_id)
    try:
        # For a tenant or conversation, "*" and an empty subject mean the same: one form is stored.
        fits_all = level in ("tenant", "conversation") and subject == EACH
        scope = Scope(tenant_id, cast(Level, level), "" if fits_all else subject, model)
    except ConfigurationError as error:
        raise InvalidRequest(error.message, param=error.param) from error
    if scope.level == "tag" and scope.subject.startswith("="):
        raise InvalidRequest(f"subject is {subject!r}; a tag is named 'name=value' or 'name=*'", param="subject")
    _check_subject(session, scope)
    is_named = not model or session.get(Model, model) is not None or session.get(Route, model) is not None
    server, separator, _ = model.partition(SEPARATOR)
    if not is_named and (not separator or session.get(McpServer, server) is None):
        raise InvalidRequest(
            f"model is {model!r}, which is not a model, route or MCP tool here; leave it out for all models together",
            param="model",
        )
    return scope


def is_each(scope: Scope) -> bool:
    """Return whether every subject of the scope is counted separately."""
    return scope.subject == EACH or (scope.level == "tag" and scope.subject.endswith(f"={EACH}"))


def _check_subject(session: Session, scope: Scope) -> None:
    tenant, subject = scope.tenant, scope.subject
    if subject == EACH:
        return
    if scope.level == "team":
        is_known = session.get(Team, (tenant, subject)) is not None
    elif scope.level == "project":
        is_known = session.get(Project, (tenant, *subject.split("/"))) is not None
    elif scope.level == "key":
        key = session.get(ApiKey, subject)
        is_known = key is not None and key.tenant_id == tenant
    else:
        return  # users and tags are free text of callers
    if not is_known:
        raise InvalidRequest(
            f"subject is {subject!r}, but tenant {tenant!r} has no such {scope.level}; "
            f"name one that it has, or '*' to count every {scope.level} on its own",
            param="subject",
        )
