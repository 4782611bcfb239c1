"""One whole chat on its short way: sent as it came, its reply read, recorded, passed on and settled in one turn."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from backends.llm.base import SendAgain
from backends.llm.quick_target import SentRequest
from backends.native import mypyc_attr
from backends.slot_table import NO_SLOT
from contracts.chat import ChatRequest
from contracts.configuration import TargetSpec
from contracts.generation import Result
from gateway.admission import Ticket
from gateway.exchange import Exchange
from gateway.lane.endings import Ending, Following, Lesson
from gateway.lane.lane_life import life_of, passage_of
from gateway.lane.lane_plan import LaneTarget, OpenLane
from gateway.life import Life
from gateway.limits.demand import MONEY, NOTHING, TOKENS, Amounts
from gateway.limits.headers import rate_headers
from gateway.limits.reservation import Reservation
from gateway.operations import CHAT
from gateway.progress import Progress
from gateway.recorder import WholeRequest
from gateway.reply import Reply, ReplyFacts
from gateway.sent_requests import NOT_SAID, STREAM, Growing, SentRequests
from gateway.stages import Passage

if TYPE_CHECKING:
    from gateway.lane.quick_lane import QuickLane

_AT_ONCE: Final = [0]
_PATH: Final = CHAT.path


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


class QuickCall(Following):
    """A request under way. What is out of the ordinary goes on in a task, as any other request does.

    It also tells the task what became of the first try.
    """

    __slots__ = (
        "_lane",
        "_exchange",
        "_request",
        "_open",
        "_let_in",
        "_candidates",
        "_to",
        "_id",
        "_id_text",
        "started_at_ns",
        "began_ns",
        "_admitted_ns",
        "_body",
        "_answered_by",
        "_is_over",
        "_sent",
        "_limits_told",
        "_task",
        "_has_task_begun",
        "_is_left",
        "_outcome",
        "_again",
        "_used",
        "_finish_reason",
        "_duration_ns",
        "_slot",
    )

    def __init__(
        self,
        lane: "QuickLane",
        exchange: Exchange,
        request: ChatRequest,
        open: OpenLane,
        let_in: LetIn,
        candidates: Sequence[TargetSpec],
        to: LaneTarget,
        id: bytes,
        id_text: str,
        started_at_ns: int,  # Unix
        began_ns: int,  # monotonic, as the next
        admitted_ns: int = 0,
        body: bytes = b"",
        answered_by: tuple[str, str] = ("", ""),
        is_over: bool = False,
        sent: SentRequest | None = None,
        limits_told: bytes = b"",
        task: asyncio.Task[None] | None = None,
        has_task_begun: bool = False,
        is_left: bool = False,  # by the client, before the task had begun
        outcome: Result | BaseException | None = None,  # of the first try, once it has ended
        again: SendAgain | None = None,
        used: Amounts = NOTHING,  # of what is counted
        finish_reason: str = "",
        duration_ns: int = 0,
    ) -> None:
        self._lane = lane
        self._exchange = exchange
        self._request = request
        self._open = open
        self._let_in = let_in
        self._candidates = candidates
        self._to = to
        self._id = id
        self._id_text = id_text
        self.started_at_ns = started_at_ns
        self.began_ns = began_ns
        self._admitted_ns = admitted_ns
        self._body = body
        self._answered_by = answered_by
        self._is_over = is_over
        self._sent = sent
        self._limits_told = limits_told
        self._task = task
        self._has_task_begun = has_task_begun
        self._is_left = is_left
        self._outcome = outcome
        self._again = again
        self._used = used
        self._finish_reason = finish_reason
        self._duration_ns = duration_ns
        self._slot = NO_SLOT  # its entry among the requests that are with a target

    def send(self) -> bool:
        """Send it to the first of the candidates; say whether that could take it, and had a connection for it."""
        self._admitted_ns = self._lane.monotonic_ns()
        target = self._to.target
        if target is None or not self._to.health.is_plain:
            return False
        self._slot = note_sent(
            self._lane.stages.recorder.sent,
            self._open,
            self._to,
            self._let_in,
            self._request,
            len(self._exchange.body),
            self._id,
            self.started_at_ns,
            self._admitted_ns - self.began_ns,
            None,
        )
        try:
            self._sent = target.send_at_once(_PATH, self._request, self._exchange.body, self._id_text, None, self)
        except BaseException:
            self._lane.stages.recorder.forget_sent(self._slot)
            raise
        if self._sent is None:
            return False
        self._lane.endings.once_sent(self)
        return True

    def prepare(self) -> None:
        reservation, told = self._let_in.reservation, self._open.limits_told
        if reservation is not None and told is not None:  # as it stood when it was let in
            first = reservation.portions[0]
            self._limits_told = told.told(first.at_ns, first.left or ())

    def cancel(self) -> None:
        """End it: the client has left."""
        if self._task is None:
            if not self._is_over:
                self.go_on(asyncio.CancelledError())
        elif self._has_task_begun:
            self._task.cancel()
        else:
            self._is_left = True  # one that is cancelled before its first step would never take what it is given

    # the target's side

    def reply_ended(self, error: Exception | None) -> None:
        if self._is_over:
            return
        try:
            self._end(error)
        except SendAgain as again:
            self._again = again
            self.go_on(None)
        except Exception as fault:  # the target's, or a bug: it must not take others on this turn down with it
            self.go_on(fault)

    def _end(self, error: Exception | None) -> None:
        """Account for the reply and answer, or leave it to a task. Raises what the reply failed with, or SendAgain."""
        sent = self._sent
        assert sent is not None
        sent.conclude(error)
        self._body, self._answered_by = sent.body, (sent.served_model, sent.served_version)
        usage = sent.usage
        tokens_in, tokens_out, cost, is_plain = self._to.priced(usage)
        is_priced = cost is not None or self._to.card is None
        let_in = self._let_in
        is_within = let_in.output_limit is None or (tokens_out or 0) <= let_in.output_limit * let_in.choices
        is_within = is_within and not exceeds_money(let_in.reservation, cost)
        is_within = is_within and sent.count_method == "reported" and not sent.service_tier
        if not tokens_in or tokens_out is None or not is_priced or not is_within:
            self.go_on(sent.account())
            return
        self._duration_ns = duration_ns = self._lane.monotonic_ns() - self.began_ns
        record = WholeRequest(
            self.started_at_ns,
            self._packed(sent, cost, tokens_in, tokens_out, is_plain=is_plain),
            self._to.alike,
            self._open.tenant,
            duration_ns,
            usage,
            cost,
            None,
            self._slot,
        )
        lines = b"x-request-id: %b\r\n%b%b" % (
            self._id_text.encode(),
            self._limits_told,
            self._to.served_lines(sent.served_model, sent.served_version),
        )
        self._is_over = True
        self._lane.endings.answer(Ending(record, self._exchange, self._body, lines), self)

    # what tells a task of the first try

    @property
    def progress(self) -> Progress | None:
        """Give none: an answer in one piece is not seen on its way."""
        return None

    @property
    def attempt_began_ns(self) -> int:
        """Return when it was sent to its target."""
        return self._admitted_ns

    @property
    def was_tried(self) -> bool:
        """Say whether there was a first try, or the client has left before another."""
        return self._outcome is not None or self._is_left

    def result(self, reply: Reply) -> Result:
        """Give the first try's account, and its answer to the reply. Raises what it failed with."""
        outcome = self._outcome
        if isinstance(outcome, Result):
            reply.served(*self._answered_by)
            reply.report(outcome.usage, outcome.count_method)
        if self._is_left or outcome is None:
            raise asyncio.CancelledError
        if isinstance(outcome, BaseException):
            raise outcome
        reply.whole(self._body)
        return outcome

    def _packed(self, sent: SentRequest, cost: int | None, tokens_in: int, tokens_out: int, *, is_plain: bool) -> bytes:
        """Give the packed record. What was reserved of all that was used is charged just that, and so can wait."""
        self._finish_reason = finish_reason = sent.finish_reason
        charged, reserved, overdraft = cost, None, None
        offsets: list[int] = []
        tokens: list[int] = []
        used: Amounts = (1, tokens_in, tokens_out, tokens_in + tokens_out, 0, 0, 0)
        reservation = self._let_in.reservation
        if reservation is not None:
            if reservation.lines.counts_money:
                charged = reservation.reserved(MONEY) if cost is None else cost
                used = (1, tokens_in, tokens_out, tokens_in + tokens_out, 0, 0, charged)
            if reservation.covers(used):
                overdraft = 0
                offsets, tokens = _AT_ONCE, [used[TOKENS]]
            else:
                paid = reservation.settle(used, self._lane.steady_ns())
                overdraft = reservation.overdraft[TOKENS]
                charged = paid[MONEY] if reservation.lines.counts_money else charged
                offsets, tokens = charges_of(reservation)
            reserved = reservation.reserved(TOKENS)
        self._used = used
        admission_ns, bytes_in, bytes_out = self._admitted_ns - self.began_ns, len(self._exchange.body), len(self._body)
        output_limit, choices, temperature = self._let_in.output_limit, self._let_in.choices, self._request.temperature
        if is_plain and offsets is _AT_ONCE and overdraft == 0 and cost is not None and reserved is not None:
            assert charged is not None
            packed = self._to.plain_records.pack(
                (finish_reason, sent.model, output_limit, choices, temperature),
                self._id,
                self.started_at_ns,
                self._duration_ns,
                admission_ns,
                tokens_in,
                tokens_out,
                cost,
                charged,
                bytes_in,
                bytes_out,
                reserved,
                tokens[0],
            )
            if packed is not None:
                return packed
        return self._to.template.pack(
            (
                self._id,
                self.started_at_ns,
                self._duration_ns,
                finish_reason,
                sent.model,
                admission_ns,
                sent.usage,
                cost,
                charged,
                output_limit,
                choices,
                temperature,
                bytes_in,
                bytes_out,
                reserved,
                offsets,
                tokens,
                overdraft,
            )
        )

    def conclude(self) -> None:
        """Charge what was used, give back what it held, and tell of it."""
        lane, let_in, used = self._lane, self._let_in, self._used
        now_ns = lane.steady_ns()
        try:
            if let_in.reservation is not None:
                let_in.reservation.settle(used, now_ns)
        finally:
            lane.stages.admission.settle(let_in.ticket)
            self._give_back()
        self._to.health.succeeded(self._duration_ns - (self._admitted_ns - self.began_ns))
        _, tokens_in, tokens_out, *_ = used
        size, reason = let_in.prompt_bytes, self._finish_reason
        lane.endings.learn(Lesson(self._open.forecast, now_ns, size, tokens_in, tokens_out, reason, let_in.choices))

    def _leave(self) -> None:
        """Give the connection back; what the target still says is no longer listened to."""
        if not self._is_over:
            self._is_over = True
            self._give_back()

    def _give_back(self) -> None:
        self._lane.open_grants -= self._let_in.reservation is not None
        sent, self._sent = self._sent, None  # it holds the reader, which holds this
        if sent is not None:
            sent.release()

    def go_on(self, outcome: Result | BaseException | None) -> None:
        """Leave the rest to a task; `outcome` is the first try's, `None` where it did not take place."""
        self._leave()
        self._outcome = outcome
        lane, opened, let_in, exchange = self._lane, self._open, self._let_in, self._exchange
        life = life_of(opened, exchange, self._request, self._id, self.started_at_ns, self.began_ns, self._admitted_ns)
        life.sent_slot = self._slot
        created_unix = self.started_at_ns // 1_000_000_000
        reply = CHAT.reply(ReplyFacts(exchange, life.id, created_unix, lane.clock), self._request)
        passage = passage_of(opened, reply, let_in.ticket, let_in.reservation, let_in.tokens_in, let_in.tokens_out)
        if let_in.reservation is not None:
            reply.add_headers(rate_headers(let_in.reservation.lines, lane.steady_ns()))
        self._task = lane.start(self._carry_on(life, passage))

    async def _carry_on(self, life: Life, passage: Passage) -> None:
        """Go the rest of the way in a task."""
        self._has_task_begun = True
        again = self._again
        try:
            if again is not None and again.may is not None and not self._is_left and not await again.may():
                self._outcome = again.failure
        except asyncio.CancelledError:
            self._is_left = True
        try:
            await self._lane.dispatcher.carry_on(life, passage, self._exchange, CHAT, self._candidates, self)
        finally:
            self._task = self._outcome = self._again = None  # they lead back here


