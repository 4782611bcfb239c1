"""Routes requests: computes each one's fallback chain and attaches it."""

from typing import Final, Protocol

from contracts.api.requests import AnyRequest
from contracts.errors import InvalidRequest, Unavailable
from contracts.serving.configuration import Snapshot
from contracts.serving.routes import RouteSpec
from contracts.serving.semantic import SemanticReading, SemanticSpec
from gateway.limits.limiter import Limiter
from gateway.request.clock import Clock
from gateway.request.request_state import RequestState
from gateway.routing.attempts.turn_order import arranged
from gateway.routing.health.health_book import HealthBook
from gateway.routing.routes.facts import Reading, RequestFacts
from gateway.routing.routes.fallback_chain import FallbackChain
from gateway.routing.routes.live_model_state import LiveModelState, Waits
from gateway.routing.routes.pace import PaceBook
from gateway.routing.routes.resolver import Order, Resolver
from gateway.routing.routes.route_plan import CompiledRoute, RouteCandidate, RoutePlans
from gateway.routing.routes.turns import Turns

_MOST_NAMED: Final = 5  # entries in an error message


class PromptReader(Protocol):
    """Classifies prompts. Never raises, and gives up in time."""

    async def read(self, route_id: str, spec: SemanticSpec, request: AnyRequest, tenant: str) -> SemanticReading:
        """Classify a request's prompt by a route's examples."""


class ArmChooser(Protocol):
    """Assigns requests to an arm of a rollout."""

    def enter(self, life: RequestState, way: FallbackChain) -> None:
        """Put the candidate before the incumbent if the request is assigned to the candidate."""


class RouteGuide:
    """Computes requests' fallback chains. `region` is the gateway's; `reader` classifies prompts.

    `health` returns which models have no callable target, `waits` the predicted wait at a pool's targets, `arms` which
    requests a rollout's candidate gets; `None`: not used.
    """

    def __init__(
        self,
        limiter: Limiter,
        clock: Clock,
        region: str = "",
        reader: PromptReader | None = None,
        health: HealthBook | None = None,
        waits: Waits | None = None,
        arms: ArmChooser | None = None,
    ) -> None:
        self._arms = arms
        self._limiter = limiter
        self._health = health
        self._waits = waits
        self._clock = clock
        self._region = region
        self._reader = reader
        self._plans = RoutePlans()
        self._turns = Turns()
        self.paces = PaceBook()

    async def begin(self, life: RequestState, route: RouteSpec) -> FallbackChain:
        """Compute a request's fallback chain, and prepare the request for the first model on it.

        Raises InvalidRequest if no entry accepts it, Unavailable if one might at another time.
        """
        fork = self._plans.plan_for(route, life.snapshot)
        asked = await self._asked(life, fork)
        order = Resolver(asked, self.standing(life), self._turns).order(fork)
        life.add_decision("route", _said(order))
        if not order.legs:
            raise _nowhere(route, order)
        way = FallbackChain(life, route, self._with_those_away_last(life, fork, order), order.chosen)
        if life.snapshot.rollouts and self._arms is not None:
            self._arms.enter(life, way)
        way.enter_first(life)
        return way

    def _with_those_away_last(self, life: RequestState, fork: CompiledRoute, order: Order) -> list[RouteCandidate]:
        """Return the candidates, those last whose targets all have open circuits. A cascade keeps its order."""
        if self._health is None or fork.cascade is not None:
            return order.legs
        legs = arranged(order.legs, self._health, self._clock.monotonic_ns())
        if legs != order.legs:
            life.add_decision("away", {"order": [leg.label for leg in legs]})
        return legs

    def standing(self, life: RequestState) -> LiveModelState:
        """Return the current state of models for a request."""
        return LiveModelState(life, self._limiter, self.paces, self._clock, self._waits)

    def first_leg(self, route: RouteSpec, snapshot: Snapshot) -> RouteCandidate:
        """Return the candidate to which a route leads first now, whatever its conditions."""
        return self._plans.plan_for(route, snapshot).first_leg

    async def _asked(self, life: RequestState, fork: CompiledRoute) -> RequestFacts:
        request = life.request
        assert request is not None
        readings: dict[str, Reading] = {}
        for reading_fork in fork.readers:
            if self._reader is None or reading_fork.semantic is None:
                continue
            found = await self._reader.read(reading_fork.id, reading_fork.semantic, request, life.who.tenant)
            readings[reading_fork.id] = Reading(found.intent, found.complexity)
            life.route_state = life.route_state or found.obstacle
            life.add_decision("semantic", found.facts())
        return RequestFacts(
            tenant=life.who.tenant,
            at_ns=life.started_at_ns,
            tags=life.who.tags,
            region=self._region,
            conversation=life.conversation_id,
            output_limit=request.output_limit,
            latency_budget_ms=life.latency_budget_ms,
            readings=readings,
            holds=life.snapshot.holds,
            route=fork.id,
        )


def _said(order: Order) -> dict[str, object]:
    said: dict[str, object] = {"order": [leg.label for leg in order.legs]}
    if order.skipped:
        said["skipped"] = order.skipped
    if order.late:
        said["late"] = order.late
    if order.probe:
        said["probe"] = order.probe
    return said


def _nowhere(route: RouteSpec, order: Order) -> InvalidRequest | Unavailable:
    reasons = [f"{label}: {reason}" for label, reason in list(order.skipped.items())[:_MOST_NAMED]]
    message = f"no entry of the route {route.id!r} accepts this request ({'; '.join(reasons)})"
    if order.may_pass:
        return Unavailable(message, code="no_route")
    return InvalidRequest(message, code="no_route", param="model")
