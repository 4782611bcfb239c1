"""How a rollout fits what is served: its route, both its models, and where requests of that route may go."""

from contracts.configuration import ModelSpec, PoolSpec
from contracts.rollouts import RolloutSpec
from contracts.route_checks import Serving, meet, taken_targets
from contracts.routes import RouteEntry, RouteSpec


def fault_of(rollout: RolloutSpec, serving: Serving) -> str:
    """Say why a rollout cannot be on its route; empty where it can.

    A candidate is to stand wherever the incumbent stands among the entries to choose: under the same conditions, and
    at targets in the regions that the route and the entry keep requests in.
    """
    where = f"rollout {rollout.id!r}"
    route = serving.routes.get(rollout.route)
    if route is None:
        known = ", ".join(sorted(serving.routes)) or "none"
        return f"{where} is on route {rollout.route!r}, which is not there; known: {known}"
    if route.cascade is not None:
        return (
            f"{where} is on route {route.id!r}, a cascade, which asks its models in their order; choose another route"
        )
    entries = [entry for entry in route.choose if entry.model == rollout.incumbent]
    if not entries:
        known = ", ".join(sorted({entry.model for entry in route.choose if entry.model})) or "none"
        return f"{where}: route {route.id!r} chooses no incumbent {rollout.incumbent!r}; it chooses: {known}"
    if any(entry.model == rollout.candidate for entry in route.choose):
        return f"{where}: route {route.id!r} chooses {rollout.candidate!r} already, by a weight of its own"
    model = serving.models.get(rollout.candidate)
    if model is None:
        known = ", ".join(sorted(serving.models)) or "none"
        return f"{where} tries {rollout.candidate!r}, which is not served; known models: {known}"
    return _pinned_out(where, route, entries, model, serving.pools[model.pool])


def _pinned_out(where: str, route: RouteSpec, entries: list[RouteEntry], model: ModelSpec, pool: PoolSpec) -> str:
    for entry in entries:
        regions = meet(meet(None, route.regions), entry.regions)
        if not taken_targets(pool.targets, RouteEntry(model=model.id), regions):
            pinned = ", ".join(sorted(regions or ()))
            found = ", ".join(sorted({target.region or "unknown" for target in pool.targets}))
            return (
                f"{where}: requests of route {route.id!r} stay in {pinned}, and {model.id!r} has no target there; "
                f"its targets are in {found}"
            )
    return ""
