"""Routes in the control database. Invalid routes are refused, and so is removing what a route leads to."""

from collections.abc import Mapping

from sqlalchemy import select
from sqlalchemy.orm import Session

from backends.control.changes import Author, begin_change
from backends.control.route_guard import faults_in, rollouts_kept, routes_kept, spec_of
from backends.control.row_names import row_name
from backends.control.sound_rows import SoundRows
from contracts.control import Model, Route
from contracts.errors import ConfigurationError, Conflict, InvalidRequest, NotFound
from contracts.serving.configuration import ModelSpec, PoolSpec
from contracts.serving.route_checks import RouteFault, Serving, sound_routes
from contracts.serving.routes import RouteSpec


def create_route(session: Session, author: Author, route_id: str, rules: Mapping[str, object]) -> Route:
    """Add a route: a model name for applications, and the models that it leads to.

    Raises Conflict if the name is in use, InvalidRequest if the route is invalid.
    """
    begin_change(session, author, "route.create", route_id, {"rules": dict(rules)})
    if session.get(Route, route_id) is not None:
        raise Conflict(f"route {route_id!r} exists already; choose another id", param="id")
    if session.get(Model, route_id) is not None:
        raise Conflict(f"model {route_id!r} has this name; choose another id", param="id")
    route = Route(id=route_id, rules=dict(rules), is_active=True, created_at=author.at)
    before = faults_in(session)
    session.add(route)
    _check(session, route, before)
    return route


def list_routes(session: Session, *, after: str = "", limit: int = 100) -> list[Route]:
    """Return up to `limit` routes whose ids sort after `after`."""
    return list(session.scalars(select(Route).where(Route.id > after).order_by(Route.id).limit(limit)))


def get_route(session: Session, route_id: str) -> Route:
    """Return a route. Raises NotFound."""
    route = session.get(Route, route_id)
    if route is None:
        raise NotFound(
            f"route {route_id!r} does not exist; `tollkeeper routes list` shows those that do",
            rows=[row_name(Route, route_id)],
        )
    return route


def set_route(
    session: Session,
    author: Author,
    route_id: str,
    *,
    rules: Mapping[str, object] | None = None,
    is_active: bool | None = None,
) -> Route:
    """Replace all of a route's rules, activate or deactivate it, or both.

    Raises NotFound, InvalidRequest if this route or one that leads to it would be invalid, and Conflict if a live
    rollout on it would be.
    """
    entry = begin_change(session, author, "route.update", route_id)
    route = get_route(session, route_id)
    faults, was = faults_in(session), {"rules": route.rules, "is_active": route.is_active}
    with rollouts_kept(session):
        if rules is not None:
            route.rules = dict(rules)
        if is_active is not None:
            route.is_active = is_active
        entry.detail = {"before": was, "after": {"rules": route.rules, "is_active": route.is_active}}
        _check(session, route, faults)
    return route


def delete_route(session: Session, author: Author, route_id: str) -> None:
    """Remove a route; its models stay. Raises NotFound, Conflict while a route leads to it or a rollout is on it."""
    begin_change(session, author, "route.delete", route_id)
    route = get_route(session, route_id)
    with routes_kept(session):
        session.delete(route)
        session.flush()


def load_routes(
    rows: SoundRows, models: Mapping[str, ModelSpec], pools: Mapping[str, PoolSpec]
) -> dict[str, RouteSpec]:
    """Return the active routes. An invalid one is left out and listed in the faults."""
    wanted = select(Route).where(Route.is_active)
    built = rows.build("route", wanted, (Route.id,), lambda row: spec_of(row[0]))
    kept, faults = sound_routes(Serving({route.id: route for route in built}, models, pools))
    rows.faults.extend(f"route {fault.route!r} is left out: {fault.message}" for fault in faults)
    return kept


def _check(session: Session, route: Route, before: Mapping[str, RouteFault]) -> None:
    """Refuse a change that makes this route, or another valid one, invalid. Raises InvalidRequest."""
    try:
        spec_of(route)  # checks deactivated routes too
    except ConfigurationError as error:
        raise InvalidRequest(error.message, param="rules") from error
    after = faults_in(session)
    own = after.pop(route.id, None)
    if own is not None:
        raise InvalidRequest(own.message, param=".".join(map(str, ("rules", *own.place))))
    for name, fault in after.items():
        if name not in before:
            raise InvalidRequest(fault.message, param="rules")
