"""What a request takes before a model is called with it, and gives back where it leaves the model for another."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from backends.llm.base import ModelCall
from contracts.api.chat import GenerationRequest, ReasoningEffort, TranslatedChat
from contracts.errors import InvalidUsage, LimitExceeded, TollkeeperError
from contracts.metering.usage import UNKNOWN_USAGE, Usage
from contracts.pricing.prices import UNPRICED, Cost
from contracts.rules.holds import RETRY_SECONDS, HeldFor, hold_on
from contracts.serving.configuration import PoolSpec, TargetSpec
from gateway.apis.operations import Operation
from gateway.apis.reading import read_retries
from gateway.limits.clipping import is_unseen
from gateway.limits.grant import Grant
from gateway.limits.queue.pool_queue import PoolQueue
from gateway.limits.queue.request import RANKS, QueuedRequest
from gateway.replies.allowance import Allowance
from gateway.request.charging import used_by
from gateway.request.clock import Clock
from gateway.request.context import trace_parent
from gateway.request.earlier_answers import EarlierAnswer, settle_earlier, used_earlier
from gateway.request.late_charges import reserve_late
from gateway.request.life import Attempt, Life
from gateway.request.stages import Passage, Stages
from gateway.wire.exchange import Exchange

_EXPECTED_OUTPUT: Final = 256  # tokens, by which replicas' decoding is compared where nothing smaller is asked for


class Admittance:
    """Reserves for a request, waits for its turn, and says which of the pool's targets are to be tried."""

    def __init__(self, stages: Stages, clock: Clock) -> None:
        self._stages = stages
        self._clock = clock
        self.open_grants = 0  # held by requests under way

    async def admit(
        self, life: Life, passage: Passage, exchange: Exchange, operation: Operation, pool: PoolSpec
    ) -> ModelCall:
        """Reserve what the request needs and wait for its turn; give the call as it may be made.

        `pool` has the targets that may see the prompt. Raises LimitExceeded, BudgetExhausted, QueueFull, ...
        """
        _shed_what_is_held(life, self._clock.wall_ns())
        reply, limiter = passage.reply, self._stages.limiter
        assert reply is not None
        bounds = self._stages.guard.bounds(life.key, life.request, life.model)
        call = self.model_call(life, operation, bounds.reasoning_effort)
        call.has_client_left = lambda: exchange.is_gone
        retries = read_retries(exchange.header(b"x-stainless-retry-count"))
        count_input = partial(self._stages.targets.count_input, call, pool)
        grant = passage.grant = await limiter.reserve(life, count_input, retries=retries)
        self.open_grants += grant is not None
        reply.add_headers(limiter.rate_headers(grant) + bounds.headers)
        if life.set_fields:
            reply.add_headers(((b"x-tollkeeper-set", ", ".join(life.set_fields).encode()),))
        self._hold_to_limits(life, passage, call)
        queue = self._stages.queues.get(pool.id)
        if queue.spec is not None:
            await self._wait_for_turn(life, passage, call, queue, pool)
        call.max_output = grant.max_output if grant is not None else None
        life.admitted_ns = self._clock.monotonic_ns()
        return call

    def take_over(
        self, life: Life, passage: Passage, operation: Operation, prepared: ModelCall | None = None
    ) -> ModelCall:
        """Give the call of a request that was let in elsewhere, its answer held to what is reserved for it."""
        self.open_grants += passage.grant is not None
        call = prepared or self.model_call(life, operation, None)
        self._hold_to_limits(life, passage, call)
        return call

    def leave(self, life: Life, passage: Passage) -> None:
        """Give back what was taken for a model that the request leaves: it is charged by the one that answers."""
        self.open_grants -= passage.grant is not None
        if passage.allowance is not None:
            passage.allowance.close()
        if passage.place is not None:
            passage.place.leave()
        self._stages.limiter.release(passage.grant)
        passage.is_let_go = passage.is_let_go or passage.grant is not None
        for attempt in life.attempts:
            attempt.is_left = True
        passage.grant = passage.allowance = passage.place = None
        life.limit = ""

    def set_aside(self, life: Life, passage: Passage, attempts: list[Attempt]) -> None:
        """Leave a model that has answered: its place and its slots are free, the rest is held and settled later.

        `attempts` are the model's, the last that with the answer.
        """
        if passage.allowance is not None:
            passage.allowance.close()
        if passage.place is not None:
            usage = self._stages.settlement.usage_so_far(attempts, life)
            passage.place.leave(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens)
        if passage.grant is not None:
            passage.grant.reservation.free_slots(self._clock.steady_ns())
        passage.earlier.append(EarlierAnswer(attempts, passage.grant))
        passage.grant = passage.allowance = passage.place = None
        for attempt in life.attempts:
            attempt.is_left = True

    async def reserve_late(self, life: Life, passage: Passage) -> None:
        """Reserve what the request used beyond its grants, where counters are shared. Raises nothing."""
        store = self._stages.limiter.store
        if not store.is_shared:
            return
        if passage.grant is not None:
            await reserve_late(used_by(life, passage.grant), passage.grant, store, self._clock)
        for earlier in passage.earlier:
            if earlier.grant is not None:
                used = used_earlier(earlier.attempts, earlier.grant, *self._answer_of(earlier, life))
                await reserve_late(used, earlier.grant, store, self._clock)

    def settle_earlier(self, life: Life, passage: Passage) -> None:
        """Charge the answers that were set aside, once the last is settled."""
        now_ns = self._clock.steady_ns()
        for earlier in reversed(passage.earlier):
            self.open_grants -= earlier.grant is not None
            settle_earlier(life, earlier, *self._answer_of(earlier, life), now_ns)

    async def candidates(
        self, life: Life, call: ModelCall, within: frozenset[str] | None = None
    ) -> Sequence[TargetSpec]:
        """Give the targets to try, best first; of `within` alone, by their ids, where that is stated."""
        assert life.model is not None and life.request is not None
        limit = life.request.output_limit
        choice = life.choice = await self._stages.router.rank(
            life.model,
            life.snapshot,
            call,
            conversation_id=life.conversation_id,
            output_tokens=_EXPECTED_OUTPUT if limit is None else min(limit, _EXPECTED_OUTPUT),
            within=within,
        )
        return choice.candidates

    def model_call(self, life: Life, operation: Operation, effort: ReasoningEffort | None) -> ModelCall:
        """Give the call of a request, with nothing reserved for it."""
        assert life.request is not None
        if isinstance(life.request, TranslatedChat):
            life.body = life.request.chat_body
        return ModelCall(
            request_id=life.id,
            path=operation.path,
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
        )

    async def _wait_for_turn(
        self, life: Life, passage: Passage, call: ModelCall, queue: PoolQueue, pool: PoolSpec
    ) -> None:
        """Wait until the model's pool has room and it is this tenant's turn. Raises QueueFull where it is shed."""
        assert passage.reply is not None
        count_input = partial(self._stages.targets.count_input, call, pool)
        size = await self._stages.limiter.size(life, passage.grant, count_input)
        tenant = life.snapshot.tenants.get(life.who.tenant)
        began_ns = self._clock.monotonic_ns()
        if life.queued_ns is None:
            life.queued_ns = began_ns
        try:
            passage.place = await queue.enter(
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
        passage.reply.tell(passage.place.produced)

    def _answer_of(self, earlier: EarlierAnswer, life: Life) -> tuple[Usage, Cost]:
        try:
            return self._stages.settlement.answer_of(earlier.attempts, life)
        except InvalidUsage:  # counts no column can hold come from a broken target
            return UNKNOWN_USAGE, UNPRICED

    def _hold_to_limits(self, life: Life, passage: Passage, call: ModelCall) -> None:
        life.reservation = None if passage.grant is None else passage.grant.reservation
        allowance = passage.allowance = self._allowance(life, passage, passage.grant)
        if allowance is not None and passage.reply is not None:
            passage.reply.hold_to(allowance)
            call.on_held = allowance.hold

    def _allowance(self, life: Life, passage: Passage, grant: Grant | None) -> Allowance | None:
        """Give what watches the answer grow, where anything bounds it."""
        thinking_cap = life.key.policy.max_thinking_tokens if life.key is not None else None
        if not isinstance(life.request, GenerationRequest):
            return None
        if grant is None and thinking_cap is None and life.request.output_limit is None:
            return None
        if is_unseen(life):
            return None
        task = asyncio.current_task()
        assert task is not None

        def end(why: TollkeeperError) -> None:
            if task.cancelling():  # the client has left: what was still under way must not make that a good end
                return
            passage.ended_by = why
            task.cancel()

        return self._stages.limiter.allowance(life, grant, thinking_cap, end)


def _shed_what_is_held(life: Life, now_ns: int) -> None:
    """Refuse what runs as a batch while an objective in danger asks for it. Raises LimitExceeded.

    As a limit, not as a failure: a failure would count against the objective, which would then never recover.
    """
    if not life.snapshot.holds or life.priority != "batch" or life.model is None:
        return
    who = HeldFor(life.who.tenant, life.route or life.model.id, (life.model.id,))
    hold = hold_on(life.snapshot.holds, "shed_batch", who, now_ns)
    if hold is not None:
        raise LimitExceeded(
            f"requests of class batch to {life.model.id!r} are held back while objective {hold.slo!r} is in danger; "
            f"try again in {RETRY_SECONDS:g} s, or ask in another class",
            code="batch_held",
            retry_after_seconds=RETRY_SECONDS,
        )
