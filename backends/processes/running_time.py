"""Timeouts that count only the time in which this process ran.

An event loop that was stopped or had no CPU runs its timers before it reads what has arrived: a response that waits in
the kernel's buffer would count as missing. So a timeout is counted in parts, each of which counts once however long it
took, and the last of them must end on time.
"""

import asyncio
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Final

_PARTS: Final = 5  # of a timeout: each delay of the process costs at most one of them
_SHORTEST_PART_SECONDS: Final = 0.005
LATE_SECONDS: Final = 0.02  # a timer that is later than this was delayed, so that data may be unread
_LOOK_SECONDS: Final = 0.02  # extra time to read it
_MOST_LOOKS: Final = 5  # maximum number of extensions, so that timeouts also end in a loop that is always late


class RunningTimer:
    """Calls a function once this process has run for a number of seconds, on the running event loop."""

    __slots__ = ("_due", "_handle", "_left", "_looks", "_loop", "_part_seconds", "_ring", "held_up_seconds")

    def __init__(self, seconds: float, ring: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._ring = ring
        self._handle: asyncio.TimerHandle | None = None
        self.held_up_seconds = 0.0  # time that was not counted so far
        self.restart(seconds)

    def restart(self, seconds: float) -> None:
        """Start again with `seconds`, even after the call was made."""
        self.cancel()
        self._left = max(min(_PARTS, int(seconds / _SHORTEST_PART_SECONDS)), 1)
        self._part_seconds = seconds / self._left
        self._looks = 0
        self._wait(self._part_seconds)

    def cancel(self) -> None:
        """Do not make the call. May be called repeatedly."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _wait(self, seconds: float) -> None:
        self._due = self._loop.time() + seconds
        self._handle = self._loop.call_at(self._due, self._pass)

    def _pass(self) -> None:
        """Count a part; make the call after the last one, unless there may be data to read."""
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
    """`asyncio.timeout` that counts the time in which this process ran. `async with` raises TimeoutError after
    `seconds`.

    `None`: no limit.
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
        """Return how many seconds were not counted because this process did not run."""
        return 0.0 if self._timer is None else self._timer.held_up_seconds

    def expire(self) -> None:
        """Expire now. Does nothing once it has expired or the block has ended."""
        if not self._is_over and not self._timeout.expired():
            self._timeout.reschedule(asyncio.get_running_loop().time())

    def restart(self, seconds: float) -> None:
        """Start the time again with `seconds`, unless the block has ended."""
        if self._is_over:
            return
        if self._timer is None:
            self._timer = RunningTimer(seconds, self.expire)
        else:
            self._timer.restart(seconds)


async def any_done(futures: Iterable["asyncio.Future[Any]"], seconds: float | None) -> bool:
    """Wait until any of the futures is done, at most `seconds` of this process's running time; return
    whether one is.
    """
    waited = list(futures)
    try:
        async with RunningTimeout(seconds):
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    except TimeoutError:
        pass
    return any(future.done() for future in waited)


async def sleep_and_tell(seconds: float) -> float:
    """Sleep; return the seconds by which this process was delayed beyond that (0 if at most 0.02 s)."""
    loop = asyncio.get_running_loop()
    due = loop.time() + seconds
    await asyncio.sleep(seconds)
    late = loop.time() - due
    return late if late > LATE_SECONDS else 0.0
