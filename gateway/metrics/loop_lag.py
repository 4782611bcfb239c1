"""How late the event loop is: what a request may wait for because another one computes."""

import asyncio
from typing import Final

from gateway.clock import Clock
from gateway.metrics.histogram import LOOP_LAG_SECONDS, Histogram

_EVERY_SECONDS: Final = 0.1
_EVERY_NS: Final = 100_000_000


class LoopLag:
    """Sleeps ten times a second and counts by how much each sleep was too long. uvloop's timers have 1 ms steps."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.histogram = Histogram(LOOP_LAG_SECONDS)

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            began_ns = self._clock.monotonic_ns()
            await asyncio.sleep(_EVERY_SECONDS)
            self.histogram.observe(max(self._clock.monotonic_ns() - began_ns - _EVERY_NS, 0))
