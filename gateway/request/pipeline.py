"""The stages of a request, in the order of a plan's list. A stage waits only if it has to."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from backends.llm.encoding_room import LARGE_BODY_BYTES
from backends.processes.at_once import at_once
from backends.segment_log.slot_table import NO_SLOT
from contracts.access.identity import MAX_USER_LENGTH
from contracts.api.chat import GenerationRequest, TranslatedChat
from contracts.api.embedding import TranslatedEmbedding
from contracts.api.media import MediaRequest, TranscriptionRequest
from contracts.api.requests import AnyRequest
from contracts.errors import InvalidRequest
from contracts.serving.configuration import KeyEntry, ModelSpec, TargetSpec
from contracts.serving.routes import RouteSpec
from gateway.apis.operations import CHAT
from gateway.guardrails.guardrails import Guardrails
from gateway.guardrails.request_guard import RequestGuard, cut_by
from gateway.limits.estimates.counting import prompt_bytes
from gateway.records.trace_context import UNTRACED
from gateway.replies.reply import GeneratedReply, Reply, ReplyFacts
from gateway.request.cascade import Cascades
from gateway.request.clock import Clock
from gateway.request.context import NO_CONTEXT, read_context
from gateway.request.journey import Journeys
from gateway.request.plans.plan import PlannedTarget, RequestPlan
from gateway.request.request_state import RequestState, Stage
from gateway.request.reserving import Reserving, expected_output
from gateway.request.stages import Stages
from gateway.routing.attempts.attempt_run import AttemptRun

_log = logging.getLogger(__name__)

_PATH: Final = CHAT.path


class Understand(Stage):
    """Identifies the caller, reads the body, finds the model or route, and runs the guardrails for requests."""

    def __init__(self, stages: Stages, clock: Clock) -> None:
        self._stages = stages
        self._clock = clock

    def run(self, life: RequestState) -> Awaitable[None] | None:
        return self._understand(life)

    async def _understand(self, life: RequestState) -> None:
        authenticator, exchange, operation = self._stages.authenticator, life.exchange, life.operation
        key = life.key or authenticator.recognise(exchange, life.snapshot)
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
        if isinstance(request, TranslatedEmbedding):
            life.body = request.embedding_body
        life.requested_model = request.model
        life.priority = key.policy.priority
        if operation.resolve is not None:
            # Who may not ask learns of nothing kept.
            self._stages.guard.find(key, request, operation.api, life.snapshot)
            request = life.request = await operation.resolve(request, key)
        if context.fault is not None:
            raise context.fault
        life.latency_budget_ms = context.latency_budget_ms
        life.priority = context.priority(life.priority)
        if context.tags or request.user:
            life.who = key.identity.with_caller((request.user or "")[:MAX_USER_LENGTH], context.tags)
        life.reply = await self._model_of(life, key, request)

    async def _model_of(self, life: RequestState, key: KeyEntry, request: AnyRequest) -> Reply:
        """Return the model that answers the requested model or route."""
        found = life.route_spec or self._stages.guard.find(key, request, life.operation.api, life.snapshot)
        if isinstance(found, RouteSpec):
            life.route_spec, life.route = found, found.id if life.rollout is None else life.rollout.route
        else:
            life.model, life.cache = found, None if isinstance(request, MediaRequest) else found.cache
        if life.snapshot.guardrails and life.arm != "shadow":  # its original passed, nobody sees its answer
            request = await self._guarded(life, request)
        if isinstance(found, ModelSpec) and found.sampling is not None and isinstance(request, GenerationRequest):
            request, life.set_fields = found.sampling.apply(request)
            life.request = request
        created_unix = life.started_at_ns // 1_000_000_000
        reply = life.operation.reply(ReplyFacts(life.exchange, life.id_text, created_unix, self._clock), request)
        if life.guard is not None and isinstance(request, TranscriptionRequest):
            _filter_transcript(life.guard, request, reply)
        elif life.guard is not None:
            _filter_answer(life.guard, life, reply)
        return reply

    async def _guarded(self, life: RequestState, request: AnyRequest) -> AnyRequest:
        """Run the guardrails that cover a request. Raise the error with which they block it."""
        guard = life.guard = self._stages.guardrails.guard_for(life, life.exchange)
        if guard is None or _passes(self._stages.guardrails, self._clock, guard, life):
            return request
        return await _examine(self._stages.guardrails, self._clock, guard, life)


def _passes(guardrails: Guardrails, clock: Clock, guard: RequestGuard, life: RequestState) -> bool:
    """Return whether guardrails surely find nothing in a request, and store how long that took."""
    guard.began_ns = clock.monotonic_ns()
    passes = guardrails.passes(guard, life)
    guard.spent_ns = clock.monotonic_ns() - guard.began_ns
    return passes


async def _examine(guardrails: Guardrails, clock: Clock, guard: RequestGuard, life: RequestState) -> AnyRequest:
    """Return the request as guardrails changed it, and store how long that took. Raise the error with which they block
    it.
    """
    try:
        return await guardrails.examine(guard, life, life.operation)
    finally:
        guard.spent_ns = clock.monotonic_ns() - guard.began_ns


def _filter_answer(guard: RequestGuard, life: RequestState, reply: Reply | None) -> None:
    """Route a generated answer through the guardrails first. They end a stream if they find what must not be sent."""
    if not isinstance(reply, GeneratedReply):
        return
    answer_filter = guard.filter_answer()
    if answer_filter is not None:
        reply.filter_by(answer_filter, lambda verdict: life.end_early(cut_by(verdict)))


def _filter_transcript(guard: RequestGuard, request: TranscriptionRequest, reply: Reply) -> None:
    """Have guardrails inspect a transcript once it is whole. Raise InvalidRequest if it is to come in pieces, and they
    may have to change it.
    """
    answer_filter = guard.filter_answer()
    if answer_filter is None:
        return
    if request.is_streamed and answer_filter.acts:
        raise InvalidRequest(
            "a guardrail may change this transcript, which needs all of it; leave out stream",
            param="stream",
            code="request_not_allowed",
        )
    reply.filter_words(answer_filter)


class Inspect(Stage):
    """Runs the guardrails for a planned request, which do not have to wait."""

    def __init__(self, stages: Stages, clock: Clock) -> None:
        self._guardrails = stages.guardrails
        self._clock = clock

    def run(self, life: RequestState) -> Awaitable[None] | None:
        guard = life.guard = self._guardrails.guard_for(life, life.exchange)
        if guard is None:
            return None
        if not guard.plan.is_immediate:  # by policies that have come since the plan was made
            life.plan = None
        if _passes(self._guardrails, self._clock, guard, life):
            _filter_answer(guard, life, life.reply)
            return None
        if life.plan is None:
            return self._inspect(life, guard)
        at_once(self._inspect(life, guard))
        return None

    async def _inspect(self, life: RequestState, guard: RequestGuard) -> None:
        """Continue with the request as guardrails changed it, and route its answer through them."""
        request = await _examine(self._guardrails, self._clock, guard, life)
        if guard.has_changed:
            life.request = request
            if isinstance(request, TranslatedChat):
                life.body = request.chat_body
            life.prompt_bytes = prompt_bytes(life.body)
            facts = ReplyFacts(life.exchange, life.id_text, life.started_at_ns // 1_000_000_000, self._clock)
            life.reply = life.operation.reply(facts, request)
        _filter_answer(guard, life, life.reply)


class Admit(Stage):
    """Takes a ticket, which guarantees that the journal has room for the request's record."""

    def __init__(self, stages: Stages) -> None:
        self._admission = stages.admission

    def run(self, life: RequestState) -> Awaitable[None] | None:
        life.ticket = self._admission.admit(life.who)
        return None


