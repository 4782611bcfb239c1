"""One chat's stream on its short way: sent on, passed through, settled, recorded and ended without a task."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from backends.llm.base import SendAgain
from backends.llm.quick_target import SentRequest
from backends.slot_table import NO_SLOT
from contracts.chat import ChatRequest
from contracts.configuration import TargetSpec
from contracts.errors import TollkeeperError, UpstreamBroken
from contracts.gaps import pack_gaps
from contracts.generation import Delta, Result
from contracts.records import CountMethod
from contracts.usage import Usage
from contracts.usage_wish import wants_usage
from gateway.allowance import NEVER, Allowance
from gateway.chunk_relay import ChunkRelay
from gateway.clipping import beyond_limit
from gateway.exchange import Exchange
from gateway.grant import Grant
from gateway.lane.endings import Lesson, Sending, StreamEnding
from gateway.lane.lane_life import life_of, passage_of
from gateway.lane.lane_plan import LaneTarget, OpenLane
from gateway.lane.quick_call import LetIn, charges_of, exceeds_money, note_sent
from gateway.lane.quick_purse import QuickPurse
from gateway.life import Life
from gateway.limits.demand import MONEY, TOKENS
from gateway.operations import CHAT
from gateway.piece import part_of
from gateway.progress import Progress
from gateway.recorder import WholeRequest
from gateway.rendering import DONE, ChatRenderer
from gateway.reply import EVENT_STREAM, Reply, ReplyFacts
from gateway.stages import Passage

if TYPE_CHECKING:
    from gateway.lane.quick_lane import QuickLane

_PATH: Final = CHAT.path


class PlainStream(Sending):
    """A stream of one choice under way. What is out of the ordinary goes on in a task, as any other request does.

    It is also the sink that its target gives the answer to, and tells the task what became of the first try.
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
        "_task",
        "_has_task_begun",
        "_is_left",
        "_outcome",
        "_again",
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
        began_ns: int,  # monotonic
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
        self._admitted_ns = 0
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
        self._task: asyncio.Task[None] | None = None
        self._has_task_begun = False
        self._is_left = False  # by the client, before the task had begun
        self._outcome: Result | BaseException | None = None  # of the first try, once it has ended
        self._again: SendAgain | None = None
        self._slot = NO_SLOT  # its entry among the requests that are with a target

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
        lane, exchange, target = self._lane, self._exchange, self._to.target
        assert target is not None
        self._admitted_ns = lane.monotonic_ns()
        self._slot = note_sent(
            lane.stages.recorder.sent,
            self._open,
            self._to,
            self._let_in,
            self._request,
            len(exchange.body),
            self._id,
            self.started_at_ns,
            self._admitted_ns - self.began_ns,
            self,
        )
        try:
            self._sent = target.send_at_once(_PATH, self._request, exchange.body, self._id_text, self, self)
        finally:
            if self._sent is None:
                lane.stages.recorder.forget_sent(self._slot)
        if self._sent is None:
            return False
        self._lane.endings.once_sent(self)
        return True

    def prepare(self) -> None:
        try:
            if not self.has_ended:
                self._make_ready()
        except Exception as fault:
            self.go_on(fault)

    def _make_ready(self) -> None:
        lane = self._lane
        reservation, told = self._let_in.reservation, self._open.limits_told
        if reservation is not None:
            if told is not None:  # as it stands at this moment
                first = reservation.portions[0]
                self._limits_told = told.told(first.at_ns, first.left or ())
            limit, reserved = self._let_in.output_limit, self._let_in.tokens_out
            self._purse = QuickPurse(lane.stages.limiter, Grant(reservation, self._open.rates, 0, reserved))
            most, at_most = (NEVER, None) if limit is None else (limit, self._why_most)
            self._allowance = Allowance(reserved, most, self._purse, self._cut, at_most=at_most)
            self._allowance.begin_attempt(self.progress, 0)
        elif self._let_in.output_limit is not None:
            self._allowance = Allowance(NEVER, self._let_in.output_limit, None, self._cut, at_most=self._why_most)
            self._allowance.begin_attempt(self.progress, 0)
        self._exchange.hold(self._pause, self._resume)

    def cancel(self) -> None:
        """End it: the client has left."""
        if self._task is None:
            if not self.has_ended:
                self.go_on(asyncio.CancelledError())
        elif self._has_task_begun:
            self._task.cancel()
        else:
            self._is_left = True  # one that is cancelled before its first step would never take what it is given

    # the target's side

    def event(self, data: bytes, deltas: tuple[Delta, ...], *, is_usage_only: bool) -> None:
        """Pass an event on as it is, unless it is the usage that only we asked for."""
        if self.has_ended:
            return
        now_ns = self._lane.monotonic_ns()
        allowance = self._allowance
        for delta in deltas:
            self.progress.take(delta, now_ns)
            if delta.finish_reason is not None:
                self._is_finished = True
        if allowance is not None and self.progress.tokens >= allowance.next_at and not self._is_covered(deltas):
            return
        if is_usage_only and not wants_usage(self._request):
            return
        exchange = self._exchange
        if self._is_finished and exchange.is_started:  # to leave with the end, where that comes in the same turn
            if not exchange.held_back:
                self._lane.endings.soon(self._end_turn)
            exchange.hold_back(data)
        elif exchange.is_started:
            exchange.write(data)
        else:
            exchange.start_lines(200, EVENT_STREAM, self._lines(), data)

    def _end_turn(self) -> None:
        if not self.has_ended:  # else it leaves with the end
            self._exchange.send_held_back()

    def relay(self, delta: Delta) -> Callable[[bytes], None] | None:
        """Give what passes the chunks of the one choice on as they come, once its answer has begun."""
        if not self._exchange.is_chunked or self.has_ended or self.progress.choices != {delta.index}:
            return None
        relay = ChunkRelay(
            self,
            self._exchange,
            self._lane.clock,
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
        raise UpstreamBroken(f"target {self._to.spec.id!r} answered a stream request with a whole answer")

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
            self._again = again
            self.go_on(None)
        except Exception as fault:  # the target's, or a bug: it must not take others on this turn down with it
            self.go_on(fault)

    def _end(self, error: Exception | None) -> None:
        """Account for the answer and end it, or leave it to a task. Raises what the reply failed with, or SendAgain."""
        sent = self._sent
        assert sent is not None
        sent.conclude(error)
        usage = sent.usage
        tokens_in, tokens_out, cost, _ = self._to.priced(usage)
        is_known = cost is not None or self._to.card is None
        is_known = is_known and sent.count_method == "reported" and self._exchange.is_started
        limit = self._let_in.output_limit
        is_known = is_known and (limit is None or tokens_out is None or tokens_out <= limit)
        is_known = is_known and not exceeds_money(self._let_in.reservation, cost)
        if not tokens_in or tokens_out is None or not is_known or sent.service_tier:
            self.go_on(sent.account())
            return
        duration_ns = self._lane.monotonic_ns() - self.began_ns
        first_ns = self.progress.first_at_ns
        record = WholeRequest(
            self.started_at_ns,
            self._settle(sent, cost, tokens_in, tokens_out, duration_ns),
            self._to.alike,
            self._open.tenant,
            duration_ns,
            usage,
            cost,
            None if first_ns is None else first_ns - self.began_ns,
            self._slot,
        )
        self._to.health.streamed(None if first_ns is None else first_ns - self._admitted_ns)
        self._leave()
        self._lane.endings.add(StreamEnding(record, self._exchange, DONE, b""))

    # what tells a task of the first try

    @property
    def attempt_began_ns(self) -> int:
        """Return when it was sent to its target."""
        return self._admitted_ns

    @property
    def was_tried(self) -> bool:
        """Say whether there was a first try, or the client has left before another."""
        return self._outcome is not None or self._is_left

    def result(self, reply: Reply) -> Result:
        """Give the first try's account. Raises what it failed with."""
        outcome = self._outcome
        if not self._exchange.is_started:
            reply.served(*self._answered_by)
        if self._is_left or outcome is None:
            raise asyncio.CancelledError
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def _lines(self) -> bytes:
        """Give what the head says of this answer."""
        served = self._to.served_lines(*self._answered_by)
        return b"x-request-id: %b\r\n%b%b" % (self._id_text.encode(), self._limits_told, served)

    def _pause(self) -> None:
        if self._sent is not None:
            self._sent.pause()

    def _resume(self) -> None:
        if self._sent is not None:
            self._sent.resume()

    def _why_most(self) -> TollkeeperError:
        """Name what set the limit that the target has gone beyond."""
        limit = self._let_in.output_limit
        assert limit is not None
        return beyond_limit(limit, "")

    def _cut(self, why: TollkeeperError) -> None:
        """End the answer here: it has used up what it may have. What called this is still taking a chunk."""
        if self._ended_by is None and not self.has_ended:
            self._ended_by = why
            self._lane.endings.soon(self._end_cut)

    def _end_cut(self) -> None:
        if self._is_finished:  # meanwhile: what is complete needs no end of ours
            self._ended_by = None
        elif not self.has_ended:
            self.go_on(asyncio.CancelledError())

    def _settle(self, sent: SentRequest, cost: int | None, tokens_in: int, tokens_out: int, duration_ns: int) -> bytes:
        """Charge what was used, and give the packed record."""
        lane, let_in, progress, exchange = self._lane, self._let_in, self.progress, self._exchange
        now_ns = lane.steady_ns()
        forecast, reason = self._open.forecast, sent.finish_reason
        lane.endings.learn(Lesson(forecast, now_ns, let_in.prompt_bytes, tokens_in, tokens_out, reason, 1))
        charged, reserved, overdraft = cost, None, None
        offsets: list[int] = []
        tokens: list[int] = []
        reservation = let_in.reservation
        if reservation is not None:
            money = reservation.reserved(MONEY) if charged is None else charged
            paid = reservation.settle((1, tokens_in, tokens_out, tokens_in + tokens_out, 0, 0, money), now_ns)
            reserved, overdraft = reservation.reserved(TOKENS), reservation.overdraft[TOKENS]
            if reservation.lines.counts_money:
                charged = paid[MONEY]
            offsets, tokens = charges_of(reservation)
        lane.stages.admission.settle(let_in.ticket)
        first_ns, gaps = progress.first_at_ns, progress.gaps_for(tokens_out)
        return self._to.stream_template.pack(
            (
                self._id,
                self.started_at_ns,
                duration_ns,
                sent.finish_reason,
                sent.model,
                self._admitted_ns - self.began_ns,
                sent.usage,
                cost,
                charged,
                let_in.output_limit,
                1,
                self._request.temperature,
                len(exchange.body),
                exchange.bytes_sent + len(DONE),
                reserved,
                offsets,
                tokens,
                overdraft,
                None if first_ns is None else first_ns - self.began_ns,
                pack_gaps(gaps),
                "gateway" if progress.gaps else "none",
            )
        )

    def _leave(self) -> None:
        """Give the connection back; what the target still says is no longer listened to."""
        if not self.has_ended:
            self.has_ended = True
            self._lane.open_grants -= self._let_in.reservation is not None
            sent, self._sent = self._sent, None  # it holds the reader, which holds this
            if self._allowance is not None:
                self._allowance.close()
            self._allowance = None  # it leads back here
            if sent is not None:
                sent.release()

    def go_on(self, outcome: Result | BaseException | None) -> None:
        """Leave the rest to a task; `outcome` is the first try's, `None` where it did not take place."""
        lane, opened, let_in, exchange = self._lane, self._open, self._let_in, self._exchange
        allowance = self._allowance
        tokens_out = let_in.tokens_out if let_in.reservation is None or allowance is None else allowance.reserved
        delivered = None if allowance is None else allowance.delivered
        self._leave()
        exchange.send_held_back()
        self._outcome = outcome
        life = life_of(opened, exchange, self._request, self._id, self.started_at_ns, self.began_ns, self._admitted_ns)
        life.sent_slot = self._slot
        life.limit = "" if self._purse is None else self._purse.lacking_rule
        created_unix = self.started_at_ns // 1_000_000_000
        reply = CHAT.reply(ReplyFacts(exchange, life.id, created_unix, lane.clock), self._request)
        passage = passage_of(opened, reply, let_in.ticket, let_in.reservation, let_in.tokens_in, tokens_out)
        passage.ended_by = self._ended_by
        if self._ended_by is not None:
            life.delivered_tokens = delivered
            self._deliver_part(life)
        reply.add_headers(lane.stages.limiter.rate_headers(passage.grant))
        self._task = lane.start(self._carry_on(life, passage))

    def _deliver_part(self, life: Life) -> None:
        """Deliver what the allowance covers of the piece that it cut."""
        part, self._part = self._part, None
        exchange = self._exchange
        if part is None:
            return
        data = ChatRenderer(f"chatcmpl-{life.id.hex}", self.started_at_ns // 1_000_000_000, self._request.model)
        if exchange.is_started:
            exchange.write(data.delta(part))
        else:
            exchange.start_lines(200, EVENT_STREAM, self._lines(), data.delta(part))

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
            await self._lane.dispatcher.take_over(
                life, passage, self._exchange, CHAT, self._candidates, None, None, self
            )
        finally:
            self._task = self._outcome = self._again = None  # they lead back here
