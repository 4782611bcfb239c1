"""A chat on the short way: what it is, what it holds of counters and connections, and how a task goes on with it."""

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

from backends.llm.base import SendAgain
from backends.processes.native import mypyc_attr
from backends.segment_log.slot_table import NO_SLOT
from contracts.access.identity import Identity
from contracts.api.chat import ChatRequest
from contracts.api.generation import Result
from contracts.metering.usage import UNKNOWN_USAGE, Usage
from contracts.recording.records import GapClock
from contracts.rules.limits import PriorityClass
from contracts.serving.configuration import TargetSpec
from gateway.apis.operations import CHAT
from gateway.lane.endings import Following
from gateway.lane.lane_plan import LaneTarget, OpenLane
from gateway.limits.admission import Ticket
from gateway.limits.demand import MONEY, TOKENS
from gateway.limits.grant import Grant
from gateway.limits.reservation import Reservation
from gateway.records.sent_requests import NOT_SAID, STREAM, Growing
from gateway.replies.reply import Reply, ReplyFacts
from gateway.request.context import NO_CONTEXT, RequestContext
from gateway.request.request_state import RequestState
from gateway.wire.exchange import Exchange

if TYPE_CHECKING:
    from gateway.lane.quick_lane import QuickLane

PATH: Final = CHAT.path
AT_ONCE: Final = [0]


@mypyc_attr(acyclic=True)  # it leads to nothing that leads back
class LetIn:
    """What a request was let in with: a ticket, what it holds of its counters, and the tokens it may need."""

    __slots__ = ("ticket", "reservation", "prompt_bytes", "tokens_in", "tokens_out", "output_limit", "choices")

    def __init__(
        self,
        ticket: Ticket,
        reservation: Reservation | None,
        prompt_bytes: int,
        tokens_in: int,
        tokens_out: int,
        output_limit: int | None,
        choices: int,
    ) -> None:
        self.ticket = ticket
        self.reservation = reservation
        self.prompt_bytes = prompt_bytes
        self.tokens_in = tokens_in
        self.tokens_out = tokens_out
        self.output_limit = output_limit
        self.choices = choices

    def exceeds_money(self, cost: int | None) -> bool:
        """Return whether a known cost is more than is reserved of the rules that count money."""
        reservation = self.reservation
        if reservation is None or cost is None or not reservation.lines.counts_money:
            return False
        return cost > reservation.reserved(MONEY)


@mypyc_attr(acyclic=True)
class Arrival:
    """A request as it came: its bytes, who sent it and when, and its id."""

    __slots__ = ("exchange", "request", "context", "who", "priority", "id", "id_text", "started_at_ns", "began_ns")

    def __init__(
        self,
        exchange: Exchange,
        request: ChatRequest,
        context: RequestContext,
        who: Identity,  # with the end user and the tags that it names
        priority: PriorityClass,
        id: bytes,
        id_text: str,
        started_at_ns: int,  # Unix
        began_ns: int,  # monotonic
    ) -> None:
        self.exchange = exchange
        self.request = request
        self.context = context
        self.who = who
        self.priority = priority
        self.id = id
        self.id_text = id_text
        self.started_at_ns = started_at_ns
        self.began_ns = began_ns

    def trace_lines(self, *, has_spans: bool) -> str:
        """Return the header lines by which its target goes on with the caller's trace."""
        return "" if self.context is NO_CONTEXT else self.context.trace_lines(self.id, has_spans=has_spans)


