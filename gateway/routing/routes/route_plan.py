"""A route compiled for one snapshot: a tree whose leaves are models, each with the targets that it may use."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from contracts.serving.configuration import ModelSpec, PoolSpec, Snapshot
from contracts.serving.route_checks import Regions, Serving, meet, taken_targets
from contracts.serving.routes import CascadePolicy, Condition, RouteEntry, RouteSpec
from contracts.serving.semantic import SemanticSpec


@dataclass(frozen=True, slots=True, eq=False)
class RouteCandidate:
    """A candidate: a model that a request may be sent to. `pool` has the targets that may serve it, `within` their ids.

    `within` is `None` if these are all of the pool's targets.
    """

    label: str
    model: ModelSpec
    pool: PoolSpec
    regions: Regions
    within: frozenset[str] | None


@dataclass(frozen=True, slots=True, eq=False)
class CompiledEntry:
    """One entry of a route, and what it leads to: a model or another route."""

    label: str
    weight: int
    when: Condition
    to: "RouteCandidate | CompiledRoute"


@dataclass(frozen=True, slots=True, eq=False)
class CompiledRoute:
    """A compiled route: entries to choose among, and fallback entries."""

    id: str
    choose: tuple[CompiledEntry, ...]
    fallbacks: tuple[CompiledEntry, ...]
    cascade: CascadePolicy | None = None
    latency_budget_ms: int | None = None
    semantic: SemanticSpec | None = None

    @property
    def readers(self) -> tuple["CompiledRoute", ...]:
        """Return the routes, this one and those below it, that classify the prompt."""
        inner = [
            branch.to.readers for branch in (*self.choose, *self.fallbacks) if isinstance(branch.to, CompiledRoute)
        ]
        own = () if self.semantic is None else (self,)
        return sum(inner, own)

    @property
    def models(self) -> tuple[str, ...]:
        """Return the ids of the models that its entries lead to."""
        branches = (*self.choose, *self.fallbacks)
        found = [
            (to.model.id,) if isinstance(to, RouteCandidate) else to.models for to in (branch.to for branch in branches)
        ]
        return tuple(dict.fromkeys(sum(found, ())))

    @property
    def first_leg(self) -> RouteCandidate:
        """Return the candidate that a request without conditions would get first."""
        to = self.choose[0].to
        return to if isinstance(to, RouteCandidate) else to.first_leg


class RoutePlans:
    """The routes of one snapshot, each compiled at its first use."""

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None
        self._plans: dict[str, CompiledRoute] = {}

    def plan_for(self, route: RouteSpec, snapshot: Snapshot) -> CompiledRoute:
        """Return a route's compiled plan. The snapshot's routes are valid: `contracts.serving.route_checks` has
        verified them.
        """
        if snapshot is not self._snapshot:
            self._snapshot = snapshot
            self._plans.clear()
        plan = self._plans.get(route.id)
        if plan is None:
            plan = self._plans[route.id] = plan_route(route, Serving(snapshot.routes, snapshot.models, snapshot.pools))
        return plan


def plan_route(route: RouteSpec, serving: Serving, pin: Regions = None) -> CompiledRoute:
    """Compile a valid route. `pin` has the regions to which the routes above it restrict it."""
    regions = meet(pin, route.regions)
    return CompiledRoute(
        id=route.id,
        semantic=route.semantic,
        choose=tuple(_branch(entry, serving, regions) for entry in route.choose),
        fallbacks=tuple(_branch(entry, serving, regions) for entry in route.fallbacks),
        cascade=route.cascade,
        latency_budget_ms=route.latency_budget_ms,
    )


def _branch(entry: RouteEntry, serving: Serving, pin: Regions) -> CompiledEntry:
    regions = meet(pin, entry.regions)
    to: RouteCandidate | CompiledRoute
    if entry.route:
        to = plan_route(serving.routes[entry.route], serving, regions)
    else:
        leg = leg_of(entry, serving.models, serving.pools, regions)
        assert leg is not None, "a sound route has no dead end"
        to = leg
    return CompiledEntry(entry.name, entry.weight, entry.when, to)


def leg_of(
    entry: RouteEntry, models: Mapping[str, ModelSpec], pools: Mapping[str, PoolSpec], regions: Regions
) -> RouteCandidate | None:
    """Return the candidate for a model entry of a route; `None` if no target of the model is left."""
    model = models[entry.model]
    pool = pools[model.pool]
    taken = taken_targets(pool.targets, entry, regions)
    if not taken:
        return None
    if len(taken) == len(pool.targets):
        return RouteCandidate(entry.name, model, pool, regions, None)
    return RouteCandidate(
        entry.name, model, replace(pool, targets=taken), regions, frozenset(target.id for target in taken)
    )
