"""Routes of the YAML file, built and checked against the models and pools that they lead to."""

from collections.abc import Mapping

from contracts.errors import ConfigurationError
from contracts.serving.configuration import ModelSpec, PoolSpec
from contracts.serving.route_checks import Serving, find_faults
from contracts.serving.routes import RouteSpec
from gateway.config.entries import ConfigurationFile
from gateway.config.rules import Misplaced


def build_routes(
    file: ConfigurationFile, models: Mapping[str, ModelSpec], pools: Mapping[str, PoolSpec]
) -> dict[str, RouteSpec]:
    """Build the routes. Raises Misplaced on the first invalid one, naming the field."""
    routes: dict[str, RouteSpec] = {}
    places: dict[str, int] = {}
    for number, given in enumerate(file.routes):
        places[given.name] = number
        try:
            routes[given.name] = given.spec(given.name)
        except ConfigurationError as error:
            raise Misplaced(("routes", number), error.message) from error
    for fault in find_faults(Serving(routes, models, pools)):
        raise Misplaced(("routes", places[fault.route], *fault.place), fault.message)
    return routes
