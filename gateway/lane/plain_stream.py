"""One chat's stream on its short way: sent on, passed through, settled, recorded and ended without a task."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from backends.llm.base import SendAgain
from backends.llm.http.quick_target import SentRequest
from contracts.api.chat import ChatRequest
from contracts.api.generation import Delta, Result
from contracts.errors import TollkeeperError, UpstreamBroken
from contracts.metering.gaps import pack_gaps
from contracts.metering.usage import Usage
from contracts.metering.usage_wish import wants_usage
from contracts.recording.records import CountMethod
from contracts.serving.configuration import TargetSpec
from gateway.apis.rendering import DONE, ChatRenderer
from gateway.lane.endings import Lesson, StreamEnding
from gateway.lane.lane_plan import LaneTarget, OpenLane
from gateway.lane.lane_request import PATH, Arrival, LaneRequest, LetIn
from gateway.lane.quick_purse import QuickPurse
from gateway.limits.clipping import beyond_limit
from gateway.limits.demand import MONEY, TOKENS
from gateway.limits.grant import Grant
from gateway.records.recorder import WholeRequest
from gateway.replies.allowance import NEVER, Allowance
from gateway.replies.chunk_relay import ChunkRelay
from gateway.replies.piece import part_of
from gateway.replies.progress import Progress
from gateway.replies.reply import EVENT_STREAM, Reply
from gateway.request.request_state import RequestState

if TYPE_CHECKING:
    from gateway.lane.quick_lane import QuickLane


class PlainStream(LaneRequest):
    """A stream of one choice under way. It is also the sink that its target gives the answer to."""

    __slots__ = (
        "progress",
        "_purse",
        "_allowance",
        "_answered_by",
        "_is_finished",
        "has_ended",
        "_sent",
        "_limits_told",
        "_ended_by",
        "_part",
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
        self.progress = Progress()
        self._purse: QuickPurse | None = None
        self._allowance: Allowance | None = None
        self._answered_by: tuple[str, str] = ("", "")
        self._is_finished = False  # the model's answer
        self.has_ended = False  # nothing more is taken of the target
        self._sent: SentRequest | None = None
        self._limits_told = b""
        self._ended_by: TollkeeperError | None = None
        self._part: Delta | None = None  # of the piece that its allowance cut, to be delivered before its end

    @property
    def output_so_far(self) -> int:
        """Return how many tokens of its answer have passed."""
        return self.progress.tokens

    @staticmethod
    def takes(request: ChatRequest, opened: OpenLane, to: LaneTarget) -> bool:
        """Say whether a request's stream can go without a task."""
        is_alone = (request.n or 1) == 1 and opened.key.policy.max_thinking_tokens is None
        return is_alone and to.target is not None and to.health.is_plain

    def send(self) -> bool:
        """Send it to the first of the candidates; say whether there was a connection for it."""
        recorder, target, arrival = self.lane.stages.recorder, self.to.target, self.arrival
        assert target is not None
        self.note_sent(self)
        try:
            trace = arrival.trace_lines(has_spans=recorder.sends_spans)
            body = self.exchange.body
            self._sent = target.send_at_once(PATH, self.request, body, arrival.id_text, trace, self, self)
        finally:
            if self._sent is None:
                recorder.forget_sent(self.slot)
        if self._sent is None:
            return False
        self.lane.endings.once_sent(self)
        return True

    def prepare(self) -> None:
        try:
            if not self.has_ended:
                self._make_ready()
        except Exception as fault:
            self.go_on(fault)

    def _make_ready(self) -> None:
        lane = self.lane
        reservation, told = self.let_in.reservation, self.open.limits_told
        if reservation is not None:
            if told is not None:  # as it stands at this moment
                first = reservation.portions[0]
                self._limits_told = told.told(first.at_ns, first.left or ())
            limit, reserved = self.let_in.output_limit, self.let_in.tokens_out
            self._purse = QuickPurse(lane.stages.limiter, Grant(reservation, self.open.rates, 0, reserved))
            most, at_most = (NEVER, None) if limit is None else (limit, self._why_most)
            self._allowance = Allowance(reserved, most, self._purse, self._cut, at_most=at_most)
            self._allowance.begin_attempt(self.progress, 0)
        elif self.let_in.output_limit is not None:
            self._allowance = Allowance(NEVER, self.let_in.output_limit, None, self._cut, at_most=self._why_most)
            self._allowance.begin_attempt(self.progress, 0)
        self.exchange.hold(self._pause, self._resume)

    def cancel(self) -> None:
        """End it: the client has left."""
        if self.task is None:
            if not self.has_ended:
                self.go_on(asyncio.CancelledError())
        elif self.has_task_begun:
            self.task.cancel()
        else:
            self.is_left = True  # one that is cancelled before its first step would never take what it is given

    # the target's side

    def event(self, data: bytes, deltas: tuple[Delta, ...], *, is_usage_only: bool) -> None:
        """Pass an event on as it is, unless it is the usage that only we asked for."""
        if self.has_ended:
            return
        now_ns = self.lane.monotonic_ns()
        allowance = self._allowance
        for delta in deltas:
            self.progress.take(delta, now_ns)
            if delta.finish_reason is not None:
                self._is_finished = True
        if allowance is not None and self.progress.tokens >= allowance.next_at and not self._is_covered(deltas):
            return
        if is_usage_only and not wants_usage(self.request):
            return
        exchange = self.exchange
        if self._is_finished and exchange.is_started:  # to leave with the end, where that comes in the same turn
            if not exchange.held_back:
                self.lane.endings.soon(self._end_turn)
            exchange.hold_back(data)
        elif exchange.is_started:
            exchange.write(data)
        else:
            exchange.start_lines(200, EVENT_STREAM, self._lines(), data)

    def _end_turn(self) -> None:
        if not self.has_ended:  # else it leaves with the end
            self.exchange.send_held_back()

    def relay(self, delta: Delta) -> Callable[[bytes], None] | None:
        """Give what passes the chunks of the one choice on as they come, once its answer has begun."""
        if not self.exchange.is_chunked or self.has_ended or self.progress.choices != {delta.index}:
            return None
        relay = ChunkRelay(
            self,
            self.exchange,
            self.lane.clock,
            self.progress,
            delta.index,
            is_reasoning=delta.reasoning_tokens > 0,
            on_tokens=None,
            allowance=self._allowance,
            is_left_at_end=True,
        )
        return relay

    def _is_covered(self, deltas: tuple[Delta, ...]) -> bool:
        """Say whether the allowance covers all of an event; what it covers of a piece is kept for the answer's end."""
        allowance = self._allowance
        assert allowance is not None
        for delta in deltas:
            tokens = delta.tokens
            if tokens:
                allowance.defer(tokens, delta.reasoning_tokens)
                passing = allowance.offer(tokens, delta.reasoning_tokens, is_complete=self._is_finished)
                if passing < tokens:
                    self._is_finished = False  # the end that it brings, or has brought, is not the answer's
                    if passing:
                        self._part = part_of(delta, passing)
                        if self._part is None:
                            allowance.defer(passing, 0)
                    return False
            elif allowance.withheld:
                self._is_finished = False
                return False
        return not allowance.withheld

    def whole(self, body: bytes) -> None:
        """Refuse a whole answer: a stream was asked for."""
        raise UpstreamBroken(f"target {self.to.spec.id!r} answered a stream request with a whole answer")

    def answered_at(self, tier: str) -> None:
        """Keep the service tier, in case the answer does not reach its end."""
        self.progress.service_tier = tier

    def report(self, usage: Usage, count_method: CountMethod) -> None:
        """Keep what the target knows of the usage, in case it does not reach its end."""
        self.progress.usage = usage
        self.progress.count_method = count_method

    def served(self, model: str, version: str) -> None:
        """Keep what answers."""
        self._answered_by = (model, version)

    def reply_ended(self, error: Exception | None) -> None:
        if self.has_ended or (self._ended_by is not None and not self._is_finished):
            return  # it has ended, or is about to
        try:
            self._end(error)
        except SendAgain as again:
            self.again = again
            self.go_on(None)
        except Exception as fault:  # the target's, or a bug: it must not take others on this turn down with it
            self.go_on(fault)

    def _end(self, error: Exception | None) -> None:
        """Account for the answer and end it, or leave it to a task. Raises what the reply failed with, or SendAgain."""
        sent = self._sent
        assert sent is not None
        sent.conclude(error)
        usage = sent.usage
        tokens_in, tokens_out, cost = self.to.priced(usage)
        is_known = cost is not None or self.to.card is None
        is_known = is_known and sent.count_method == "reported" and self.exchange.is_started
        limit = self.let_in.output_limit
        is_known = is_known and (limit is None or tokens_out is None or tokens_out <= limit)
        is_known = is_known and not self.let_in.exceeds_money(cost)
        if not tokens_in or tokens_out is None or not is_known or sent.service_tier:
            self.go_on(sent.account())
            return
        ended_ns, first_ns = self.lane.monotonic_ns(), self.progress.first_at_ns
        duration_ns = ended_ns - self.began_ns
        self.learn_pace(first_ns, ended_ns, tokens_out)
        record = WholeRequest(
            self.started_at_ns,
            self._settle(sent, cost, tokens_in, tokens_out, duration_ns),
            self.to.alike,
            self.open.tenant,
            duration_ns,
            usage,
            cost,
            None if first_ns is None else first_ns - self.began_ns,
            self.slot,
            self.arrival.context.trace,
        )
        self.to.health.streamed(None if first_ns is None else first_ns - self.admitted_ns)
        self._leave()
        self.lane.endings.add(StreamEnding(record, self.exchange, DONE, b""))

    # what tells a task of the first try

    def result(self, reply: Reply) -> Result:
        """Give the first try's account. Raises what it failed with."""
        if not self.exchange.is_started:
            reply.served(*self._answered_by)
        return self.tried()

    def _lines(self) -> bytes:
        """Give what the head says of this answer."""
        served = self.to.served_lines(*self._answered_by)
        return b"x-request-id: %b\r\n%b%b" % (self.arrival.id_text.encode(), self._limits_told, served)

    def _pause(self) -> None:
        if self._sent is not None:
            self._sent.pause()

    def _resume(self) -> None:
        if self._sent is not None:
            self._sent.resume()

    def _why_most(self) -> TollkeeperError:
        """Name what set the limit that the target has gone beyond."""
        limit = self.let_in.output_limit
        assert limit is not None
        return beyond_limit(limit, "")

    def _cut(self, why: TollkeeperError) -> None:
        """End the answer here: it has used up what it may have. What called this is still taking a chunk."""
        if self._ended_by is None and not self.has_ended:
            self._ended_by = why
            self.lane.endings.soon(self._end_cut)

    def _end_cut(self) -> None:
        if self._is_finished:  # meanwhile: what is complete needs no end of ours
            self._ended_by = None
        elif not self.has_ended:
            self.go_on(asyncio.CancelledError())

    def _settle(self, sent: SentRequest, cost: int | None, tokens_in: int, tokens_out: int, duration_ns: int) -> bytes:
        """Charge what was used, and give the packed record."""
        lane, let_in, progress = self.lane, self.let_in, self.progress
        now_ns = lane.steady_ns()
        forecast, reason = self.open.forecast, sent.finish_reason
        lane.endings.learn(Lesson(forecast, now_ns, let_in.prompt_bytes, tokens_in, tokens_out, reason, 1))
        charged, reserved, overdraft = cost, None, None
        reservation = let_in.reservation
        if reservation is not None:
            money = reservation.reserved(MONEY) if charged is None else charged
            paid = reservation.settle((1, tokens_in, tokens_out, tokens_in + tokens_out, 0, 0, money), now_ns)
            reserved, overdraft = reservation.reserved(TOKENS), reservation.overdraft[TOKENS]
            if reservation.lines.counts_money:
                charged = paid[MONEY]
        charges = self.charges()
        lane.stages.admission.settle(let_in.ticket)
        first_ns = progress.first_at_ns
        return self.packed(
            duration_ns,
            sent.finish_reason,
            sent.model,
            sent.usage,
            cost,
            charged,
            self.exchange.bytes_sent + len(DONE),
            reserved,
            charges,
            overdraft,
            None if first_ns is None else first_ns - self.began_ns,
            pack_gaps(progress.gaps_for(tokens_out)),
            "gateway" if progress.gaps else "none",
        )

    def _leave(self) -> None:
        """Give the connection back; what the target still says is no longer listened to."""
        if not self.has_ended:
            self.has_ended = True
            self.lane.open_grants -= self.let_in.reservation is not None
            sent, self._sent = self._sent, None  # it holds the reader, which holds this
            if self._allowance is not None:
                self._allowance.close()
            self._allowance = None  # it leads back here
            if sent is not None:
                sent.release()

    def go_on(self, outcome: Result | BaseException | None) -> None:
        """Leave the rest to a task; `outcome` is the first try's, `None` where it did not take place."""
        let_in, allowance = self.let_in, self._allowance
        tokens_out = let_in.tokens_out if let_in.reservation is None or allowance is None else allowance.reserved
        delivered = None if allowance is None else allowance.delivered
        self._leave()
        self.exchange.send_held_back()
        self.outcome = outcome
        life = self.life(tokens_out)
        life.limit = "" if self._purse is None else self._purse.lacking_rule
        life.ended_by = self._ended_by
        if self._ended_by is not None:
            life.delivered_tokens = delivered
            self._deliver_part(life)
        self.begin_task(life)

    def _deliver_part(self, life: RequestState) -> None:
        """Deliver what the allowance covers of the piece that it cut."""
        part, self._part = self._part, None
        exchange = self.exchange
        if part is None:
            return
        data = ChatRenderer(f"chatcmpl-{life.id.hex}", self.started_at_ns // 1_000_000_000, self.request.model)
        if exchange.is_started:
            exchange.write(data.delta(part))
        else:
            exchange.start_lines(200, EVENT_STREAM, self._lines(), data.delta(part))

    async def take_the_rest(self, life: RequestState) -> None:
        await self.lane.dispatcher.go_on(life, self.candidates, begun=self)
