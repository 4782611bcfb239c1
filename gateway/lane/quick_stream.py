"""One chat that begins on the short way, and has a task for the rest: a stream, or any for an engine host of ours.

A stream's target has the request before there is a task. What takes time before the first token is what a stream's
client waits for; the rest costs it nothing.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from backends.llm.base import ModelCall, SentAhead
from backends.slot_table import NO_SLOT
from contracts.chat import ChatRequest
from contracts.configuration import TargetSpec
from gateway.exchange import Exchange
from gateway.lane.lane_life import life_of, passage_of
from gateway.lane.lane_plan import LaneTarget, OpenLane
from gateway.lane.quick_call import LetIn, note_sent
from gateway.life import Life
from gateway.operations import CHAT
from gateway.reply import ReplyFacts
from gateway.stages import Passage

if TYPE_CHECKING:
    from gateway.lane.quick_lane import QuickLane


class QuickStream:
    """A chat under way: sent on where there was a connection for it at once, and led to its end by a task."""

    __slots__ = (
        "_lane",
        "_exchange",
        "_request",
        "_open",
        "_let_in",
        "_candidates",
        "_id",
        "_id_text",
        "_started_at_ns",
        "_began_ns",
        "_call",
        "_sent",
        "_task",
        "_has_task_begun",
        "_is_left",
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
        id: bytes,
        id_text: str,
        started_at_ns: int,  # Unix
        began_ns: int,  # monotonic
        call: ModelCall | None = None,  # where it is prepared
        sent: SentAhead | None = None,
        task: asyncio.Task[None] | None = None,
        has_task_begun: bool = False,
        is_left: bool = False,  # by the client, before the task had begun
    ) -> None:
        self._lane = lane
        self._exchange = exchange
        self._request = request
        self._open = open
        self._let_in = let_in
        self._candidates = candidates
        self._id = id
        self._id_text = id_text
        self._started_at_ns = started_at_ns
        self._began_ns = began_ns
        self._call = call
        self._sent = sent
        self._task = task
        self._has_task_begun = has_task_begun
        self._is_left = is_left
        self._slot = NO_SLOT  # its entry among the requests that are with a target

    def begin(self, to: LaneTarget) -> None:
        """Send it to the first of the candidates where that can be done at once, and let a task go on."""
        lane, exchange = self._lane, self._exchange
        admitted_ns = lane.clock.monotonic_ns()
        try:
            if to.target is not None and to.health.is_plain:
                self._slot = note_sent(
                    lane.stages.recorder.sent,
                    self._open,
                    to,
                    self._let_in,
                    self._request,
                    len(exchange.body),
                    self._id,
                    self._started_at_ns,
                    admitted_ns - self._began_ns,
                    None,
                )
                self._sent = to.target.send_ahead(CHAT.path, self._request, exchange.body, self._id_text)
            self._begin_task(admitted_ns)
        except BaseException:
            lane.stages.recorder.forget_sent(self._slot)
            if self._sent is not None:
                self._sent.abandon()
            raise
        lane.open_grants -= self._let_in.reservation is not None  # the dispatcher counts it from now on

    def _begin_task(self, admitted_ns: int) -> None:
        lane, opened, let_in, exchange = self._lane, self._open, self._let_in, self._exchange
        life = life_of(opened, exchange, self._request, self._id, self._started_at_ns, self._began_ns, admitted_ns)
        life.sent_slot = self._slot
        facts = ReplyFacts(exchange, life.id, self._started_at_ns // 1_000_000_000, lane.clock)
        reply = CHAT.reply(facts, self._request)
        passage = passage_of(opened, reply, let_in.ticket, let_in.reservation, let_in.tokens_in, let_in.tokens_out)
        reply.add_headers(lane.stages.limiter.rate_headers(passage.grant))
        self._task = lane.start(self._go(life, passage))

    def cancel(self) -> None:
        """End it: the client has left."""
        if self._has_task_begun and self._task is not None:
            self._task.cancel()
        else:
            self._is_left = True  # a task that is cancelled before its first step would give nothing back

    async def _go(self, life: Life, passage: Passage) -> None:
        self._has_task_begun = True
        task = asyncio.current_task()
        if self._is_left and task is not None:
            task.cancel()  # felt where it first waits
        try:
            await self._lane.dispatcher.take_over(
                life, passage, self._exchange, CHAT, self._candidates, self._sent, self._call
            )
        finally:
            self._task = self._sent = self._call = None  # they lead back here
