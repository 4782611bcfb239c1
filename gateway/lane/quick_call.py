"""One whole chat on its short way: sent as it came, its reply read, recorded, passed on and settled in one turn."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from backends.llm.base import SendAgain
from backends.llm.http.quick_target import SentRequest
from contracts.api.generation import Result
from contracts.serving.configuration import TargetSpec
from gateway.lane.endings import Ending, Lesson
from gateway.lane.lane_plan import LaneTarget, OpenLane
from gateway.lane.lane_request import AT_ONCE, PATH, Arrival, LaneRequest, LetIn
from gateway.limits.demand import MONEY, NOTHING, TOKENS, Amounts
from gateway.records.recorder import WholeRequest
from gateway.replies.progress import Progress
from gateway.replies.reply import Reply
from gateway.request.request_state import RequestState

if TYPE_CHECKING:
    from gateway.lane.quick_lane import QuickLane


class QuickCall(LaneRequest):
    """A whole chat under way."""

    __slots__ = (
        "_body",
        "_answered_by",
        "_is_over",
        "_sent",
        "_limits_told",
        "_used",
        "_finish_reason",
        "_duration_ns",
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
        super().__init__(lane, arrival, opened, let_in, candidates, to)
        self._body = b""
        self._answered_by: tuple[str, str] = ("", "")
        self._is_over = False
        self._sent: SentRequest | None = None
        self._limits_told = b""
        self._used: Amounts = NOTHING  # of what is counted
        self._finish_reason = ""
        self._duration_ns = 0

    def send(self) -> bool:
        """Send it to the first of the candidates; say whether that could take it, and had a connection for it."""
        target, recorder = self.to.target, self.lane.stages.recorder
        if target is None or not self.to.health.is_plain:
            self.admitted_ns = self.lane.monotonic_ns()
            return False
        self.note_sent(None)
        arrival = self.arrival
        try:
            trace = arrival.trace_lines(has_spans=recorder.sends_spans)
            body = self.exchange.body
            self._sent = target.send_at_once(PATH, self.request, body, arrival.id_text, trace, None, self)
        except BaseException:
            recorder.forget_sent(self.slot)
            raise
        if self._sent is None:
            return False
        self.lane.endings.once_sent(self)
        return True

    def prepare(self) -> None:
        reservation, told = self.let_in.reservation, self.open.limits_told
        if reservation is not None and told is not None:  # as it stood when it was let in
            first = reservation.portions[0]
            self._limits_told = told.told(first.at_ns, first.left or ())

    def cancel(self) -> None:
        """End it: the client has left."""
        if self.task is None:
            if not self._is_over:
                self.go_on(asyncio.CancelledError())
        elif self.has_task_begun:
            self.task.cancel()
        else:
            self.is_left = True  # one that is cancelled before its first step would never take what it is given

    # the target's side

    def reply_ended(self, error: Exception | None) -> None:
        if self._is_over:
            return
        try:
            self._end(error)
        except SendAgain as again:
            self.again = again
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
        tokens_in, tokens_out, cost = self.to.priced(usage)
        is_priced = cost is not None or self.to.card is None
        let_in = self.let_in
        is_within = let_in.output_limit is None or (tokens_out or 0) <= let_in.output_limit * let_in.choices
        is_within = is_within and not let_in.exceeds_money(cost)
        is_within = is_within and sent.count_method == "reported" and not sent.service_tier
        if not tokens_in or not tokens_out or not is_priced or not is_within:
            self.go_on(sent.account())
            return
        self._duration_ns = duration_ns = self.lane.monotonic_ns() - self.began_ns
        arrival = self.arrival
        record = WholeRequest(
            self.started_at_ns,
            self._packed(sent, cost, tokens_in, tokens_out),
            self.to.alike,
            self.open.tenant,
            duration_ns,
            usage,
            cost,
            None,
            self.slot,
            arrival.context.trace,
        )
        lines = b"x-request-id: %b\r\n%b%b" % (
            arrival.id_text.encode(),
            self._limits_told,
            self.to.served_lines(sent.served_model, sent.served_version),
        )
        self._is_over = True
        self.lane.endings.answer(Ending(record, self.exchange, self._body, lines), self)

    # what tells a task of the first try

    @property
    def progress(self) -> Progress | None:
        """Give none: an answer in one piece is not seen on its way."""
        return None

    def result(self, reply: Reply) -> Result:
        """Give the first try's account, and its answer to the reply. Raises what it failed with."""
        outcome = self.outcome
        if isinstance(outcome, Result):
            reply.served(*self._answered_by)
            reply.report(outcome.usage, outcome.count_method)
        found = self.tried()
        reply.whole(self._body)
        return found

    def _packed(self, sent: SentRequest, cost: int | None, tokens_in: int, tokens_out: int) -> bytes:
        """Give the packed record. What was reserved of all that was used is charged just that, and so can wait."""
        self._finish_reason = sent.finish_reason
        charged, reserved, overdraft = cost, None, None
        charges: tuple[list[int], list[int]] = ([], [])
        used: Amounts = (1, tokens_in, tokens_out, tokens_in + tokens_out, 0, 0, 0)
        reservation = self.let_in.reservation
        if reservation is not None:
            if reservation.lines.counts_money:
                charged = reservation.reserved(MONEY) if cost is None else cost
                used = (1, tokens_in, tokens_out, tokens_in + tokens_out, 0, 0, charged)
            if reservation.covers(used):
                overdraft = 0
                charges = (AT_ONCE, [used[TOKENS]])
            else:
                paid = reservation.settle(used, self.lane.steady_ns())
                overdraft = reservation.overdraft[TOKENS]
                charged = paid[MONEY] if reservation.lines.counts_money else charged
                charges = self.charges()
            reserved = reservation.reserved(TOKENS)
        self._used = used
        return self.packed(
            self._duration_ns,
            sent.finish_reason,
            sent.model,
            sent.usage,
            cost,
            charged,
            len(self._body),
            reserved,
            charges,
            overdraft,
            None,
            b"",
            "none",
        )

    def conclude(self) -> None:
        """Charge what was used, give back what it held, and tell of it."""
        lane, let_in, used = self.lane, self.let_in, self._used
        now_ns = lane.steady_ns()
        try:
            if let_in.reservation is not None:
                let_in.reservation.settle(used, now_ns)
        finally:
            lane.stages.admission.settle(let_in.ticket)
            self._give_back()
        self.to.health.succeeded(self._duration_ns - (self.admitted_ns - self.began_ns))
        _, tokens_in, tokens_out, *_ = used
        self.learn_pace(None, self.began_ns + self._duration_ns, tokens_out)
        size, reason = let_in.prompt_bytes, self._finish_reason
        lane.endings.learn(Lesson(self.open.forecast, now_ns, size, tokens_in, tokens_out, reason, let_in.choices))

    def _leave(self) -> None:
        """Give the connection back; what the target still says is no longer listened to."""
        if not self._is_over:
            self._is_over = True
            self._give_back()

    def _give_back(self) -> None:
        self.lane.open_grants -= self.let_in.reservation is not None
        sent, self._sent = self._sent, None  # it holds the reader, which holds this
        if sent is not None:
            sent.release()

    def go_on(self, outcome: Result | BaseException | None) -> None:
        """Leave the rest to a task; `outcome` is the first try's, `None` where it did not take place."""
        self._leave()
        self.outcome = outcome
        self.begin_task(self.life(self.let_in.tokens_out))

    async def take_the_rest(self, life: RequestState) -> None:
        await self.lane.dispatcher.go_on(life, self.candidates, begun=self, is_held_to_limits=False)