class Observe(Stage):
    """Copies or hashes the answer while it is sent, for tenants that store content or audit requests."""

    def __init__(self, stages: Stages) -> None:
        self._recorder = stages.recorder

    def run(self, life: RequestState) -> Awaitable[None] | None:
        reply, content, audit = life.reply, self._recorder.content, self._recorder.audit
        if reply is not None and content is not None and content.wants(life):
            content.watch(reply)
        if reply is not None and audit is not None and audit.wants(life):
            audit.watch(life, reply)
        return None


class FindWay(Stage):
    """Works out the fallback chain of a request for a route."""

    def __init__(self, stages: Stages) -> None:
        self._stages = stages

    def run(self, life: RequestState) -> Awaitable[None] | None:
        if life.route_spec is None:
            self._tell(life)
            return None
        return self._find(life, life.route_spec)

    async def _find(self, life: RequestState, route: RouteSpec) -> None:
        life.way = await self._stages.guide.begin(life, route)
        self._tell(life)

    def _tell(self, life: RequestState) -> None:
        assert life.reply is not None
        if life.route_state:
            life.reply.add_headers(((b"x-tollkeeper-route-state", life.route_state.encode()),))
        if life.rollout is not None:
            self._stages.rollouts.watch(life, life.reply)


class AnswerFromCache(Stage):
    """Answers with a cached response, if there is one. Then no further stage runs."""

    def __init__(self, stages: Stages, reserving: Reserving) -> None:
        self._stages = stages
        self._reserving = reserving

    def run(self, life: RequestState) -> Awaitable[None] | None:
        return None if life.cache is None else self._answer(life)

    async def _answer(self, life: RequestState) -> None:
        reply, answers = life.reply, self._stages.answers
        assert reply is not None
        lookup = life.cache_lookup = answers.begin(life)
        if await answers.answer(life, reply, lookup):
            life.grant = lookup.grant
            self._reserving.open_grants += life.grant is not None
            life.stages = ()


