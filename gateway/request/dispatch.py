"""The life of a request: admit, guard, choose, call, guard, settle, record. Always settle, always record.

Ids and times are made here and nowhere else. Each stage is a neighbour with one verb; this file is their order.
"""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Sequence
from typing import Final

from backends.llm.base import ModelCall, SentAhead
from backends.llm.encoding_room import LARGE_BODY_BYTES
from contracts.access.identity import MAX_USER_LENGTH
from contracts.api.chat import GenerationRequest
from contracts.api.requests import AnyRequest
from contracts.errors import ClientGone, ContentFiltered, GatewayFault, InvalidUsage, MalformedBody, TollkeeperError
from contracts.recording.ids import uuid7
from contracts.serving.configuration import KeyEntry, ModelSpec, TargetSpec
from contracts.serving.rollouts import RolloutSpec
from contracts.serving.routes import RouteSpec
from gateway.apis.operations import CHAT, Operation
from gateway.guardrails.request_guard import RequestGuard, cut_by
from gateway.limits.clipping import bound_of
from gateway.records.content import ContentKeeper
from gateway.records.trace_context import UNTRACED
from gateway.replies.reply import GeneratedReply, Reply, ReplyFacts
from gateway.request.admittance import Admittance
from gateway.request.cascade import Cascades
from gateway.request.clock import Clock
from gateway.request.context import read_context, read_trace
from gateway.request.decisions import add_decision
from gateway.request.journey import Journeys
from gateway.request.request_state import RequestState
from gateway.request.stages import Stages
from gateway.routing.attempts.begun import Begun
from gateway.routing.attempts.caller import tell_how_far
from gateway.wire.error_answer import send_error
from gateway.wire.exchange import Exchange
from gateway.wire.public_errors import public_error

_log = logging.getLogger(__name__)

_TOLD_LIMITS: Final = frozenset(("openai_http", "litellm"))  # kinds of targets that make an answer by themselves


