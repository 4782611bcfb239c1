"""Event loops whose clock stands still while the machine does: a stalled process runs into no timeout of a test's."""

import asyncio
import selectors
import time
from collections.abc import Callable
from contextvars import Context
from typing import TypeVarTuple

import uvloop

from tests.steady_time import SteadyTime

BEAT_SECONDS = 0.02
# What the clock moves on by, at most, between two looks at it: there is one each beat while the loop runs.
LONGEST_STEP_SECONDS = 0.03
RESOLUTION_SECONDS = 0.0005  # half of what uvloop counts in

Ts = TypeVarTuple("Ts")


class PatientLoop(asyncio.SelectorEventLoop):
    """asyncio's loop under a time of its own."""

    def __init__(self, selector: selectors.BaseSelector | None = None) -> None:
        self._steady = SteadyTime(super().time(), LONGEST_STEP_SECONDS)
        super().__init__(selector)

    def time(self) -> float:
        return self._steady.at(super().time())

    def run_forever(self) -> None:
        beat = _Beat(self)
        try:
            super().run_forever()
        finally:
            beat.end()


class _Timer(asyncio.TimerHandle):
    """A call at a time of a `PatientUvloop`'s clock."""

    beneath: asyncio.TimerHandle


class PatientUvloop(uvloop.Loop):
    """The data plane's loop under a time of its own. A timer rings no earlier than it would on the loop beneath."""

    def __init__(self) -> None:
        super().__init__()
        self._steady = SteadyTime(time.monotonic(), LONGEST_STEP_SECONDS)

    def time(self) -> float:
        return self._steady.at(time.monotonic())

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = _Timer(when, callback, args, self, context)
        self._start(timer, when - self.time())
        return timer

    def run_forever(self) -> None:
        beat = _Beat(self)
        try:
            super().run_forever()
        finally:
            beat.end()

    def _start(self, timer: _Timer, seconds: float) -> None:
        timer.beneath = super().call_later(max(seconds, 0.0), self._ring, timer)

    def _ring(self, timer: _Timer) -> None:
        left = timer.when() - self.time()
        if left > RESOLUTION_SECONDS:
            self._start(timer, left)
        else:
            timer._run()

    def _timer_handle_cancelled(self, timer: _Timer) -> None:
        timer.beneath.cancel()


class _Beat:
    """Looks at a loop's clock all the time: while everything waits, time passes there too."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._next: asyncio.Handle = loop.call_soon(self._ring)

    def _ring(self) -> None:
        self._next = self._loop.call_later(BEAT_SECONDS, self._ring)

    def end(self) -> None:
        self._next.cancel()
