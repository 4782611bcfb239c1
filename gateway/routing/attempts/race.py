"""Hedged calls: if the first token is late, a second target is called too, and the first one with output answers."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

import msgspec

from backends.llm.base import ModelCall
from backends.processes.running_time import RunningTimeout
from contracts.api.generation import Result
from contracts.errors import GatewayFault, TollkeeperError, UnsupportedParameter
from contracts.recording.records import AttemptReason
from contracts.serving.configuration import TargetSpec
from gateway.replies.reply import Reply
from gateway.request.attempt import Attempt
from gateway.request.request_state import RequestState
from gateway.routing.attempts.attempt_run import AttemptDependencies, AttemptRun, is_final
from gateway.routing.attempts.racing_sink import RacingSink
from gateway.routing.attempts.time_limits import TimeLimits

_log = logging.getLogger(__name__)


class Racer(msgspec.Struct, eq=False):
    """One of the racing targets, with its call in progress."""

    run: AttemptRun
    sink: RacingSink
    task: "asyncio.Task[TollkeeperError | None]"


class Race:
    """One request's call of a target, and of a second one if the first is late.

    `begin` starts an attempt at a target; `second` returns the second target, or `None` if there is none.
    """

    def __init__(
        self,
        means: AttemptDependencies,
        life: RequestState,
        reply: Reply,
        call: ModelCall,
        limits: TimeLimits | None,
        begin: Callable[[TargetSpec, AttemptReason], AttemptRun],
        second: Callable[[], TargetSpec | None],
    ) -> None:
        self._means = means
        self._life = life
        self._reply = reply
        self._call = call
        self._limits = limits
        self._begin = begin
        self._second = second
        self._racers: list[Racer] = []
        self._is_decided = asyncio.Event()
        self.winner: Attempt | None = None
        self._decisive: Attempt | None = None  # the attempt whose answer or failure counts
        self.asked: list[TargetSpec] = []

    async def run(self, first: TargetSpec, reason: AttemptReason, after_seconds: float) -> TollkeeperError | None:
        """Call `first`, and another target `after_seconds` later; return the error, `None` if the answer succeeded.

        Afterwards no call is in progress, and the deciding attempt is the request's last. If no target has answered,
        raises an exception of a call that is not a TollkeeperError.
        """
        try:
            self._start(first, reason)
            await self._wait_for_output(after_seconds)
            if self.winner is None and not self._racers[0].task.done():
                other = self._second()
                if other is not None:
                    self._start(other, "hedge")
                await self._wait_for_output(None)
            return await self._end()
        finally:
            for racer in self._racers:
                racer.task.cancel()
            await asyncio.gather(*[racer.task for racer in self._racers], return_exceptions=True)
            decisive = self.winner or self._decisive
            if decisive is not None and decisive is not self._life.attempts[-1]:
                self._life.attempts.remove(decisive)
                self._life.attempts.append(decisive)

    async def _end(self) -> TollkeeperError | None:
        winner = next((racer for racer in self._racers if racer.run is self.winner), None)
        if winner is None:
            return await self._failure()
        for racer in self._racers:
            if racer is not winner and not racer.task.done():
                racer.run.lose()
                racer.task.cancel()
            elif racer is not winner:
                _tell_of_bug(racer)
        return await winner.task

    async def _failure(self) -> TollkeeperError | None:
        """Return the error that decides if all calls failed before any output: one that no other target can mend, else
        the last.
        """
        last = None
        for racer in self._racers:
            error = await racer.task
            if error is None or (last is not None and isinstance(error, UnsupportedParameter)):
                continue
            self._decisive, last = racer.run, error
            if is_final(error):
                break
        return last

    def _start(self, spec: TargetSpec, reason: AttemptReason) -> None:
        run = self._begin(spec, reason)
        self.asked.append(spec)

        def claim() -> bool:
            if self.winner is None:
                self.winner = run
                self._reply.begin_attempt(run)
                self._is_decided.set()
                if run.is_probe:
                    run.note_output()
            return self.winner is run

        sink = RacingSink(run.receiver(self._reply), run, claim)
        task = asyncio.create_task(run.follow(lambda: self._answer(run, sink)), name=f"hedge {spec.id}")
        self._racers.append(Racer(run, sink, task))

    async def _answer(self, run: AttemptRun, sink: RacingSink) -> Result:
        target, call = self._means.targets.get(run.target), replace(self._call)
        result = await run.call(target, call, sink, self._limits)
        if sink.finish():
            run.deliver()
        return result

    async def _wait_for_output(self, seconds: float | None) -> None:
        """Wait until one call has output or all have failed, at most this long."""
        decided = asyncio.ensure_future(self._is_decided.wait())
        try:
            async with RunningTimeout(seconds):
                while self.winner is None and not all([racer.task.done() for racer in self._racers]):
                    under_way = [racer.task for racer in self._racers if not racer.task.done()]
                    await asyncio.wait([decided, *under_way], return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            pass
        finally:
            decided.cancel()


def _tell_of_bug(racer: Racer) -> None:
    """Log a bug in a racer that was not needed: its request is answered anyway."""
    bug = None if racer.task.cancelled() else racer.task.exception()
    if bug is not None:
        racer.run.error = GatewayFault()
        _log.error(
            "a hedged call failed because of a fault of the gateway",
            exc_info=bug,
            extra={"target": racer.run.target.id},
        )
