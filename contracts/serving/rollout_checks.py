"""Validates a rollout against its route, its models, and the route's regions."""

from contracts.errors import ConfigurationError
from contracts.serving.configuration import ModelSpec, PoolSpec
from contracts.serving.rollouts import RolloutSpec
from contracts.serving.route_checks import Serving, meet, taken_targets
from contracts.serving.routes import RouteEntry, RouteSpec


def fault_of(rollout: RolloutSpec, serving: Serving) -> ConfigurationError | None:
    """Return why a rollout cannot run on its route, with the field at fault; `None` if it can.

    The candidate takes the incumbent's place among the entries to choose: under the same conditions, and at targets in
    the regions to which the route and the entry restrict requests.
    """
    where = f"rollout {rollout.id!r}"
    route = serving.routes.get(rollout.route)
    if route is None:
        known = ", ".join(sorted(serving.routes)) or "none"
        return ConfigurationError(
            f"{where} is on route {rollout.route!r}, which does not exist; known: {known}", param="route"
        )
    if route.cascade is not None:
        return ConfigurationError(
            f"{where} is on route {route.id!r}, a cascade, which tries its models in order; choose another route",
            param="route",
        )
    entries = [entry for entry in route.choose if entry.model == rollout.incumbent]
    if not entries:
        known = ", ".join(sorted({entry.model for entry in route.choose if entry.model})) or "none"
        return ConfigurationError(
            f"{where}: route {route.id!r} chooses no incumbent {rollout.incumbent!r}; it chooses: {known}",
            param="incumbent",
        )
    if any(entry.model == rollout.candidate for entry in route.choose):
        return ConfigurationError(
            f"{where}: route {route.id!r} chooses {rollout.candidate!r} already, by a weight of its own",
            param="candidate",
        )
    model = serving.models.get(rollout.candidate)
    if model is None:
        known = ", ".join(sorted(serving.models)) or "none"
        return ConfigurationError(
            f"{where} tries {rollout.candidate!r}, which is not served; known models: {known}", param="candidate"
        )
    return _pinned_out(where, route, entries, model, serving.pools[model.pool])


def _pinned_out(
    where: str, route: RouteSpec, entries: list[RouteEntry], model: ModelSpec, pool: PoolSpec
) -> ConfigurationError | None:
    for entry in entries:
        regions = meet(meet(None, route.regions), entry.regions)
        if not taken_targets(pool.targets, RouteEntry(model=model.id), regions):
            pinned = ", ".join(sorted(regions or ()))
            found = ", ".join(sorted({target.region or "unknown" for target in pool.targets}))
            return ConfigurationError(
                f"{where}: requests of route {route.id!r} stay in {pinned}, and {model.id!r} has no target there; "
                f"its targets are in {found}",
                param="candidate",
            )
    return None
