"""One chat that begins on the short way, and has a task for the rest: a stream, or any for an engine host of ours.

A stream's target has the request before there is a task. What takes time before the first token is what a stream's
client waits for; the rest costs it nothing.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from backends.llm.base import ModelCall, SentAhead
from contracts.serving.configuration import TargetSpec
from gateway.lane.lane_plan import LaneTarget, OpenLane
from gateway.lane.lane_request import PATH, Arrival, LaneRequest, LetIn
from gateway.request.request_state import RequestState

if TYPE_CHECKING:
    from gateway.lane.quick_lane import QuickLane


class QuickStream(LaneRequest):
    """A chat under way: sent on where there was a connection for it at once, and led to its end by a task."""

    __slots__ = ("_call", "_sent")

    def __init__(
        self,
        lane: "QuickLane",
        arrival: Arrival,
        opened: OpenLane,
        let_in: LetIn,
        candidates: Sequence[TargetSpec],
        to: LaneTarget,
        call: ModelCall | None = None,  # where it is prepared
    ) -> None:
        super().__init__(lane, arrival, opened, let_in, candidates, to)
        self._call = call
        self._sent: SentAhead | None = None

    def begin(self) -> None:
        """Send it to the first of the candidates where that can be done at once, and let a task go on."""
        lane, to, arrival = self.lane, self.to, self.arrival
        recorder = lane.stages.recorder
        self.admitted_ns = lane.monotonic_ns()
        try:
            if to.target is not None and to.health.is_plain:
                self.note_sent(None)
                trace = arrival.trace_lines(has_spans=recorder.sends_spans)
                self._sent = to.target.send_ahead(PATH, self.request, self.exchange.body, arrival.id_text, trace)
            self.begin_task(self.life(self.let_in.tokens_out))
        except BaseException:
            recorder.forget_sent(self.slot)
            if self._sent is not None:
                self._sent.abandon()
            raise
        lane.open_grants -= self.let_in.reservation is not None  # the dispatcher counts it from now on

    def cancel(self) -> None:
        """End it: the client has left."""
        if self.has_task_begun and self.task is not None:
            self.task.cancel()
        else:
            self.is_left = True  # a task that is cancelled before its first step would give nothing back

    def reply_ended(self, error: Exception | None) -> None:
        """Do nothing: the reply is the task's."""

    async def take_the_rest(self, life: RequestState) -> None:
        task = asyncio.current_task()
        if self.is_left and task is not None:
            task.cancel()  # felt where it first waits
        sent, self._sent = self._sent, None
        call, self._call = self._call, None
        await self.lane.dispatcher.go_on(life, self.candidates, sent=sent, prepared=call)
