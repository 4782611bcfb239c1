"""Models whose targets speak a client's API natively."""

from collections.abc import Container
from typing import Literal

from contracts.serving.configuration import ModelSpec, Snapshot
from contracts.serving.native_apis import supports_api
from contracts.serving.routes import RouteSpec

Reach = Literal["none", "some", "all"]


class NativeReach:
    """Reports how many of a model's targets speak an API; computed once per configuration."""

    def __init__(self, api: str) -> None:
        self._api = api
        self._snapshot: Snapshot | None = None
        self._models: dict[str, Reach] = {}
        self._dropping: set[str] = set()  # models with a target that lets unknown fields be dropped

    def of(self, name: str, snapshot: Snapshot) -> Reach:
        """Return how many of the targets behind a model or route speak the API. A route has all of its models'."""
        if snapshot is not self._snapshot:
            self._snapshot = snapshot
            found = {model.id: self._of_model(model, snapshot) for model in snapshot.models.values()}
            self._models = {name: reach for name, reach in found.items() if reach != "none"}
            self._dropping = {model.id for model in snapshot.models.values() if _lets_drop(model, snapshot)}
        if not self._models:
            return "none"
        route = snapshot.routes.get(name)
        if route is None:
            return self._models.get(name, "none")
        # What a route decides by, such as the prompt's subject, is read in the translation: never "all".
        return "some" if _leads_to(self._models, route, snapshot) else "none"

    def lets_drop(self, name: str, snapshot: Snapshot) -> bool:
        """Return whether a target behind a model or route lets unknown fields be dropped."""
        self.of(name, snapshot)  # which looks at a new configuration
        route = snapshot.routes.get(name)
        return name in self._dropping if route is None else _leads_to(self._dropping, route, snapshot)

    def _of_model(self, model: ModelSpec, snapshot: Snapshot) -> Reach:
        pool = snapshot.pools.get(model.pool)
        if pool is None:
            return "none"
        spoken = [supports_api(target, self._api) for target in pool.targets]
        return "all" if all(spoken) else "some" if any(spoken) else "none"


def _leads_to(models: Container[str], route: RouteSpec, snapshot: Snapshot) -> bool:
    for entry in route.entries:
        onward = snapshot.routes.get(entry.route)
        if entry.model in models or (onward is not None and _leads_to(models, onward, snapshot)):
            return True
    return False


def _lets_drop(model: ModelSpec, snapshot: Snapshot) -> bool:
    pool = snapshot.pools.get(model.pool)
    return pool is not None and any(target.settings.get("unknown_fields") == "drop" for target in pool.targets)
