"""The short way of whole chats that one server answers: from the request to its sending in one turn, without a task.

It does what `gateway/request/dispatch.py` does, in the same order and with the same neighbours, where nothing can be
to wait
for: the key is known, the counters are this process's and have the room, a connection is idle. Whatever else may be
(`LanePlan` says what) is left to the dispatcher before anything is taken, or goes on there.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Final

from backends.llm.encoding_room import LARGE_BODY_BYTES
from backends.processes.native import mypyc_attr
from contracts.access.identity import MAX_USER_LENGTH
from contracts.api.chat import ChatRequest
from contracts.errors import TollkeeperError
from contracts.recording.ids import IdSource
from contracts.serving.configuration import Snapshot, TargetSpec
from gateway.apis.operations import CHAT
from gateway.lane.endings import Endings
from gateway.lane.lane_plan import LanePlan, OpenLane, plan_lane
from gateway.lane.lane_request import Arrival, LetIn
from gateway.lane.plain_stream import PlainStream
from gateway.lane.prepared_call import PreparedCall, prepare_at_once
from gateway.lane.quick_call import QuickCall
from gateway.lane.quick_hit import Answered, QuickHits
from gateway.lane.quick_stream import QuickStream
from gateway.lane.record_shapes import KeptShapes
from gateway.limits.clipping import most_output
from gateway.limits.demand import Amounts
from gateway.limits.estimates.counting import prompt_bytes
from gateway.limits.reservation import Reservation, take_at_once
from gateway.replies.answer_facts import facts_wanted
from gateway.request.clock import Clock
from gateway.request.context import NO_CONTEXT, has_context, read_context, read_trace
from gateway.request.dispatch import Dispatcher
from gateway.request.stages import Stages
from gateway.wire.exchange import Exchange, RequestHead

_MAX_PLANS: Final = 10_000
_read_chat: Final = CHAT.read  # under its own name: every chat's way leads through it

Start = Callable[[Coroutine[None, None, None]], "asyncio.Task[None]"]


@mypyc_attr(allow_interpreted_subclasses=True)  # tests watch it
class QuickLane:
    """Takes the requests that may go the short way. `start` starts a task for one that has to leave it."""

    def __init__(self, stages: Stages, dispatcher: Dispatcher, clock: Clock, start: Start) -> None:
        self.stages = stages
        self.dispatcher = dispatcher
        self.clock = clock
        self.wall_ns, self.monotonic_ns, self.steady_ns = clock.wall_ns, clock.monotonic_ns, clock.steady_ns
        self._directory, self._counters = stages.directory, stages.limiter.store
        self._admission = stages.admission
        self.start = start
        self.ids = IdSource()
        self.endings = Endings(stages.recorder, self._prepare_next)
        self.hits = QuickHits(stages, clock, self.ids, self.endings)
        self.open_grants = 0  # held by requests under way
        # By Authorization header and model, of one snapshot.
        self._plans: dict[tuple[bytes, str], LanePlan] = {}
        self._plans_of: Snapshot | None = None
        # The last one asked for: mostly the next is the same, which takes less to see than to look up.
        self._last_sent, self._last_model = b"", ""
        self._last_plan: LanePlan | None = None
        self._shapes = KeptShapes()
        self._generation = 0  # of the counters that plans have in hand
        self._stale: tuple[bytes, str] | None = None  # a plan that is better made again

    def take(self, exchange: Exchange) -> QuickCall | PlainStream | QuickStream | Answered | None:
        """Begin a chat here; `None`, with nothing taken, where it has to go the long way."""
        head = exchange.head
        if head.is_plain is None:
            _look(head)
        if not head.is_plain or len(exchange.body) > LARGE_BODY_BYTES:
            return None
        started_at_ns, began_ns = self.wall_ns(), self.monotonic_ns()
        sent = head.authorization
        question = self.hits.known(sent, exchange.body)
        request = _read(exchange) if question is None else question.request
        plan = None if request is None else self._lane_for(sent, request.model, started_at_ns)
        if request is None or plan is None:
            return None
        if question is not None and (plan.shelf is None or question.context is not plan.shelf.context):
            question, request = None, _read(exchange)  # it was known under another configuration
            if request is None:
                return None
        if plan.shelf is not None:
            if head.context is not NO_CONTEXT or request.user:
                return None
            return self.hits.answer(plan.shelf, exchange, request, question, started_at_ns, began_ns)
        opened = plan.lane
        if opened is None:
            return None
        newer = request.max_completion_tokens
        limit = request.max_tokens if newer is None else newer  # `output_limit`, without asking
        if limit is not None and opened.context_tokens is not None and limit > opened.context_tokens:
            return None  # to be refused
        made, text = self.ids.next(started_at_ns)
        arrival = _arrival(exchange, request, opened, made, text, started_at_ns, began_ns)
        if arrival is None:
            return None
        prepared: PreparedCall | None = None
        if opened.is_counted:
            prepared = prepare_at_once(self.stages, opened, arrival)
            if prepared is None:
                return None
        tokens_in = None if prepared is None else prepared.tokens_in
        let_in = self._let_in(exchange.body, request, opened, limit, self.steady_ns(), tokens_in)
        if let_in is None:
            return None
        try:
            candidates: Sequence[TargetSpec] = opened.candidates
            to = opened.sole
            if to is None:
                candidates = self.stages.router.choose(opened.model, opened.snapshot)
                to = opened.targets[candidates[0].id]
            if request.stream and prepared is None and PlainStream.takes(request, opened, to):
                plain = PlainStream(self, arrival, opened, let_in, candidates, to)
                if plain.send():
                    return plain
            if request.stream or prepared is not None:
                model_call = None if prepared is None else prepared.call
                stream = QuickStream(self, arrival, opened, let_in, candidates, to, model_call)
                stream.begin()
                return stream
            call = QuickCall(self, arrival, opened, let_in, candidates, to)
            is_sent = call.send()
        except BaseException:
            self._let_out(let_in)
            raise
        if not is_sent:
            call.go_on(None)
        return call

    def _lane_for(self, sent: bytes, model: str, now_ns: int) -> LanePlan | None:
        snapshot = self._directory.snapshot
        if self._plans_of is not snapshot:
            self._plans_of = snapshot
            self._forget_plans()  # what is kept of another would keep it alive
        last = self._last_plan
        if last is not None and now_ns < last.stale_ns and sent == self._last_sent and model == self._last_model:
            return last
        plan = self._plans.get((sent, model))
        if plan is None or now_ns >= plan.until_ns:
            self._let_counters_go()
            key = self.stages.authenticator.known(sent, snapshot)
            if key is None:
                return None  # the dispatcher is about to know it, or to refuse it
            if len(self._plans) >= _MAX_PLANS:
                self._forget_plans()
            plan = self._plans[sent, model] = plan_lane(self.stages, self._shapes, key, model, now_ns)
        elif now_ns >= plan.stale_ns:
            self._stale = (sent, model)
        self._last_sent, self._last_model, self._last_plan = sent, model, plan
        return plan

    def _let_counters_go(self) -> None:
        """Forget plans where the store looks for counters that nobody asks: plans would keep them alive."""
        if self._generation != self._counters.generation:
            self._generation = self._counters.generation
            self._forget_plans()

    def _forget_plans(self) -> None:
        self._plans.clear()
        self._last_plan = None

    def _prepare_next(self) -> None:
        """Do what the next requests would have to do first, while nobody waits."""
        self.ids.refill()
        self._let_counters_go()
        stale, self._stale = self._stale, None
        if stale is not None:
            self.freshen(*stale, self.wall_ns())

    def freshen(self, sent: bytes, model: str, now_ns: int) -> None:
        """Make a plan again that is stale by now."""
        plan = self._plans.get((sent, model))
        if plan is None or now_ns < plan.stale_ns:
            return
        snapshot = self._directory.snapshot
        key = self.stages.authenticator.known(sent, snapshot)
        if key is not None and self._plans_of is snapshot:
            self._plans[sent, model] = plan_lane(self.stages, self._shapes, key, model, self.wall_ns())

    def _let_out(self, let_in: LetIn) -> None:
        """Take back what `_let_in` has just taken."""
        self.open_grants -= let_in.reservation is not None
        self._admission.settle(let_in.ticket)
        if let_in.reservation is not None:
            let_in.reservation.undo()

    def _let_in(
        self,
        body: bytes,
        request: ChatRequest,
        opened: OpenLane,
        limit: int | None,
        now_ns: int,
        counted: int | None,
    ) -> LetIn | None:
        """Take what the request needs of every counter, and a ticket; `None` where that takes more than a look.

        `limit` is on its output, `counted` its prompt's tokens, `None` where they are estimated.
        """
        size, choices = prompt_bytes(body), request.n or 1
        tokens_in = tokens_out = 0
        reservation: Reservation | None = None
        if opened.lines is not None:
            lines, forecast = opened.lines, opened.forecast
            more: Amounts | None = None
            if lines.counts_tokens:
                tokens_in = forecast.input_tokens(size, now_ns)
                if counted is not None:
                    tokens_in = counted
                elif tokens_in > lines.most_input:
                    tokens_in = lines.most_input
                each = forecast.output_tokens
                tokens_out = (each if limit is None or each < limit else limit) * choices
                more = opened.rates.of_more(most_output(request, opened.model) if limit is None else limit * choices)
            wanted = opened.rates.at_start(tokens_in, tokens_out)
            portion = take_at_once(lines, wanted, now_ns, more) if lines.allow(wanted) else None
            if portion is None:
                return None
            reservation = Reservation(lines, [portion])
            if lines.capping and not portion.has_more:
                reservation.undo()
                return None
        try:
            ticket = self._admission.admit(opened.identity)
        except TollkeeperError:
            if reservation is not None:
                reservation.undo()
            return None
        self.open_grants += reservation is not None
        return LetIn(ticket, reservation, size, tokens_in, tokens_out, limit, choices)


def _look(head: RequestHead) -> None:
    """Find out whether a head comes with a key and JSON, and what it says beside that."""
    headers = head.headers
    content_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    head.is_plain = content_type == b"application/json" and b"authorization" in headers
    if head.is_plain and has_context(headers):
        context = head.context = read_context(headers, read_trace(headers))
        head.is_plain = context.fault is None and context.latency_budget_ms is None


def _arrival(
    exchange: Exchange,
    request: ChatRequest,
    opened: OpenLane,
    made: bytes,
    text: str,
    started_at_ns: int,
    began_ns: int,
) -> Arrival | None:
    """Say who asks; `None` where the class that is asked for is none, or is held back."""
    context, who, priority = exchange.head.context, opened.identity, opened.key.policy.priority
    if context is not NO_CONTEXT:
        try:
            priority = context.priority(priority)
        except TollkeeperError:
            return None
        if priority == "batch" and opened.snapshot.holds:
            return None  # what objectives in danger hold back is told on the long way
    if context.tags or request.user:
        who = who.with_caller((request.user or "")[:MAX_USER_LENGTH], context.tags)
    return Arrival(exchange, request, context, who, priority, made, text, started_at_ns, began_ns)


def _read(exchange: Exchange) -> ChatRequest | None:
    """Read a chat that asks for nothing that has to be looked for in its answer."""
    try:
        request = _read_chat("application/json", exchange.body)
    except (TollkeeperError, RecursionError):
        return None  # and read once more by whoever says what is wrong with it
    exchange.read = request
    if type(request) is not ChatRequest or request.service_tier or request.speed:
        return None
    is_looked_into = bool(request.tools or request.response_format) and facts_wanted(request) is not None
    return None if is_looked_into else request
