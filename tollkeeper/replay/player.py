"""Sends requests at their scheduled times, regardless of answers (open loop), and records delays."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tollkeeper.replay.chat import Outcome

T = TypeVar("T")


class Clock(Protocol):
    """The interface of a clock in seconds."""

    def now(self) -> float:
        """Return the time in seconds."""

    async def sleep_until(self, moment: float) -> None:
        """Wait until a time; if it has passed, yield to other tasks once."""


class MonotonicClock:
    """The machine's monotonic clock, and the running event loop's timers."""

    def now(self) -> float:
        """Return the time in seconds."""
        return time.monotonic()

    async def sleep_until(self, moment: float) -> None:
        """Wait until a time; if it has passed, yield to other tasks once."""
        await asyncio.sleep(max(0.0, moment - self.now()))


@dataclass(frozen=True, slots=True)
class Timed(Generic[T]):
    """An item to send, with its time in seconds after the start."""

    at_seconds: float
    item: T


class Player(Generic[T]):
    """Sends items at their times. Each instance can play once.

    `outcomes`: of ended requests, in the order in which they ended.
    """

    def __init__(
        self,
        send: Callable[[T, float], Awaitable[Outcome]],
        clock: Clock,
        on_change: Callable[["Player[T]"], None] = lambda player: None,
    ) -> None:
        self._send = send
        self._clock = clock
        self._on_change = on_change
        self.outcomes: list[Outcome] = []
        self.sent = 0
        self.most_in_flight = 0
        self.began_at = 0.0

    @property
    def in_flight(self) -> int:
        """Return the number of requests that were sent and have not ended."""
        return self.sent - len(self.outcomes)

    async def play(self, items: Iterable[Timed[T]], stop: asyncio.Event, *, drain_seconds: float | None = None) -> bool:
        """Send every item at its time and wait for all answers; return whether all were answered.

        Return False if `stop` is set, or if answers are missing `drain_seconds` after the last item was sent: requests
        in progress are then abandoned, as by a client that disconnects. Items are read just before they are due, so the
        iterable may generate them lazily.
        """
        playing = asyncio.create_task(self._play(items, drain_seconds))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((playing, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            if not playing.done():
                playing.cancel()
            await asyncio.gather(playing, stopping, return_exceptions=True)
        return False if playing.cancelled() else playing.result()

    async def _play(self, items: Iterable[Timed[T]], drain_seconds: float | None) -> bool:
        tasks: set[asyncio.Task[None]] = set()
        try:
            self.began_at = self._clock.now()
            for timed in items:
                due_at = self.began_at + timed.at_seconds
                await self._clock.sleep_until(due_at)
                self.sent += 1
                self.most_in_flight = max(self.most_in_flight, self.in_flight)
                task = asyncio.create_task(self._send_one(timed.item, due_at))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                self._on_change(self)
            if not tasks:
                return True
            _, late = await asyncio.wait(tasks, timeout=drain_seconds)
            return not late
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send_one(self, item: T, due_at: float) -> None:
        outcome = await self._send(item, due_at)
        self.outcomes.append(outcome)
        self._on_change(self)
