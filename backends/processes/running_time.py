"""Time limits that count only the time in which this process ran.

An event loop that was stopped, or had no core, runs its timers before it reads what arrived meanwhile: an answer that
has been in the kernel's buffer for a second then passes for one that never came. So a limit is counted in parts, each
of which counts once however long it took, and the last of them must end on time.
"""

import asyncio
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Final

_PARTS: Final = 5  # of a time limit: each time that the process is held up costs it at most one
_SHORTEST_PART_SECONDS: Final = 0.005
LATE_SECONDS: Final = 0.02  # a timer that is later than this was held up, with what there is to read still unread
_LOOK_SECONDS: Final = 0.02  # to read it
_MOST_LOOKS: Final = 5  # a loop that is always late has to end its waits as well


class RunningTimer:
    """Call a function once this process has run for a number of seconds. For the running event loop."""

    __slots__ = ("_due", "_handle", "_left", "_looks", "_loop", "_part_seconds", "_ring", "held_up_seconds")

    def __init__(self, seconds: float, ring: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._ring = ring
        self._handle: asyncio.TimerHandle | None = None
        self.held_up_seconds = 0.0  # that were not counted so far
        self.restart(seconds)

    def restart(self, seconds: float) -> None:
        """Begin again with another number of seconds, also after it rang."""
        self.cancel()
        self._left = max(min(_PARTS, int(seconds / _SHORTEST_PART_SECONDS)), 1)
        self._part_seconds = seconds / self._left
        self._looks = 0
        self._wait(self._part_seconds)

    def cancel(self) -> None:
        """Do not ring; again is harmless."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _wait(self, seconds: float) -> None:
        self._due = self._loop.time() + seconds
        self._handle = self._loop.call_at(self._due, self._pass)

    def _pass(self) -> None:
        """Count a part; ring after the last of them, unless there may be something to read."""
        self._handle = None
        self._left -= 1
        late = self._loop.time() - self._due
        if late > LATE_SECONDS:
            self.held_up_seconds += late
        if self._left > 0:
            self._wait(self._part_seconds)
        elif late > LATE_SECONDS and self._looks < _MOST_LOOKS:
            self._looks += 1
            self._wait(_LOOK_SECONDS)
        else:
            self._ring()


class RunningTimeout:
    """`asyncio.timeout` in the time in which this process ran: `async with` raises TimeoutError after `seconds`.

    `None`: there is no limit.
    """

    __slots__ = ("_is_over", "_seconds", "_timeout", "_timer")

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._timeout = asyncio.timeout(None)
        self._timer: RunningTimer | None = None
        self._is_over = False

    async def __aenter__(self) -> "RunningTimeout":
        await self._timeout.__aenter__()
        if self._seconds is not None:
            self._timer = RunningTimer(self._seconds, self.expire)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        await self._timeout.__aexit__(kind, error, trace)  # raises TimeoutError in place of what it cancelled

    @property
    def is_expired(self) -> bool:
        """Return whether the time is over."""
        return self._timeout.expired()

    @property
    def held_up_seconds(self) -> float:
        """Return how many seconds were not counted, as this process did not run."""
        return 0.0 if self._timer is None else self._timer.held_up_seconds

    def expire(self) -> None:
        """End the time now. Do nothing once it has ended, or the block has."""
        if not self._is_over and not self._timeout.expired():
            self._timeout.reschedule(asyncio.get_running_loop().time())

    def restart(self, seconds: float) -> None:
        """Begin the time again, with another number of seconds, unless the block has ended."""
        if self._is_over:
            return
        if self._timer is None:
            self._timer = RunningTimer(seconds, self.expire)
        else:
            self._timer.restart(seconds)


async def any_done(futures: Iterable["asyncio.Future[Any]"], seconds: float | None) -> bool:
    """Wait until any of the futures is done, at most for the seconds that this process runs; return whether one is."""
    waited = list(futures)
    try:
        async with RunningTimeout(seconds):
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    except TimeoutError:
        pass
    return any(future.done() for future in waited)


async def sleep_and_tell(seconds: float) -> float:
    """Sleep; return by how many seconds this process was held up beyond that, 0 if it was hardly late."""
    loop = asyncio.get_running_loop()
    due = loop.time() + seconds
    await asyncio.sleep(seconds)
    late = loop.time() - due
    return late if late > LATE_SECONDS else 0.0