class Call(Stage):
    """Reserves for the request, waits for its turn, chooses a target and calls it, and another one if that fails.

    A planned request is sent at once if its counters have room and its target has an idle connection.
    """

    def __init__(
        self, stages: Stages, reserving: Reserving, clock: Clock, soon: Callable[[Callable[[], None]], None]
    ) -> None:
        self._stages = stages
        self._reserving = reserving
        self._clock = clock
        self._soon = soon
        self._journeys = Journeys(stages, reserving)
        self._cascades = Cascades(stages, reserving, clock)

    def run(self, life: RequestState) -> Awaitable[None] | None:
        plan, way = life.plan, life.way
        if plan is not None:
            if self._stages.limiter.reserve_at_once(life, plan, life.counted_input):
                self._reserving.open_grants += life.grant is not None
                return None if self._send(life, plan) else self._call(life)
            life.plan = None
        if way is not None:
            return self._cascades.go(life, way) if self._cascades.takes(life, way) else self._journeys.go(life, way)
        return self._reserve_and_call(life)

    async def _reserve_and_call(self, life: RequestState) -> None:
        assert life.model is not None and life.reply is not None
        call = await self._reserving.admit(life, life.snapshot.pools[life.model.pool])
        await self._stages.caller.call(life, life.reply, call, await self._reserving.candidates(life, call))

    async def _call(self, life: RequestState) -> None:
        """Call the targets of a request for which everything is reserved."""
        assert life.reply is not None
        self.prepare(life)
        call = self._reserving.held_call(life)
        await self._stages.caller.call(life, life.reply, call, life.candidates)

    def _send(self, life: RequestState, plan: RequestPlan) -> bool:
        """Send a request to its first candidate; return whether an idle connection was available."""
        to = plan.sole
        life.candidates = plan.candidates
        if to is None:
            life.candidates = self._ranked(life, plan)
            to = plan.targets[life.candidates[0].id]
        life.admitted_ns = self._clock.monotonic_ns()
        if to.target is None or not to.health.is_plain:
            return False
        self._begin(life, to)
        if life.sent is not None:
            to.health.pool.count_request()
            return True
        if life.run is not None:
            life.run.withdraw()
        life.attempts.clear()
        life.to = life.run = life.template = None
        if isinstance(life.reply, GeneratedReply):
            life.reply.hold_ends(None)  # a task sends them as they come
        return False

    def _ranked(self, life: RequestState, plan: RequestPlan) -> Sequence[TargetSpec]:
        """Return a plan's targets, best first, by the pool's routing policy."""
        router = self._stages.router
        if not plan.is_ranked:
            return router.choose(plan.model, plan.snapshot)
        choice = life.choice = router.rank_by_text(
            plan.model,
            plan.pool,
            life.body,
            self._stages.authenticator.cache_salt(plan.tenant),
            conversation_id=life.conversation_id,
            output_tokens=expected_output(life.output_limit),
            is_whole=not life.is_streamed,
        )
        return choice.candidates

    def _begin(self, life: RequestState, to: PlannedTarget) -> None:
        reply, recorder, target = life.reply, self._stages.recorder, to.target
        assert reply is not None and target is not None
        life.to, life.template = to, to.template
        run = life.run = AttemptRun(life, to.spec, "first", to.health, self._clock, life.admitted_ns, is_planned=True)
        reply.begin_attempt(run)
        plan, request = life.plan, life.request
        sink: GeneratedReply | None = None
        if life.is_streamed:
            assert isinstance(reply, GeneratedReply)
            sink = reply
            reply.hold_ends(self._soon)
        context = life.exchange.head.context
        trace = "" if context is NO_CONTEXT else context.trace_lines(life.id_bytes, has_spans=recorder.sends_spans)
        recorder.note_sent(life)
        try:
            assert request is not None
            if plan is not None and plan.is_native:
                assert isinstance(request, TranslatedChat) and isinstance(reply, GeneratedReply)
                life.sent = target.send_native_at_once(request, life.id_text, trace, reply, life)
            else:
                life.sent = target.send_at_once(_PATH, request, life.body, life.id_text, trace, sink, life)
        except Exception:  # a bug of sending at once is none of calling it in a task
            _log.exception("a request could not be sent at once", extra={"request_id": life.id_text})
        finally:
            if life.sent is None:
                recorder.forget_sent(life.sent_slot)
                life.sent_slot = NO_SLOT

    def prepare(self, life: RequestState) -> None:
        """Write the rate-limit headers of the answer and bound the answer by its limits. Runs once, after the request
        was sent.
        """
        reply, plan = life.reply, life.plan
        if life.is_prepared or reply is None or plan is None:
            return
        life.is_prepared = True
        self._stages.recorder.mark_prompt(life)  # while the target is at work
        if life.grant is not None:
            if plan.limits_told is None:
                reply.add_headers(self._stages.limiter.rate_headers(life.grant))
            else:  # as it stood when it was admitted
                first = life.grant.reservation.portions[0]
                reply.add_lines(plan.limits_told.told(first.at_ns, first.left or [], self._clock.wall_ns()))
        if plan.is_unseen and not life.is_streamed:
            return
        self._reserving.hold_to_limits(life)
        if life.sent is not None and life.is_streamed:
            if life.allowance is not None and life.run is not None:
                life.allowance.begin_attempt(life.run, 0)
            life.exchange.hold(life.sent.pause, life.sent.resume)