@mypyc_attr(allow_interpreted_subclasses=True)  # as its base
class LaneRequest(Following):
    """A chat that was let in on the short way. What is out of the ordinary goes on in a task, as any other request.

    It also tells the task what became of the first try. Times are monotonic nanoseconds but for `started_at_ns`.
    """

    __slots__ = (
        "lane",
        "arrival",
        "exchange",
        "request",
        "open",
        "let_in",
        "candidates",
        "to",
        "started_at_ns",
        "began_ns",
        "admitted_ns",
        "slot",
        "task",
        "has_task_begun",
        "is_left",
        "outcome",
        "again",
    )

    def __init__(
        self,
        lane: "QuickLane",
        arrival: Arrival,
        opened: OpenLane,
        let_in: LetIn,
        candidates: Sequence[TargetSpec],
        to: LaneTarget,
    ) -> None:
        self.lane = lane
        self.arrival = arrival
        self.exchange = arrival.exchange
        self.request = arrival.request
        self.open = opened
        self.let_in = let_in
        self.candidates = candidates
        self.to = to
        self.started_at_ns = arrival.started_at_ns
        self.began_ns = arrival.began_ns
        self.admitted_ns = 0
        self.slot = NO_SLOT  # its entry among the requests that are with a target
        self.task: asyncio.Task[None] | None = None
        self.has_task_begun = False
        self.is_left = False  # by the client, before the task had begun
        self.outcome: Result | BaseException | None = None  # of the first try, once it has ended
        self.again: SendAgain | None = None

    # what tells a task of the first try

    @property
    def attempt_began_ns(self) -> int:
        """Return when it was sent to its target."""
        return self.admitted_ns

    @property
    def was_tried(self) -> bool:
        """Return whether there was a first try, or the client has left before another."""
        return self.outcome is not None or self.is_left

    def tried(self) -> Result:
        """Return the first try's account. Raise what it failed with."""
        if self.is_left or self.outcome is None:
            raise asyncio.CancelledError
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome

    def learn_pace(self, first_at_ns: int | None, ended_ns: int, output_tokens: int) -> None:
        """Let routes know how fast its model was."""
        if self.open.snapshot.routes:
            paces = self.lane.stages.guide.paces
            paces.learn(self.open.model.id, self.admitted_ns, first_at_ns, ended_ns, output_tokens)

    # the way to a task

    def note_sent(self, growing: Growing | None) -> None:
        """Write down that it is about to be sent to its target."""
        sent = self.lane.stages.recorder.sent
        self.admitted_ns = self.lane.monotonic_ns()
        if sent is None:
            return
        let_in, arrival = self.let_in, self.arrival
        reservation = let_in.reservation
        self.slot = sent.begin(
            arrival.id,
            self.started_at_ns,
            self.admitted_ns - self.began_ns,
            len(self.exchange.body),
            self.open.forecast.expected_input(let_in.prompt_bytes),
            let_in.output_limit,
            reservation,
            NOT_SAID if reservation is None else reservation.reserved(TOKENS),
            let_in.choices,
            STREAM if self.request.stream else 0,
            self.to.sent_record if self._says_no_more else self._packed_so_far(),
            growing,
        )

    @property
    def _says_no_more(self) -> bool:
        """Whether its record says of the caller what those of all requests of its key say."""
        return self.arrival.context is NO_CONTEXT and self.arrival.who is self.open.identity

    def _packed_so_far(self) -> bytes:
        return self.packed(0, "", "", UNKNOWN_USAGE, None, None, 0, None, ([], []), None, None, b"", "none")

    def life(self, tokens_out: int) -> RequestState:
        """Return the facts of it, as the dispatcher has them of any request that was admitted, and what it holds."""
        arrival, opened, let_in = self.arrival, self.open, self.let_in
        context, exchange = arrival.context, self.exchange
        id = UUID(bytes=arrival.id)
        life = RequestState(exchange, CHAT, id, arrival.started_at_ns, arrival.began_ns, opened.snapshot)
        life.key, life.who, life.is_authenticated = opened.key, arrival.who, True
        life.request, life.requested_model, life.model = arrival.request, arrival.request.model, opened.model
        life.admitted_ns, life.sent_slot = self.admitted_ns, self.slot
        life.follow(context.trace, has_spans=self.lane.stages.recorder.sends_spans)
        life.run_id, life.conversation_id = context.run_id, context.conversation_id
        life.latency_budget_ms, life.priority = context.latency_budget_ms, arrival.priority
        facts = ReplyFacts(exchange, id, self.started_at_ns // 1_000_000_000, self.lane.clock)
        life.reply, life.ticket = CHAT.reply(facts, self.request), let_in.ticket
        if let_in.reservation is not None:
            life.grant = Grant(let_in.reservation, opened.rates, let_in.tokens_in, tokens_out)
        return life

    def begin_task(self, life: RequestState) -> None:
        """Leave the rest to a task."""
        reply: Reply | None = life.reply
        assert reply is not None
        reply.add_headers(self.lane.stages.limiter.rate_headers(life.grant))
        self.task = self.lane.start(self._go_on(life))

    async def _go_on(self, life: RequestState) -> None:
        self.has_task_begun = True
        again = self.again
        try:
            if again is not None and again.may is not None and not self.is_left and not await again.may():
                self.outcome = again.failure
        except asyncio.CancelledError:
            self.is_left = True
        try:
            await self.take_the_rest(life)
        finally:
            self.task = self.outcome = self.again = None  # they lead back here

    @abstractmethod
    async def take_the_rest(self, life: RequestState) -> None:
        """Go the rest of the way in a task."""

    # its record

    def packed(
        self,
        duration_ns: int,
        finish_reason: str,
        model_version: str,
        usage: Usage,
        cost: int | None,
        charged: int | None,
        response_bytes: int,
        reserved: int | None,
        charges: tuple[list[int], list[int]],
        overdraft: int | None,
        ttft_ns: int | None,
        gaps: bytes,
        gap_clock: GapClock,
    ) -> bytes:
        """Return its packed record."""
        arrival, let_in = self.arrival, self.let_in
        context = arrival.context
        offsets, tokens = charges
        return self.to.template.pack(
            (
                arrival.id,
                self.started_at_ns,
                duration_ns,
                arrival.who,
                finish_reason,
                bool(self.request.stream),
                model_version,
                ttft_ns,
                self.admitted_ns - self.began_ns,
                gaps,
                gap_clock,
                usage,
                cost,
                charged,
                let_in.output_limit,
                let_in.choices,
                self.request.temperature,
                len(self.exchange.body),
                response_bytes,
                reserved,
                context.trace.trace_id,
                context.span_id(arrival.id),
                context.run_id,
                context.conversation_id,
                arrival.priority,
                offsets,
                tokens,
                overdraft,
            )
        )

    def charges(self) -> tuple[list[int], list[int]]:
        """Return when tokens were charged, in nanoseconds from the start, and how many."""
        reservation = self.let_in.reservation
        if reservation is None:
            return ([], [])
        portions = reservation.portions
        if len(portions) == 1:
            tokens = portions[0].charged_tokens
            return (AT_ONCE, [tokens]) if tokens else ([], [])
        charged = [portion for portion in portions if portion.charged_tokens]
        began_ns = portions[0].at_ns  # taken as the request began
        offsets = [max(portion.at_ns - began_ns, 0) for portion in charged]
        return offsets, [portion.charged_tokens for portion in charged]
