"""The current state of models for one request, from counters, price cards and measurements."""

from collections.abc import Callable

from contracts.api.chat import GenerationRequest
from contracts.rules.limits import BudgetSpec
from contracts.serving.configuration import ModelSpec, PoolSpec
from gateway.limits.demand import MONEY
from gateway.limits.estimates.counting import prompt_bytes
from gateway.limits.limiter import Limiter
from gateway.request.clock import Clock
from gateway.request.request_state import RequestState
from gateway.routing.routes.pace import PaceBook
from gateway.routing.routes.route_plan import RouteCandidate

Waits = Callable[[PoolSpec], int | None]  # nanoseconds


class LiveModelState:
    """The current state of models for one request. Nothing is reserved, and repeated questions are answered from
    memory.
    """

    def __init__(
        self, life: RequestState, limiter: Limiter, paces: PaceBook, clock: Clock, waits: Waits | None = None
    ) -> None:
        """Accept the sources. `waits` predicts the wait (ns) at a pool's targets; `None`: there is no prediction."""
        self._life = life
        self._limiter = limiter
        self._paces = paces
        self._clock = clock
        self._waits = waits
        self._size = -1

    def prompt_tokens(self, model: ModelSpec) -> int | None:
        """Estimate the prompt from its size, by the tokens of this tenant's earlier prompts to the model."""
        if self._size < 0:
            self._size = prompt_bytes(self._life.body)
        return self._limiter.inputs.estimate(model.id, self._size, self._life.who.tenant)

    def budget_left(self, model: ModelSpec) -> float | None:
        """Return the smallest share left of the budgets in money or GPU time that would count the request."""
        life, limiter = self._life, self._limiter
        plan = limiter.plans.plan_for(life.who, model.id, life.snapshot)
        if plan.is_empty:
            return None
        now_ns = limiter.steady_ns()
        lines = plan.lines_for(limiter.store, life.who, model.id, life.conversation_id)
        shares = [
            max(counter.state(now_ns).remaining, 0) / counter.rule.amount
            for counter, _ in lines.all
            if isinstance(counter.rule, BudgetSpec)
        ]
        return min(shares, default=None)

    def cost_pico_usd(self, model: ModelSpec) -> int | None:
        """Return what would be reserved for the request, in pico-USD."""
        life, limiter = self._life, self._limiter
        tokens_in, generates = self.prompt_tokens(model) or 0, isinstance(life.request, GenerationRequest)
        rates = limiter.quotes.rates(
            model,
            life.who.tenant,
            tokens_in,
            life.snapshot,
            self._clock.wall_ns(),
            generates=generates,
            tier=life.asked_tier,
        )
        return rates.at_start(tokens_in, self._output_tokens(model))[MONEY] if rates.is_priced else None

    def ttft_seconds(self, model: ModelSpec) -> float | None:
        """Return the time within which most of the model's answers started, in seconds."""
        return self._paces.ttft_seconds(model.id)

    def answer_seconds(self, leg: RouteCandidate) -> float | None:
        """Return the seconds that an answer of usual length takes from this model, including the current queue."""
        wait_ns = None if self._waits is None else self._waits(leg.pool)
        return self._paces.answer_seconds(leg.model.id, self._output_tokens(leg.model), (wait_ns or 0) / 1e9)

    def may_probe(self, model: ModelSpec) -> bool:
        """Return whether a probe of a late model is due, and this request may be it."""
        states_budget = self._life.latency_budget_ms is not None
        return self._paces.is_probe_due(model.id, self._clock.monotonic_ns(), states_budget=states_budget)

    def begin_probe(self, model: ModelSpec) -> None:
        """Record that the request goes to a late model as its probe."""
        self._paces.begin_probe(model.id, self._clock.monotonic_ns())

    def leave_out(self, model: ModelSpec) -> None:
        """Count that the request goes elsewhere because the model is late."""
        self._paces.leave_out(model.id)

    def _output_tokens(self, model: ModelSpec) -> int:
        request = self._life.request
        if not isinstance(request, GenerationRequest):
            return 0
        outputs, tenant = self._limiter.outputs, self._life.who.tenant
        return outputs.estimate(tenant, model.id, request.output_limit, request.choice_count)
