"""The life of a request: admit, guard, choose, call, guard, settle, record. Always settle, always record.

Ids and times are made here and nowhere else. Each stage is a neighbour with one verb; this file is their order.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Final

from backends.llm.base import ModelCall
from contracts.chat import GenerationRequest, ReasoningEffort, TranslatedChat
from contracts.configuration import KeyEntry, TargetSpec
from contracts.errors import ClientGone, InvalidUsage, MalformedBody, TollkeeperError, UnsupportedParameter
from contracts.identity import MAX_USER_LENGTH
from contracts.ids import uuid7
from gateway.allowance import Allowance
from gateway.clipping import is_unseen
from gateway.clock import Clock
from gateway.exchange import Exchange
from gateway.grant import Grant
from gateway.late_charges import reserve_late
from gateway.life import Attempt, Life
from gateway.operations import Operation
from gateway.reading import read_priority, read_retries, read_tags
from gateway.reply import Reply, ReplyFacts, send_error
from gateway.scheduling.pool_queue import PoolQueue
from gateway.scheduling.request import RANKS, QueuedRequest
from gateway.stages import Begun, Passage, Stages
from gateway.trace_context import TraceContext

_log = logging.getLogger(__name__)

# What a caller may say of a request beyond its body. Most say nothing, which is seen at one look.
OWN_HEADERS: Final = frozenset(
    (
        b"x-tollkeeper-run-id",
        b"x-tollkeeper-conversation-id",
        b"x-tollkeeper-tags",
        b"x-tollkeeper-priority",
    )
)


class Dispatcher:
    """Leads every request through the stages."""

    def __init__(self, stages: Stages, clock: Clock) -> None:
        self._stages = stages
        self._clock = clock
        self.open_grants = 0  # held by requests under way

    async def serve(
        self, exchange: Exchange, operation: Operation, key: KeyEntry | None = None, *, is_batched: bool = False
    ) -> None:
        """Serve one request from its arrival to its record. Never raises.

        `key` is whose it is where that is known already, as of a request that a batch holds. `is_batched`: the cards'
        prices for batches hold.
        """
        life = self._begin(exchange, operation)
        life.is_batched = is_batched
        passage = Passage()
        await self._lead(life, passage, exchange, operation, self._pass(life, passage, exchange, operation, key))

    async def carry_on(
        self,
        life: Life,
        passage: Passage,
        exchange: Exchange,
        operation: Operation,
        candidates: Sequence[TargetSpec],
        begun: Begun,
    ) -> None:
        """Serve a request that was admitted elsewhere to its end; `begun` says how its first try has ended there."""
        assert passage.reply is not None
        self.open_grants += passage.grant is not None
        call = self._model_call(life, operation, None)
        await self._lead(life, passage, exchange, operation, self._call(life, passage.reply, call, candidates, begun))

    async def _pass(
        self, life: Life, passage: Passage, exchange: Exchange, operation: Operation, key: KeyEntry | None
    ) -> None:
        """Lead a request through the stages up to the end of its answer. Raises what stops it on its way."""
        passage.reply = await self._understand(life, exchange, operation, key)
        passage.ticket = self._stages.admission.admit(life.who)
        call = await self._admit(life, passage, exchange, operation)
        life.admitted_ns = self._clock.monotonic_ns()
        assert life.model is not None
        await self._call(life, passage.reply, call, self._stages.router.choose(life.model, life.snapshot))

    async def _lead(
        self,
        life: Life,
        passage: Passage,
        exchange: Exchange,
        operation: Operation,
        way: Coroutine[None, None, None],
    ) -> None:
        """Go a request's way, and end it with its record, however that ends."""
        try:
            await way
        except asyncio.CancelledError:
            if passage.ended_by is None:
                self._fail(life, ClientGone("the client closed the connection before the answer was complete"))
            else:
                self._end_early(life, passage, passage.ended_by)
        except TollkeeperError as error:
            self._fail(life, error)
        except RecursionError:  # what the reading of a body just bore, its further way may not
            self._fail(life, MalformedBody("the body is nested too deeply"))
        except Exception:  # the edge of the data plane: one request's bug must not take the others down
            _log.exception("request failed by a fault of the gateway", extra={"request_id": str(life.id)})
            self._fail(life, TollkeeperError("the gateway failed; the request id helps its operators find out why"))
        life.ended_ns = self._clock.monotonic_ns()
        await self._settle(life, passage)
        life.response_bytes = exchange.bytes_sent
        if passage.reply is not None and life.attempts:
            self._prepare_end(life, passage.reply)
            if operation.keeps and life.error is None:
                await self._keep(life, passage.reply)
        try:
            self._stages.recorder.record(life)  # on disk before the client has its acknowledgement
        finally:
            self._conclude(life, exchange, operation, passage)

    def _prepare_end(self, life: Life, reply: Reply) -> None:
        """Look at the answer and render its end. Where that fails the client is told so: the record is made anyway."""
        try:
            life.tool_calls, life.schema_failed = reply.findings(is_complete=life.error is None)
            if life.error is None:
                life.response_bytes += reply.prepare_end(life.usage)
        except Exception:
            _log.exception("answer cannot be rendered", extra={"request_id": str(life.id)})
            self._fail(life, TollkeeperError("the gateway failed; the request id helps its operators find out why"))

    async def _keep(self, life: Life, reply: Reply) -> None:
        """Keep the answer, which is a good one also where that fails, and where the client does not wait for it."""
        keeping = asyncio.ensure_future(reply.keep())
        while not keeping.done():
            # The client's leaving ends nothing; a failure is told below.
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await asyncio.shield(keeping)
        error = asyncio.CancelledError() if keeping.cancelled() else keeping.exception()
        if error is not None:
            _log.error("an answer could not be kept", exc_info=error, extra={"request_id": str(life.id)})

    def _begin(self, exchange: Exchange, operation: Operation) -> Life:
        now = self._clock.wall_ns()
        trace = TraceContext.parse(exchange.header(b"traceparent"))
        return Life(
            id=uuid7(now),
            started_at_ns=now,
            began_ns=self._clock.monotonic_ns(),
            snapshot=self._stages.directory.snapshot,
            body=exchange.body,
            request_bytes=len(exchange.body),
            api=operation.api,
            operation=operation.name,
            trace_id=trace.trace_id,
            parent_span_id=trace.span_id,
            span_id=os.urandom(8) if trace.trace_id else b"",
        )

    async def _understand(self, life: Life, exchange: Exchange, operation: Operation, key: KeyEntry | None) -> Reply:
        """Find out who asks for what. Raises what is wrong with either."""
        authenticator = self._stages.authenticator
        key = key or authenticator.recognise(exchange, life.snapshot)
        if key is None:
            key = await authenticator.verify(exchange, life.snapshot)
        life.key, life.who = key, key.identity
        life.is_authenticated = True
        says_more = not OWN_HEADERS.isdisjoint(exchange.headers)
        if says_more:
            life.run_id = exchange.header(b"x-tollkeeper-run-id")[:100]
            life.conversation_id = exchange.header(b"x-tollkeeper-conversation-id")[:100]
        request = life.request = exchange.read or operation.read(exchange.header(b"content-type"), exchange.body)
        life.requested_model = request.model
        if operation.resolve is not None:
            self._stages.guard.before(key, request, life.api, life.snapshot)  # who may not ask learns of nothing kept
            request = life.request = await operation.resolve(request, key)
        tags: dict[str, str] = {}
        life.priority = key.policy.priority
        if says_more:
            tags = read_tags(exchange.header(b"x-tollkeeper-tags"))
            life.priority = read_priority(exchange.header(b"x-tollkeeper-priority"), life.priority)
        if tags or request.user:
            life.who = key.identity.with_caller((request.user or "")[:MAX_USER_LENGTH], tags)
        life.model = self._stages.guard.before(key, request, life.api, life.snapshot)
        if life.model.sampling is not None and isinstance(request, GenerationRequest):
            request, life.set_fields = life.model.sampling.apply(request)
            life.request = request
        created_unix = life.started_at_ns // 1_000_000_000
        return operation.reply(ReplyFacts(exchange, life.id, created_unix, self._clock), request)

    async def _admit(self, life: Life, passage: Passage, exchange: Exchange, operation: Operation) -> ModelCall:
        """Reserve what the request needs and wait for its turn; give the call as it may be made.

        Raises LimitExceeded, BudgetExhausted, QueueFull, ...
        """
        reply, limiter = passage.reply, self._stages.limiter
        assert reply is not None
        bounds = self._stages.guard.bounds(life.key, life.request, life.model)
        call = self._model_call(life, operation, bounds.reasoning_effort)
        retries = read_retries(exchange.header(b"x-stainless-retry-count"))
        grant = passage.grant = await limiter.reserve(life, partial(self._count_input, life, call), retries=retries)
        self.open_grants += grant is not None
        reply.add_headers(limiter.rate_headers(grant) + bounds.headers)
        if life.set_fields:
            reply.add_headers(((b"x-tollkeeper-set", ", ".join(life.set_fields).encode()),))
        passage.allowance = self._allowance(life, passage, grant)
        if passage.allowance is not None:
            reply.hold_to(passage.allowance)
            call.on_held = passage.allowance.hold
        assert life.model is not None
        queue = self._stages.queues.get(life.model.pool)
        if queue.spec is not None:
            await self._wait_for_turn(life, passage, call, queue)
        call.max_output = grant.max_output if grant is not None else None
        return call

    async def _wait_for_turn(self, life: Life, passage: Passage, call: ModelCall, queue: PoolQueue) -> None:
        """Wait until the model's pool has room and it is this tenant's turn. Raises QueueFull where it is shed."""
        assert passage.reply is not None
        size = await self._stages.limiter.size(life, passage.grant, partial(self._count_input, life, call))
        tenant = life.snapshot.tenants.get(life.who.tenant)
        began_ns = self._clock.monotonic_ns()
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
            life.wait_ns = self._clock.monotonic_ns() - began_ns
        passage.reply.tell(passage.place.produced)

    def _allowance(self, life: Life, passage: Passage, grant: Grant | None) -> Allowance | None:
        """Give what watches the answer grow, where anything bounds it."""
        thinking_cap = life.key.policy.max_thinking_tokens if life.key is not None else None
        if not isinstance(life.request, GenerationRequest) or (grant is None and thinking_cap is None):
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

    async def _count_input(self, life: Life, call: ModelCall) -> int | None:
        assert life.model is not None
        return await self._stages.targets.count_input(call, life.snapshot.pools[life.model.pool])

    async def _call(
        self,
        life: Life,
        reply: Reply,
        call: ModelCall,
        candidates: Sequence[TargetSpec],
        begun: Begun | None = None,
    ) -> None:
        """Try the candidates in order until one answers, or one fails in a way that no other can mend.

        Once the client has seen something, only a target that can continue the answer is a candidate. `begun` is how
        the first of them was tried already.
        """
        failure: TollkeeperError | None = None
        for spec in candidates:
            resumes = self._stages.targets.can_continue(spec, call.continuation)
            if reply.has_begun and not resumes:
                continue
            if not resumes:
                call.continuation = None
            attempt = self._begin_attempt(life, spec, reply, resumes=resumes)
            try:
                if begun is not None and begun.was_tried and attempt.number == 1:
                    attempt.started_at_ns, attempt.began_ns = begun.started_at_ns, begun.began_ns
                    attempt.result = begun.result(reply)
                else:
                    attempt.result = await self._stages.targets.get(spec).call(call, reply)
                self._stages.guard.after(attempt.result)
                return
            except asyncio.CancelledError:
                attempt.error = ClientGone("the client closed the connection before the answer was complete")
                raise
            except TollkeeperError as error:
                attempt.error = error
                is_refused = isinstance(error, UnsupportedParameter)  # what this target cannot do another may
                if not error.retryable and not is_refused:
                    raise
                failure = failure if is_refused and failure is not None else error
                _log.log(
                    logging.DEBUG if is_refused else logging.WARNING,
                    "target failed",
                    extra={"request_id": str(life.id), "target": spec.id, "code": error.error_code},
                )
            finally:
                attempt.ended_ns = self._clock.monotonic_ns()
                attempt.result = attempt.progress.account or attempt.result
            call.continuation = attempt.result.continuation
        assert failure is not None, "a pool has at least one target"
        raise failure

    def _begin_attempt(self, life: Life, spec: TargetSpec, reply: Reply, *, resumes: bool) -> Attempt:
        attempt = Attempt(
            number=len(life.attempts) + 1,
            target=spec,
            reason="first" if not life.attempts else "continuation" if resumes else "fallback",
            started_at_ns=self._clock.wall_ns(),
            began_ns=self._clock.monotonic_ns(),
        )
        life.attempts.append(attempt)
        reply.begin_attempt(attempt.progress, resumes=resumes)
        return attempt

    def _model_call(self, life: Life, operation: Operation, effort: ReasoningEffort | None) -> ModelCall:
        assert life.request is not None
        if isinstance(life.request, TranslatedChat):
            life.body = life.request.chat_body
        trace = TraceContext(life.trace_id, life.span_id)
        return ModelCall(
            request_id=life.id,
            path=operation.path,
            request=life.request,
            body=life.body,
            tenant=life.who.tenant,
            cache_salt=self._stages.authenticator.cache_salt(life.who.tenant),
            trace_parent=trace.header() if trace.trace_id else "",
            reasoning_effort=effort,
            set_fields=life.set_fields,
            priority=RANKS[life.priority],
        )

    def _fail(self, life: Life, error: TollkeeperError) -> None:
        life.error = error
        last = life.last_attempt
        if last is not None and last.error is None:
            last.error = error

    def _end_early(self, life: Life, passage: Passage, why: TollkeeperError) -> None:
        """End an answer that has used up what it may have: a good answer, cut."""
        task, reply, last = asyncio.current_task(), passage.reply, life.last_attempt
        assert task is not None and reply is not None and last is not None
        task.uncancel()
        last.error = None
        life.finish_reason = "length"
        reply.end_early(why)

    async def _settle(self, life: Life, passage: Passage) -> None:
        self.open_grants -= passage.grant is not None
        if passage.allowance is not None:
            passage.allowance.close()
        try:
            self._stages.settlement.settle(life)
        except InvalidUsage:
            # Counts no column can hold come from a broken target: the record shows them as unknown.
            _log.error("usage cannot be settled", extra={"request_id": str(life.id)})
        if passage.place is not None:
            passage.place.leave(input_tokens=life.usage.input_tokens, output_tokens=life.usage.output_tokens)
        if self._stages.limiter.store.is_shared:
            await reserve_late(life, passage.grant, self._stages.limiter.store, self._clock)
        self._stages.limiter.settle(life, passage.grant)
        if passage.ticket is not None:
            self._stages.admission.settle(passage.ticket, life.usage, life.cost)

    def _conclude(self, life: Life, exchange: Exchange, operation: Operation, passage: Passage) -> None:
        if life.error is not None:
            at_end = self._stages.limiter.headers_at_end(life, passage.grant)
            headers = ((b"x-request-id", str(life.id).encode()), *at_end)
            shape = operation.errors if passage.reply is None else passage.reply.errors(operation.errors)
            send_error(exchange, life.error, headers, shape)
        elif passage.reply is not None:
            passage.reply.conclude()
        passage.reply = passage.allowance = None  # they lead back here, and would wait for the cycle collector
