"""Refuses changes of models, pools, targets and routes that would make a valid route or rollout invalid."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import select
from sqlalchemy.orm import Session

from backends.control.rollout_rows import rollout_faults
from contracts.control import Model, Pool, Rollout, Route, Target
from contracts.errors import ConfigurationError, Conflict
from contracts.serving.configuration import ModelSpec, PoolSpec, TargetSpec
from contracts.serving.rollouts import LIVE
from contracts.serving.route_checks import RouteFault, Serving, find_faults
from contracts.serving.routes import RouteSpec, route_spec


def spec_of(route: Route) -> RouteSpec:
    """Build the route in a row. Raises ConfigurationError."""
    return route_spec(route.id, route.rules, int(route.created_at.timestamp()))


def read_serving(session: Session) -> Serving:
    """Return the current configuration that routes depend on: active routes and models, and pools with targets."""
    regions = {pool.id: pool.region for pool in session.scalars(select(Pool))}
    targets: dict[str, list[TargetSpec]] = {}
    for target in session.scalars(select(Target).order_by(Target.pool_id, Target.id)):
        place = (target.id, target.pool_id, target.kind)
        spec = TargetSpec(*place, provider=target.provider, region=regions.get(target.pool_id, ""))
        targets.setdefault(target.pool_id, []).append(spec)
    pools = {pool_id: PoolSpec(pool_id, tuple(found)) for pool_id, found in targets.items()}
    active = session.scalars(select(Model).where(Model.is_active, Model.pool_id.in_(list(pools))))
    models = {model.id: ModelSpec(model.id, model.pool_id) for model in active}
    return Serving({route.id: route for route in _sound(session)}, models, pools)


def faults_in(session: Session) -> dict[str, RouteFault]:
    """Return the current faults of active routes, by route."""
    session.flush()
    return {fault.route: fault for fault in find_faults(read_serving(session))}


@contextmanager
def routes_kept(session: Session) -> Iterator[None]:
    """Refuse the enclosed change if it makes a valid route or live rollout invalid. Raises Conflict."""
    if session.scalars(select(Route.id).limit(1)).first() is None:
        yield
        return
    before = faults_in(session)
    with rollouts_kept(session):
        yield
    for name, fault in faults_in(session).items():
        if name not in before:
            raise Conflict(f"{fault.message}; change the route first")


@contextmanager
def rollouts_kept(session: Session) -> Iterator[None]:
    """Refuse the enclosed change if it makes a valid live rollout invalid. Raises Conflict."""
    if session.scalars(select(Rollout.id).where(Rollout.state.in_(LIVE)).limit(1)).first() is None:
        yield
        return
    before = rollout_faults(session, read_serving(session))
    yield
    session.flush()
    for name, fault in rollout_faults(session, read_serving(session)).items():
        if name not in before:
            raise Conflict(f"{fault}; end the rollout first")


def _sound(session: Session) -> Iterator[RouteSpec]:
    for route in session.scalars(select(Route).where(Route.is_active).order_by(Route.id)):
        try:
            yield spec_of(route)
        except ConfigurationError:  # gateways leave it out as well, and report it
            continue
