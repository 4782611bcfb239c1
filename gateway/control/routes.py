"""Routes over HTTP: names that applications ask for, and that lead to models."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Self

from fastapi import APIRouter, Path
from pydantic import Field, model_validator

from backends.control import routes
from backends.control.route_guard import read_serving, spec_of
from contracts.control import Route
from gateway.config.fields.route_fields import RouteFields
from gateway.control.access import Admin
from gateway.control.fields import Body, Database, Deleted, ModelId, Page, Resource, Wanted, page_of
from gateway.routing.routes.explanation import Explanation, RequestFields, explain

router = APIRouter(prefix="/v1/routes", tags=["routes"])

# A route's id may hold slashes, as a model's may, so it takes the rest of the path.
RoutePath = Annotated[str, Path(max_length=200, description="The route's id")]


class RouteBody(Body):
    """A new route. The models and routes that it names must exist."""

    id: ModelId
    rules: RouteFields


class RoutePatch(Body):
    """Fields to change; at least one. Rules are replaced whole."""

    rules: RouteFields | None = None
    is_active: bool | None = Field(default=None, description="false: applications cannot use the route")

    @model_validator(mode="after")
    def _check_change(self) -> Self:
        if self.rules is None and self.is_active is None:
            raise ValueError("nothing to change; give rules or is_active")
        return self


class RouteOut(Resource):
    """A route."""

    id: str
    rules: dict[str, Any]
    is_active: bool
    created_at: datetime

    @classmethod
    def of(cls, row: Route, tenant_id: str) -> Self:
        """Convert a route as a tenant may see it, without entries for other tenants; an empty tenant may see all
        entries.
        """
        shown = cls.model_validate(row)
        return shown.model_copy(update={"rules": _within(shown.rules, tenant_id)}) if tenant_id else shown


@router.post("", status_code=201, summary="Create a route")
def create(body: RouteBody, author: Admin, database: Database) -> RouteOut:
    with database.session() as session:
        return RouteOut.model_validate(routes.create_route(session, author, body.id, body.rules.rules()))


@router.get("", summary="List routes")
def list_all(wanted: Wanted, author: Admin, database: Database) -> Page[RouteOut]:
    with database.session() as session:
        rows = routes.list_routes(session, after=wanted.after, limit=wanted.limit + 1)
        return page_of(rows, wanted, lambda row: RouteOut.of(row, author.tenant_id))


@router.post("/{route:path}/explain", summary="Explain where a route would send a request")
def explain_route(route: RoutePath, body: RequestFields, author: Admin, database: Database) -> Explanation:
    """No model is called and nothing is counted. Live values of a gateway are taken from the body."""
    with database.session() as session:
        spec = spec_of(routes.get_route(session, route))
        return explain(spec, read_serving(session), body)


@router.get("/{route:path}", summary="Get a route")
def get(route: RoutePath, author: Admin, database: Database) -> RouteOut:
    with database.session() as session:
        return RouteOut.of(routes.get_route(session, route), author.tenant_id)


@router.patch("/{route:path}", summary="Change a route's rules or active state")
def update(route: RoutePath, body: RoutePatch, author: Admin, database: Database) -> RouteOut:
    rules = None if body.rules is None else body.rules.rules()
    with database.session() as session:
        changed = routes.set_route(session, author, route, rules=rules, is_active=body.is_active)
        return RouteOut.model_validate(changed)


@router.delete("/{route:path}", summary="Delete a route")
def delete(route: RoutePath, author: Admin, database: Database) -> Deleted:
    with database.session() as session:
        routes.delete_route(session, author, route)
    return Deleted(id=route)


def _within(rules: Mapping[str, Any], tenant_id: str) -> dict[str, Any]:
    """Return rules without the entries for other tenants only, and without those tenants' names."""
    shown = dict(rules)
    for part in ("choose", "fallbacks"):
        if part in rules:
            entries = rules[part] if isinstance(rules[part], list) else []
            shown[part] = [kept for entry in entries if (kept := _entry_within(entry, tenant_id)) is not None]
    return shown


def _entry_within(entry: object, tenant_id: str) -> dict[str, Any] | None:
    if not isinstance(entry, dict):  # a row that somebody wrote around us: whose it is is not known
        return None
    when = entry.get("when") or {}
    if not isinstance(when, dict):
        return None
    tenants = when.get("tenants") or [tenant_id]
    if not isinstance(tenants, list) or tenant_id not in tenants:
        return None
    return {**entry, "when": {**when, "tenants": [tenant_id]}} if "tenants" in when else entry
