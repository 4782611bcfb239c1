"""Measures the event loop's lag: the delay that one request's computation causes for others."""

import asyncio
from typing import Final

from backends.processes.beat import until_beat
from gateway.observability.metrics.histogram import LOOP_LAG_SECONDS, Histogram
from gateway.request.clock import Clock

_EVERY_SECONDS: Final = 0.25


class LoopLag:
    """Sleeps four times a second, and counts by how much each sleep was too long. Timers of uvloop have a resolution of
    1 ms.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.histogram = Histogram(LOOP_LAG_SECONDS)

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            began_ns, seconds = self._clock.monotonic_ns(), until_beat(_EVERY_SECONDS)
            await asyncio.sleep(seconds)
            self.histogram.observe(max(self._clock.monotonic_ns() - began_ns - round(seconds * 1e9), 0))
