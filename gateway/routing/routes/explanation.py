"""Explains a route for a described request: each entry, with the reason why it is used or not."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from contracts.errors import InvalidRequest
from contracts.pricing.money import pico_usd
from contracts.recording.moments import unix_ns
from contracts.serving.configuration import ModelSpec
from contracts.serving.route_checks import Serving, find_faults
from contracts.serving.routes import Complexity, Condition, RouteSpec
from gateway.routing.routes.facts import Reading, RequestFacts
from gateway.routing.routes.resolver import Order, Resolver
from gateway.routing.routes.route_plan import CompiledRoute, RouteCandidate, plan_route
from gateway.routing.routes.turns import Turns

_SECOND_NS: Final = 1_000_000_000

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)]
Usd = Annotated[Decimal, Field(ge=0, le=1_000_000, decimal_places=12, allow_inf_nan=False)]


class RequestFields(BaseModel):
    """A request as described by the caller. Values that a gateway would measure are by model; missing: unknown."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tenant: str = Field(default="", max_length=63)
    tags: dict[str, str] = Field(default={}, max_length=16)
    prompt_tokens: int | None = Field(default=None, ge=0, le=1_000_000_000)
    max_tokens: int | None = Field(default=None, ge=1, le=2**31 - 1)
    latency_budget_ms: int | None = Field(default=None, ge=1, le=86_400_000)
    region: str = Field(default="", max_length=63, description="The gateway's region")
    at: AwareDatetime | None = Field(default=None, description="Left out: now")
    conversation: str = Field(default="", max_length=100)
    intent: str | None = Field(default=None, max_length=100)
    complexity: Complexity | None = None
    budget_left: dict[str, Share] = Field(default={}, description="Smallest remaining share of a budget, by model")
    cost_usd: dict[str, Usd] = Field(default={}, description="Maximum cost of the request, by model")
    ttft_seconds: dict[str, Seconds] = Field(default={}, description="Recent times to first token, by model")
    answer_seconds: dict[str, Seconds] = Field(
        default={}, description="Predicted time of the complete answer, by model"
    )


class ExplainedEntry(BaseModel):
    """One entry of a route, or of a route that it leads to."""

    route: str
    entry: str
    among: Literal["choose", "fallbacks"]
    share: float | None = Field(description="Share of requests like this one for which it is first; null: none")
    state: Literal["used", "skipped"]
    why: str = Field(description="Why it is skipped")


class ExplainedLeg(BaseModel):
    """A model that the request is sent to. Only `targets` may see it."""

    entry: str
    model: str
    pool: str
    regions: list[str] | None = Field(description="Regions where it may be served; null: anywhere")
    targets: list[str]
    may_be_late: bool = Field(
        description="Put last because it is predicted to take longer than the route's latency budget"
    )


class Explanation(BaseModel):
    """Where a route would send a request. `order` is the order of attempts; of equal entries the one with the highest
    weight is first.
    """

    route: str
    at: datetime
    order: list[ExplainedLeg]
    entries: list[ExplainedEntry]


def explain(route: RouteSpec, serving: Serving, request: RequestFields) -> Explanation:
    """Return where a route would send a request. No model is called, nothing is counted, and the turn of entries with
    equal weight does not advance. Raises InvalidRequest if the route is invalid.
    """
    for fault in find_faults(Serving({**serving.routes, route.id: route}, serving.models, serving.pools)):
        if fault.route == route.id:
            raise InvalidRequest(fault.message)
    at_ns = time.time_ns() if request.at is None else unix_ns(request.at)
    plan = plan_route(route, serving)
    reading = Reading(request.intent, request.complexity)
    asked = RequestFacts(
        tenant=request.tenant,
        at_ns=at_ns,
        tags=request.tags,
        region=request.region,
        conversation=request.conversation,
        output_limit=request.max_tokens,
        latency_budget_ms=request.latency_budget_ms,
        readings={fork.id: reading for fork in plan.readers},
    )
    resolver = Resolver(asked, _Stated(request), Turns(), takes_turns=False)
    order = resolver.order(plan)
    return Explanation(
        route=route.id,
        at=datetime.fromtimestamp(at_ns // _SECOND_NS, UTC),
        order=[_explained_leg(leg, order) for leg in order.legs],
        entries=list(_explained(resolver, plan, (), 1.0)),
    )


def _explained(
    resolver: Resolver, fork: CompiledRoute, outer: tuple[Condition, ...], share: float
) -> Iterator[ExplainedEntry]:
    """Yield a route's entries, each followed by those of the route that it leads to."""
    reasons = {id(branch): resolver.why_closed(fork, branch, outer) for branch in (*fork.choose, *fork.fallbacks)}
    weights = sum(branch.weight for branch in fork.choose if not reasons[id(branch)])
    for number, branch in enumerate((*fork.choose, *fork.fallbacks)):
        why, is_chosen = reasons[id(branch)], number < len(fork.choose)
        own = share * branch.weight / weights if is_chosen and not why else 0.0
        yield ExplainedEntry(
            route=fork.id,
            entry=branch.label,
            among="choose" if is_chosen else "fallbacks",
            share=round(own, 6) or None,
            state="skipped" if why else "used",
            why=why,
        )
        if isinstance(branch.to, CompiledRoute) and not why:
            yield from _explained(resolver, branch.to, (*outer, branch.when), own)


def _explained_leg(leg: RouteCandidate, order: Order) -> ExplainedLeg:
    return ExplainedLeg(
        entry=leg.label,
        model=leg.model.id,
        pool=leg.pool.id,
        regions=None if leg.regions is None else sorted(leg.regions),
        targets=[target.id for target in leg.pool.targets],
        may_be_late=leg.label in order.late,
    )


class _Stated:
    """The described values of each model."""

    def __init__(self, request: RequestFields) -> None:
        self._request = request

    def prompt_tokens(self, model: ModelSpec) -> int | None:
        return self._request.prompt_tokens

    def budget_left(self, model: ModelSpec) -> float | None:
        return self._request.budget_left.get(model.id)

    def cost_pico_usd(self, model: ModelSpec) -> int | None:
        cost = self._request.cost_usd.get(model.id)
        return 0 if cost is None else pico_usd(cost)  # a missing value excludes nothing

    def ttft_seconds(self, model: ModelSpec) -> float | None:
        return self._request.ttft_seconds.get(model.id)

    def answer_seconds(self, leg: RouteCandidate) -> float | None:
        return self._request.answer_seconds.get(leg.model.id)

    def may_probe(self, model: ModelSpec) -> bool:
        return False

    def begin_probe(self, model: ModelSpec) -> None:
        """Do nothing: no request is sent."""

    def leave_out(self, model: ModelSpec) -> None:
        """Do nothing: nothing is counted."""
