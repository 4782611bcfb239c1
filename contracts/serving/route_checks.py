"""Validates routes: loops, dead ends, and region pins without targets."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from contracts.serving.configuration import ModelSpec, PoolSpec, TargetSpec
from contracts.serving.routes import RouteEntry, RouteSpec

MAX_DEPTH: Final = 4  # nested routes
MAX_MODELS: Final = 256  # entries for models that a route leads to, including nested routes
Place: TypeAlias = tuple[int | str, ...]
Regions: TypeAlias = frozenset[str] | None


@dataclass(frozen=True, slots=True)
class RouteFault:
    """What is wrong with a route, in words. `place` is the path in the route's rules: ("choose", 1, "model")."""

    route: str
    place: Place
    message: str


@dataclass(frozen=True, slots=True)
class Serving:
    """The routes, models and pools that a route's entries can name."""

    routes: Mapping[str, RouteSpec]
    models: Mapping[str, ModelSpec]
    pools: Mapping[str, PoolSpec]


def find_faults(serving: Serving) -> list[RouteFault]:
    """Return what is wrong with each route: the first fault of each."""
    first = (next(_faults_of(route, serving), None) for route in serving.routes.values())
    return [fault for fault in first if fault is not None]


def sound_routes(serving: Serving) -> tuple[dict[str, RouteSpec], list[RouteFault]]:
    """Leave out invalid routes, and those that lead to them; return the rest and the faults."""
    kept, faults = dict(serving.routes), list[RouteFault]()
    while found := find_faults(Serving(kept, serving.models, serving.pools)):
        faults += found
        for fault in found:
            del kept[fault.route]
    return kept, faults


def meet(pin: Regions, regions: tuple[str, ...]) -> Regions:
    """Return the regions that both `pin` and `regions` allow; `None`: any region."""
    if not regions:
        return pin
    return frozenset(regions) if pin is None else pin & frozenset(regions)


def taken_targets(targets: tuple[TargetSpec, ...], entry: RouteEntry, regions: Regions) -> tuple[TargetSpec, ...]:
    """Return the targets that an entry may use, all of them in `regions` if these are stated.

    A target without a region is in none.
    """
    return tuple(
        target
        for target in targets
        if (regions is None or target.region in regions) and entry.provider in ("", target.provider or target.kind)
    )


def _faults_of(route: RouteSpec, serving: Serving) -> Iterator[RouteFault]:
    if route.id in serving.models:
        yield RouteFault(route.id, (), f"route {route.id!r} has the name of a model; give it another")
    for place, entry in _placed(route):
        if entry.model and entry.model not in serving.models:
            what, known = f"model {entry.model!r}, which is not served", set(serving.models)
        elif entry.route and entry.route not in serving.routes:
            what, known = f"route {entry.route!r}, which does not exist", set(serving.routes) - {route.id}
        else:
            continue
        where = (*place, "model" if entry.model else "route")
        others = ", ".join(sorted(known)) or "none"
        yield RouteFault(route.id, where, f"route {route.id!r} leads to {what}; known: {others}")
    walk = _Walk(serving, route.id)
    yield from walk.faults_behind(route, meet(None, route.regions), (route.id,))


class _Walk:
    """Follows all paths from one route."""

    def __init__(self, serving: Serving, start: str) -> None:
        self._serving = serving
        self._start = start
        self._models = 0

    def faults_behind(
        self, route: RouteSpec, regions: Regions, way: tuple[str, ...], begun_at: Place = ()
    ) -> Iterator[RouteFault]:
        """Yield the faults on each path, at the entry of the first route that leads to it."""
        for place, entry in _placed(route):
            at_start = begun_at or place
            message = self._fault_of(entry, meet(regions, entry.regions))
            if message:
                yield RouteFault(self._start, at_start, message)
            following = self._serving.routes.get(entry.route)
            if following is None:
                continue
            further = (*way, following.id)
            if following.id in way:
                message = f"route {self._start!r} comes to a loop: {' -> '.join(further)}"
            elif len(further) > MAX_DEPTH:
                message = f"route {self._start!r} leads over {' -> '.join(further)}; the maximum is {MAX_DEPTH} routes"
            else:
                inner = meet(meet(regions, entry.regions), following.regions)
                yield from self.faults_behind(following, inner, further, at_start)
                continue
            yield RouteFault(self._start, at_start, message)

    def _fault_of(self, entry: RouteEntry, regions: Regions) -> str:
        model = self._serving.models.get(entry.model)
        pool = None if model is None else self._serving.pools.get(model.pool)
        if pool is None:
            return ""
        self._models += 1
        if self._models > MAX_MODELS:
            return f"route {self._start!r} comes to more than {MAX_MODELS} models; shorten the routes behind it"
        if taken_targets(pool.targets, entry, regions):
            return ""
        found = sorted({target.region or "unknown" for target in pool.targets})
        wanted = [] if regions is None else [f"regions {', '.join(sorted(regions)) or 'none'}"]
        wanted += [f"provider {entry.provider!r}"] if entry.provider else []
        return (
            f"route {self._start!r} is a dead end at {entry.name!r}: no target of pool {pool.id!r} is left by "
            f"{' and '.join(wanted)}; its targets are in regions {', '.join(found)}"
        )


def _placed(route: RouteSpec) -> Iterator[tuple[Place, RouteEntry]]:
    for number, entry in enumerate(route.choose):
        yield ("choose", number), entry
    for number, entry in enumerate(route.fallbacks):
        yield ("fallbacks", number), entry
