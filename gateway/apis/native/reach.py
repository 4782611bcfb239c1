"""Which models are served by targets that speak a client's API themselves."""

from typing import Literal

from contracts.serving.configuration import ModelSpec, Snapshot
from contracts.serving.routes import RouteSpec
from contracts.serving.spoken_apis import speaks

Reach = Literal["none", "some", "all"]


class NativeReach:
    """Tells how many of a model's targets speak an API; worked out once for each configuration."""

    def __init__(self, api: str) -> None:
        self._api = api
        self._snapshot: Snapshot | None = None
        self._models: dict[str, Reach] = {}

    def of(self, name: str, snapshot: Snapshot) -> Reach:
        """Return how many of the targets behind a model or route speak the API. A route has all of its models'."""
        if snapshot is not self._snapshot:
            self._snapshot = snapshot
            found = {model.id: self._of_model(model, snapshot) for model in snapshot.models.values()}
            self._models = {name: reach for name, reach in found.items() if reach != "none"}
        if not self._models:
            return "none"
        route = snapshot.routes.get(name)
        if route is None:
            return self._models.get(name, "none")
        # What a route decides by, such as the prompt's subject, is read in the translation: never "all".
        return "some" if self._leads_there(route, snapshot) else "none"

    def _leads_there(self, route: RouteSpec, snapshot: Snapshot) -> bool:
        for entry in route.entries:
            onward = snapshot.routes.get(entry.route)
            if entry.model in self._models or (onward is not None and self._leads_there(onward, snapshot)):
                return True
        return False

    def _of_model(self, model: ModelSpec, snapshot: Snapshot) -> Reach:
        pool = snapshot.pools.get(model.pool)
        if pool is None:
            return "none"
        spoken = [speaks(target, self._api) for target in pool.targets]
        return "all" if all(spoken) else "some" if any(spoken) else "none"