def note_sent(
    sent: SentRequests | None,
    opened: OpenLane,
    to: LaneTarget,
    let_in: LetIn,
    request: ChatRequest,
    request_bytes: int,
    id: bytes,
    started_at_ns: int,
    admission_ns: int,
    growing: Growing | None,
) -> int:
    """Write down that a request is about to be sent; return its slot."""
    if sent is None:
        return NO_SLOT
    reservation, size = let_in.reservation, let_in.prompt_bytes
    return sent.begin(
        id,
        started_at_ns,
        admission_ns,
        request_bytes,
        opened.forecast.expected_input(size),
        let_in.output_limit,
        reservation,
        NOT_SAID if reservation is None else reservation.reserved(TOKENS),
        let_in.choices,
        STREAM if request.stream else 0,
        to.sent_record,
        growing,
    )


def exceeds_money(reservation: Reservation | None, cost: int | None) -> bool:
    """Say whether a known cost is more than is reserved of the rules that count money."""
    if reservation is None or cost is None or not reservation.lines.counts_money:
        return False
    return cost > reservation.reserved(MONEY)


def charges_of(reservation: Reservation) -> tuple[list[int], list[int]]:
    """Give when tokens were charged, in nanoseconds from the start, and how many."""
    portions = reservation.portions
    if len(portions) == 1:
        tokens = portions[0].charged_tokens
        return (_AT_ONCE, [tokens]) if tokens else ([], [])
    charged = [portion for portion in portions if portion.charged_tokens]
    began_ns = portions[0].at_ns  # taken as the request began
    offsets = [max(portion.at_ns - began_ns, 0) for portion in charged]
    return offsets, [portion.charged_tokens for portion in charged]
