"""Reserve limits and budgets before a model is called, and release them if the request moves to another model."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from backends.llm.base import ModelCall
from contracts.api.chat import GenerationRequest, ReasoningEffort, TranslatedChat
from contracts.errors import InvalidUsage, LimitExceeded
from contracts.metering.usage import UNKNOWN_USAGE, Usage
from contracts.pricing.prices import UNPRICED, Cost
from contracts.rules.holds import RETRY_SECONDS, HeldFor, hold_on
from contracts.serving.configuration import PoolSpec, TargetSpec
from gateway.apis.reading import read_retries
from gateway.limits.clipping import is_unseen
from gateway.limits.queue.pool_queue import PoolQueue
from gateway.limits.queue.request import RANKS, QueuedRequest
from gateway.limits.reservation import Grant
from gateway.replies.allowance import Allowance
from gateway.request.attempt import Attempt
from gateway.request.charges.charging import EarlierAnswer, reserve_late, settle_earlier, used_by, used_earlier
from gateway.request.clock import Clock
from gateway.request.context import trace_parent
from gateway.request.request_state import RequestState
from gateway.request.stages import Stages

_EXPECTED_OUTPUT: Final = 256  # tokens, by which replicas' decoding is compared where nothing smaller is asked for


class Reserving:
    """Reserves for a request, waits for its turn in the pool's queue, and ranks the pool's targets."""

    def __init__(self, stages: Stages, clock: Clock) -> None:
        self._stages = stages
        self._clock = clock
        self.open_grants = 0  # held by requests in progress

    async def admit(self, life: RequestState, pool: PoolSpec) -> ModelCall:
        """Reserve what the request needs and wait for its turn; return the call to make.

        `pool` holds the targets that may see the prompt. Raise LimitExceeded, BudgetExhausted or QueueFull.
        """
        _shed_what_is_held(life, self._clock.wall_ns())
        reply, limiter = life.reply, self._stages.limiter
        assert reply is not None
        bounds = self._stages.guard.bounds(life.key, life.request, life.model)
        call = self.model_call(life, bounds.reasoning_effort)
        retries = read_retries(life.exchange.header(b"x-stainless-retry-count"))
        count_input = partial(self._stages.targets.count_input, call, pool)
        grant = life.grant = await limiter.reserve(life, count_input, retries=retries)
        self.open_grants += grant is not None
        reply.add_headers(limiter.rate_headers(grant) + bounds.headers)
        if life.set_fields:
            reply.add_headers(((b"x-tollkeeper-set", ", ".join(life.set_fields).encode()),))
        self.hold_to_limits(life)
        if life.allowance is not None:
            call.on_held = life.allowance.hold
        queue = self._stages.queues.get(pool.id)
        if queue.spec is not None:
            await self._wait_for_turn(life, call, queue, pool)
        call.max_output = grant.max_output if grant is not None else None
        life.admitted_ns = self._clock.monotonic_ns()
        return call

    def held_call(self, life: RequestState) -> ModelCall:
        """Return the call of a request that has a reservation. The reservation limits the length of the answer."""
        call = self.model_call(life, None) if life.call is None else life.call
        if life.allowance is not None:
            call.on_held = life.allowance.hold
        return call

    def hold_to_limits(self, life: RequestState) -> None:
        """Limit the answer to its reservation, if a limit or budget applies."""
        allowance = life.allowance = self._allowance(life, life.grant)
        if allowance is not None and life.reply is not None:
            life.reply.hold_to(allowance)

    def leave(self, life: RequestState) -> None:
        """Release the reservation for a model that the request stops using. Only models that answered are charged."""
        self.open_grants -= life.grant is not None
        if life.allowance is not None:
            life.allowance.close()
        if life.place is not None:
            life.place.leave()
        self._stages.limiter.release(life.grant)
        life.is_let_go = life.is_let_go or life.grant is not None
        for attempt in life.attempts:
            attempt.is_left = True
        life.grant = life.allowance = life.place = None
        life.limit = ""

    def set_aside(self, life: RequestState, attempts: list[Attempt]) -> None:
        """Stop using a model that has answered, because another model is called next.

        Free its concurrency slot now, and charge its usage when the request ends.

        `attempts` are that model's attempts; the last one has the answer.
        """
        if life.allowance is not None:
            life.allowance.close()
        if life.place is not None:
            usage = self._stages.settlement.usage_so_far(attempts, life)
            life.place.leave(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens)
        if life.grant is not None:
            life.grant.reservation.free_slots(self._clock.steady_ns())
        life.earlier = (*life.earlier, EarlierAnswer(attempts, life.grant))
        life.grant = life.allowance = life.place = None
        for attempt in life.attempts:
            attempt.is_left = True

    def holds_all(self, life: RequestState) -> bool:
        """Return whether everything that a priced request used is reserved here; if not, ask the shared counters."""
        grant = life.grant
        if grant is None or not self._stages.limiter.store.is_shared:
            return True
        used, reservation = used_by(life, grant), grant.reservation
        return reservation.covers(used) or reservation.extend(reservation.lacking(used), self._clock.steady_ns())

    async def reserve_late(self, life: RequestState) -> None:
        """Reserve the usage of the request beyond its grants, if counters are shared. Raise no error."""
        store = self._stages.limiter.store
        if not store.is_shared:
            return
        if life.grant is not None:
            await reserve_late(used_by(life, life.grant), life.grant, store, self._clock)
        for earlier in life.earlier:
            if earlier.grant is not None:
                used = used_earlier(earlier.attempts, earlier.grant, *self._answer_of(earlier, life))
                await reserve_late(used, earlier.grant, store, self._clock)

    def settle_earlier(self, life: RequestState) -> None:
        """Charge the answers of models that were set aside, after the last answer was settled."""
        now_ns = self._clock.steady_ns()
        for earlier in reversed(life.earlier):
            self.open_grants -= earlier.grant is not None
            settle_earlier(life, earlier, *self._answer_of(earlier, life), now_ns)

    async def candidates(
        self, life: RequestState, call: ModelCall, within: frozenset[str] | None = None
    ) -> Sequence[TargetSpec]:
        """Return the targets to try, best first. `within` limits them to these target ids."""
        assert life.model is not None and life.request is not None
        choice = life.choice = await self._stages.router.rank(
            life.model,
            life.snapshot,
            call,
            conversation_id=life.conversation_id,
            output_tokens=expected_output(life.request.output_limit),
            within=within,
        )
        return choice.candidates

    def model_call(self, life: RequestState, effort: ReasoningEffort | None) -> ModelCall:
        """Return the call of a request without a reservation."""
        assert life.request is not None
        if isinstance(life.request, TranslatedChat):
            life.body = life.request.chat_body
        return ModelCall(
            request_id=life.id,
            path=life.operation.path,
            request=life.request,
            body=life.body,
            tenant=life.who.tenant,
            cache_salt=self._stages.authenticator.cache_salt(life.who.tenant),
            trace_parent=trace_parent(life.trace, life.span_id, 0) if life.span_id else "",
            trace_state=life.trace.state,
            reasoning_effort=effort,
            set_fields=life.set_fields,
            priority=RANKS[life.priority],
            max_thinking=None if life.key is None else life.key.policy.max_thinking_tokens,
            has_client_left=life.has_client_left,
        )

    async def _wait_for_turn(self, life: RequestState, call: ModelCall, queue: PoolQueue, pool: PoolSpec) -> None:
        """Wait until the pool has capacity and it is this tenant's turn. Raise QueueFull if the queue sheds the
        request.
        """
        assert life.reply is not None
        count_input = partial(self._stages.targets.count_input, call, pool)
        size = await self._stages.limiter.size(life, life.grant, count_input)
        tenant = life.snapshot.tenants.get(life.who.tenant)
        began_ns = self._clock.monotonic_ns()
        if life.queued_ns is None:
            life.queued_ns = began_ns
        try:
            life.place = await queue.enter(
                QueuedRequest(
                    life.who.tenant,
                    input_tokens=size.input_tokens,
                    reserved_tokens=size.input_tokens + size.output_tokens,
                    priority=life.priority,
                    weight=1 if tenant is None else tenant.weight,
                )
            )
        finally:
            life.wait_ns = (life.wait_ns or 0) + self._clock.monotonic_ns() - began_ns
        life.reply.tell(life.place.produced)

    def _answer_of(self, earlier: EarlierAnswer, life: RequestState) -> tuple[Usage, Cost]:
        try:
            return self._stages.settlement.answer_of(earlier.attempts, life)
        except InvalidUsage:  # counts no column can hold come from a broken target
            return UNKNOWN_USAGE, UNPRICED

    def _allowance(self, life: RequestState, grant: Grant | None) -> Allowance | None:
        """Return the allowance that limits the growing answer, if a limit or budget applies."""
        thinking_cap = life.key.policy.max_thinking_tokens if life.key is not None else None
        if not isinstance(life.request, GenerationRequest):
            return None
        if grant is None and thinking_cap is None and life.request.output_limit is None:
            return None
        if is_unseen(life):
            return None
        return self._stages.limiter.allowance(life, grant, thinking_cap, life.end_early)


def expected_output(limit: int | None) -> int:
    """Return the number of output tokens for comparing replicas: the caller's limit, at most 256."""
    return _EXPECTED_OUTPUT if limit is None or limit > _EXPECTED_OUTPUT else limit


def _shed_what_is_held(life: RequestState, now_ns: int) -> None:
    """Refuse batch requests while they are stopped to protect an SLO at risk. Raise LimitExceeded.

    It is a limit and not a failure: a failure would count against the SLO, which could then never recover.
    """
    if not life.snapshot.holds or life.priority != "batch" or life.model is None:
        return
    who = HeldFor(life.who.tenant, life.route or life.model.id, (life.model.id,))
    hold = hold_on(life.snapshot.holds, "shed_batch", who, now_ns)
    if hold is not None:
        raise LimitExceeded(
            f"requests of class batch to {life.model.id!r} are held back while objective {hold.slo!r} is at risk; "
            f"try again in {RETRY_SECONDS:g} s, or ask in another class",
            code="batch_held",
            retry_after_seconds=RETRY_SECONDS,
        )