class Dispatcher:
    """Leads every request through the stages."""

    def __init__(self, stages: Stages, clock: Clock) -> None:
        self._stages = stages
        self._clock = clock
        self._admittance = Admittance(stages, clock)
        self._journeys = Journeys(stages, self._admittance)
        self._cascades = Cascades(stages, self._admittance, clock)

    @property
    def open_grants(self) -> int:
        """Give how many grants are held by requests under way."""
        return self._admittance.open_grants

    async def serve(
        self, exchange: Exchange, operation: Operation, key: KeyEntry | None = None, *, is_batched: bool = False
    ) -> None:
        """Serve one request from its arrival to its record. Never raises.

        `key` is whose it is where that is known already, as of a request that a batch holds. `is_batched`: the cards'
        prices for batches hold.
        """
        life = self._begin(exchange, operation)
        life.is_batched = is_batched
        await self._lead(life, self._pass(life, key))

    async def serve_shadow(
        self, exchange: Exchange, key: KeyEntry, route: RouteSpec, rollout: RolloutSpec
    ) -> RequestState:
        """Serve a copy of a chat along a route that nobody else may ask for; give its life. Never raises."""
        life = self._begin(exchange, CHAT)
        life.rollout, life.arm, life.route_spec = rollout, "shadow", route
        await self._lead(life, self._pass(life, key))
        return life

    async def go_on(
        self,
        life: RequestState,
        candidates: Sequence[TargetSpec],
        *,
        sent: SentAhead | None = None,
        prepared: ModelCall | None = None,
        begun: Begun | None = None,
        is_held_to_limits: bool = True,
    ) -> None:
        """Serve a request that was admitted elsewhere to its end.

        Its call is perhaps `prepared`, its stream perhaps `sent` to the first candidate, or has ended there as `begun`
        says.
        """
        assert life.reply is not None
        call = self._admittance.take_over(life, prepared, is_held_to_limits=is_held_to_limits)
        call.sent = sent
        try:
            await self._lead(life, self._stages.caller.call(life, life.reply, call, candidates, begun))
        finally:
            if sent is not None:
                sent.abandon()

    async def _pass(self, life: RequestState, key: KeyEntry | None) -> None:
        """Lead a request through the stages up to the end of its answer. Raises what stops it on its way."""
        life.reply = await self._understand(life, key)
        life.ticket = self._stages.admission.admit(life.who)
        if (keeper := self._content_keeper(life)) is not None:
            keeper.watch(life.reply)
        if (audit := self._stages.recorder.audit) is not None and audit.wants(life):
            audit.watch(life, life.reply)
        way = None if life.route_spec is None else await self._stages.guide.begin(life, life.route_spec)
        if life.route_state:
            life.reply.add_headers(((b"x-tollkeeper-route-state", life.route_state.encode()),))
        if life.rollout is not None:
            self._stages.rollouts.watch(life, life.reply)
        if life.cache is not None and await self._answer_again(life):
            return
        if way is not None:
            leader = self._cascades if self._cascades.takes(life, way) else self._journeys
            await leader.go(life, way)
            return
        assert life.model is not None
        call = await self._admittance.admit(life, life.snapshot.pools[life.model.pool])
        await self._stages.caller.call(life, life.reply, call, await self._admittance.candidates(life, call))

    async def _answer_again(self, life: RequestState) -> bool:
        """Answer with an answer that was kept of an earlier request; say whether there was one."""
        reply, answers = life.reply, self._stages.answers
        assert reply is not None
        visit = life.visit = answers.begin(life)
        if not await answers.answer(life, reply, visit):
            return False
        life.grant = visit.grant
        self._admittance.open_grants += life.grant is not None
        return True

    async def _lead(self, life: RequestState, way: Coroutine[None, None, None]) -> None:
        """Go a request's way, and end it with its record, however that ends."""
        exchange, operation = life.exchange, life.operation
        life.task = asyncio.current_task()
        try:
            await way
            if life.reply is not None:
                await life.reply.flushed()
            if life.guard is not None:
                await self._inspect(life)
        except asyncio.CancelledError:
            if life.ended_by is None:
                self._leave(life)
            else:
                await self._end_early(life, life.ended_by)
        except TollkeeperError as error:
            if life.ended_by is None:
                self._fail(life, error)
            else:  # the gateway had ended the answer, and what its target did before it was stopped changes nothing
                await self._be_cancelled()
                await self._end_early(life, life.ended_by)
        except RecursionError:  # what the reading of a body just bore, its further way may not
            self._fail(life, MalformedBody("the body is nested too deeply"))
        except Exception:  # the edge of the data plane: one request's bug must not take the others down
            _log.exception("request failed by a fault of the gateway", extra={"request_id": str(life.id)})
            self._fail(life, GatewayFault())
            if life.ended_by is not None:
                await self._be_cancelled()
        life.ended_ns = self._clock.monotonic_ns()
        await self._settle(life)
        if life.snapshot.routes:
            self._learn_paces(life)
        life.response_bytes = exchange.bytes_sent
        if life.reply is not None and life.attempts:
            self._prepare_end(life, life.reply)
        elif life.reply is not None and life.is_hit:
            life.response_bytes += life.reply.end_bytes
        if life.choice is not None and life.choice.sample is not None:
            add_decision(life, "replica", life.choice.sample.facts())
        if life.rollout is not None:
            await self._stages.rollouts.look(life, exchange, life.reply)
        try:
            # On disk before the client has its acknowledgement, and in the turn in which it was settled: whoever takes
            # down what counters hold, together with the journal's end, finds it there.
            self._stages.recorder.record(life)
            if (keeper := self._content_keeper(life)) is not None:
                keeper.keep(life, life.reply)
            if (audit := self._stages.recorder.audit) is not None and audit.wants(life):
                audit.note(life, exchange, life.reply)
            if operation.keeps and life.reply is not None and life.error is None and (life.attempts or life.is_hit):
                await self._keep(life, life.reply)
        finally:
            self._conclude(life)

    def _learn_paces(self, life: RequestState) -> None:
        """Let routes know how fast the models were that answered."""
        for attempt in life.attempts:
            model = life.model if attempt.model is None else attempt.model
            if attempt.error is None and model is not None:
                self._stages.guide.paces.learn(
                    model.id,
                    attempt.began_ns,
                    attempt.progress.first_at_ns,
                    attempt.ended_ns,
                    attempt.result.usage.output_tokens,
                )

    def _content_keeper(self, life: RequestState) -> ContentKeeper | None:
        keeper = self._stages.recorder.content
        return keeper if keeper is not None and keeper.wants(life) else None

    def _prepare_end(self, life: RequestState, reply: Reply) -> None:
        """Look at the answer and render its end. Where that fails the client is told so: the record is made anyway."""
        try:
            life.tool_calls, life.schema_failed = reply.findings(is_complete=life.error is None)
            if life.error is None:
                life.response_bytes += reply.prepare_end(life.usage)
        except Exception:
            _log.exception("answer cannot be rendered", extra={"request_id": str(life.id)})
            self._fail(life, GatewayFault())

    async def _keep(self, life: RequestState, reply: Reply) -> None:
        """Keep the answer, which is a good one also where that fails, and where the client does not wait for it."""
        keeping = asyncio.ensure_future(reply.keep())
        while not keeping.done():
            # The client's leaving ends nothing; a failure is told below.
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await asyncio.shield(keeping)
        error = asyncio.CancelledError() if keeping.cancelled() else keeping.exception()
        if error is not None:
            _log.error("an answer could not be kept", exc_info=error, extra={"request_id": str(life.id)})

    def _begin(self, exchange: Exchange, operation: Operation) -> RequestState:
        now = self._clock.wall_ns()
        id, snapshot = uuid7(now), self._stages.directory.snapshot
        life = RequestState(exchange, operation, id, now, self._clock.monotonic_ns(), snapshot)
        life.follow(read_trace(exchange.headers), has_spans=self._stages.recorder.sends_spans)
        return life

    async def _understand(self, life: RequestState, key: KeyEntry | None) -> Reply:
        """Find out who asks for what. Raises what is wrong with either."""
        authenticator, exchange, operation = self._stages.authenticator, life.exchange, life.operation
        key = key or authenticator.recognise(exchange, life.snapshot)
        if key is None:
            key = await authenticator.verify(exchange, life.snapshot)
        life.key, life.who = key, key.identity
        life.is_authenticated = True
        context = read_context(exchange.headers, UNTRACED)
        life.run_id, life.conversation_id = context.run_id, context.conversation_id
        request = exchange.read
        if request is None:
            content_type = exchange.header(b"content-type")
            read = operation.reader(exchange, life.snapshot)
            if len(exchange.body) <= LARGE_BODY_BYTES:
                request = read(content_type, exchange.body)
            else:
                bodies = self._stages.bodies
                request = await bodies.read(read, content_type, exchange.body, life.who.tenant)
        life.request = request
        life.requested_model = request.model
        life.priority = key.policy.priority
        if operation.resolve is not None:
            self._stages.guard.find(
                key, request, life.operation.api, life.snapshot
            )  # who may not ask learns of nothing kept
            request = life.request = await operation.resolve(request, key)
        if context.fault is not None:
            raise context.fault
        life.latency_budget_ms = context.latency_budget_ms
        life.priority = context.priority(life.priority)
        if context.tags or request.user:
            life.who = key.identity.with_caller((request.user or "")[:MAX_USER_LENGTH], context.tags)
        found = life.route_spec or self._stages.guard.find(key, request, life.operation.api, life.snapshot)
        if isinstance(found, RouteSpec):
            life.route_spec, life.route = found, found.id if life.rollout is None else life.rollout.route
        else:
            life.model, life.cache = found, found.cache
        if life.snapshot.guardrails and life.arm != "shadow":  # its original passed, nobody sees its answer
            request = await self._guarded(life, request)
        if isinstance(found, ModelSpec) and found.sampling is not None and isinstance(request, GenerationRequest):
            request, life.set_fields = found.sampling.apply(request)
            life.request = request
        created_unix = life.started_at_ns // 1_000_000_000
        reply = operation.reply(ReplyFacts(exchange, life.id, created_unix, self._clock), request)
        if life.guard is not None and isinstance(reply, GeneratedReply):
            self._filter_answer(life.guard, life, reply)
        return reply

    async def _guarded(self, life: RequestState, request: AnyRequest) -> AnyRequest:
        """Lead a request through the guardrails that cover it. Raises what refuses it."""
        guard = life.guard = self._stages.guardrails.guard_for(life, life.exchange)
        if guard is None:
            return request
        guard.began_ns = began_ns = self._clock.monotonic_ns()
        try:
            return await self._stages.guardrails.examine(guard, life, life.operation)
        finally:
            guard.spent_ns = self._clock.monotonic_ns() - began_ns

    @staticmethod
    def _filter_answer(guard: RequestGuard, life: RequestState, reply: GeneratedReply) -> None:
        """Let guardrails see the answer first, and end a stream in which they find what must not go out."""
        answer_filter = guard.filter_answer()
        if answer_filter is not None:
            reply.filter_by(answer_filter, lambda verdict: life.end_early(cut_by(verdict)))

    async def _inspect(self, life: RequestState) -> None:
        """Let guardrails see the end of an answer, which they may stop."""
        if life.ended_by is not None:
            await asyncio.sleep(0)  # this task is cancelled: it learns of it here
        if life.reply is None or life.is_hit:
            return
        verdict = await life.reply.inspect()
        if verdict is not None:
            why = cut_by(verdict)
            life.finish_reason = why.ends_with
            life.reply.end_early(why)

    @staticmethod
    async def _be_cancelled() -> None:
        """Take the cancellation by which an answer is ended early, before it could interrupt what must be done yet."""
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)

    def _fail(self, life: RequestState, error: TollkeeperError) -> None:
        life.error = error
        last = life.last_attempt
        if last is not None and last.error is None:
            last.error = error

    def _leave(self, life: RequestState) -> None:
        """Take note that the answer was cancelled: by the client, which has left, or by the gateway, which stops."""
        error = life.exchange.cut_by
        if error is None:
            self._fail(life, ClientGone("the client closed the connection before the answer was complete"))
            return
        if (task := asyncio.current_task()) is not None:
            task.uncancel()
        if life.reply is not None and life.reply.has_begun:
            tell_how_far(error, life)
        self._fail(life, error)
        for attempt in life.attempts:
            if isinstance(attempt.error, ClientGone):  # all that a cancelled attempt can know
                attempt.error = error

    async def _end_early(self, life: RequestState, why: TollkeeperError) -> None:
        """End an answer that has used up what it may have: a good answer, cut."""
        task, reply, last = asyncio.current_task(), life.reply, life.last_attempt
        assert task is not None and reply is not None and last is not None
        task.uncancel()
        last.error = None
        if life.allowance is not None and life.allowance.is_over:
            life.delivered_tokens = life.allowance.delivered
        if life.guard is not None and not isinstance(why, ContentFiltered):
            try:
                verdict = await reply.inspect()
            except asyncio.CancelledError:
                self._leave(life)
                return
            why = why if verdict is None else cut_by(verdict)
        life.finish_reason = why.ends_with
        reply.end_early(why)

    async def _settle(self, life: RequestState) -> None:
        self._admittance.open_grants -= life.grant is not None
        last = life.last_attempt
        if last is not None and last.is_left:
            life.model = last.model or life.model  # a later one was refused, or left, before it was called
        if life.allowance is not None:
            life.allowance.close()
        try:
            self._stages.settlement.settle(life)
        except InvalidUsage:
            # Counts no column can hold come from a broken target: the record shows them as unknown.
            _log.error("usage cannot be settled", extra={"request_id": str(life.id)})
        self._note_thinking(life)
        if life.place is not None:
            life.place.leave(input_tokens=life.usage.input_tokens, output_tokens=life.usage.output_tokens)
        if self._stages.limiter.store.is_shared:
            await self._admittance.reserve_late(life)
        self._stages.limiter.settle(life, life.grant)
        self._note_limit(life)
        if life.is_let_go and life.owes_nothing:
            life.charged_pico_usd = 0  # what a failed model used is on no rule, as with every try that failed
        if life.earlier:
            self._admittance.settle_earlier(life)
        if life.ticket is not None:
            self._stages.admission.settle(life.ticket)

    @staticmethod
    def _public_error(life: RequestState, error: TollkeeperError) -> TollkeeperError:
        """Return the error as the caller may see it; what is kept back is logged for the operators."""
        shown = public_error(
            error,
            model=life.requested_model,
            request_id=str(life.id),
            body=life.body,
            targets=[attempt.target for attempt in life.attempts],
        )
        if shown is not error and not life.attempts:  # else the line of its last attempt has it
            _log.warning(
                "request failed",
                extra={"request_id": str(life.id), "code": error.error_code, "reason": error.log_message},
            )
        return shown

    def _note_thinking(self, life: RequestState) -> None:
        """Say on the record, and in the head of a whole answer, that a model has thought beyond the key's cap."""
        cap = None if life.key is None else life.key.policy.max_thinking_tokens
        thought = life.usage.output_reasoning
        if cap is None or thought is None or thought <= cap or life.is_hit:
            return
        life.thinking_over = thought - cap
        if life.reply is not None:
            said = ((b"x-tollkeeper-thinking-tokens", b"%d" % thought), (b"x-tollkeeper-thinking-cap", b"%d" % cap))
            life.reply.add_headers(said)

    def _note_limit(self, life: RequestState) -> None:
        """Let the target's health know whether it honours the max_tokens that it was told."""
        last = life.last_attempt
        if last is None or last.is_left or last.target.kind not in _TOLD_LIMITS:
            return
        each, _ = bound_of(life, life.grant)
        made = last.usage.output_tokens
        if each is None or made is None or life.request is None:
            return
        is_ignored = made > each * life.request.choice_count
        if is_ignored or last.result.finish_reason == "length":
            health = self._stages.caller.health.of(last.target)
            health.note_limit(self._clock.monotonic_ns(), is_ignored=is_ignored)

    def _conclude(self, life: RequestState) -> None:
        exchange, operation = life.exchange, life.operation
        if life.error is not None:
            at_end = self._stages.limiter.headers_at_end(life, life.grant)
            headers = ((b"x-request-id", str(life.id).encode()), *at_end)
            shape = operation.errors if life.reply is None else life.reply.errors(operation.errors)
            send_error(exchange, self._public_error(life, life.error), headers, shape)
        elif life.reply is not None:
            life.reply.conclude()
        if life.visit is not None:
            self._stages.answers.end(life, life.reply, life.visit, life.grant)
        # They lead back here, and would wait for the cycle collector, with all of the request's body.
        life.reply = life.allowance = life.task = None
        for error in (life.error, *[attempt.error for attempt in life.attempts]):
            if error is not None:
                error.__traceback__ = None
