"""One request's fallback chain: the models it may be sent to, and the request rewritten for each."""

from contracts.api.chat import GenerationRequest
from contracts.api.requests import AnyRequest
from contracts.errors import UnsupportedValue
from contracts.serving.routes import RouteSpec
from gateway.request.request_state import RequestState
from gateway.routing.routes.renaming import renamed, renamed_body
from gateway.routing.routes.route_plan import RouteCandidate


class FallbackChain:
    """The candidates of one request, best first, at least one. `enter` rewrites the request for one of them."""

    def __init__(self, life: RequestState, route: RouteSpec, legs: list[RouteCandidate], judged: int = 0) -> None:
        """Accept the candidates. `judged`: after the first `judged` of them, an insufficient answer leads to the next
        one; the others are used after failures.
        """
        assert life.request is not None
        self.legs = legs
        self.route = route
        self.judged = judged
        self.asked: AnyRequest = life.request  # as the application sent it
        self._body = life.body

    def enter(self, life: RequestState, leg: RouteCandidate) -> None:
        """Rewrite the request for a candidate's model and targets. Raises UnsupportedValue."""
        life.model, life.regions = leg.model, leg.regions
        life.cache = self.route.cache or leg.model.cache
        request = renamed(self.asked, leg.model.id)
        life.body, life.set_fields = renamed_body(self._body, leg.model.id), None
        if leg.model.sampling is not None and isinstance(request, GenerationRequest):
            request, life.set_fields = leg.model.sampling.apply(request)
        life.request = request

    def enter_first(self, life: RequestState) -> None:
        """Rewrite the request for the first model that accepts its values. Raises UnsupportedValue if none does."""
        while True:
            try:
                self.enter(life, self.legs[0])
            except UnsupportedValue:
                if len(self.legs) == 1:
                    raise
                del self.legs[0]
                self.judged -= 1
            else:
                return
