"""An event loop in virtual time: a sleep of an hour returns at once, and all events happen in order."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")


class _Clock(selectors.SelectSelector):
    """Advances its time by the requested wait."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise RuntimeError("deadlock: no pending timer can wake any task")
            self.now += max(timeout, 0.0)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop with its own time, which starts at 0."""

    def __init__(self) -> None:
        self._virtual = _Clock()
        super().__init__(self._virtual)

    def time(self) -> float:
        """Return the seconds that have passed on this loop."""
        return self._virtual.now


def run_at_once(coroutine: Coroutine[None, None, T]) -> T:
    """Run a coroutine to its end in virtual time. Must not be called within a running loop."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.close()
