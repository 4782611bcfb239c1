"""uvicorn's server, changed to wake up once a second instead of ten times."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

import uvicorn

from backends.processes.beat import until_beat

_TICK_SECONDS: Final = 1.0  # maximum age of the header `Date`
_HEADERS_DUE: Final = 0  # uvicorn renews that header at tick numbers divisible by ten


class Server(uvicorn.Server):
    """uvicorn's server, sleeping until the next second or until it is told to stop.

    uvicorn polls for that ten times a second, which was a third of an idle installation's CPU time.
    """

    _is_ending = False
    _wake: Callable[[], object] | None = None  # from any thread, and from a signal handler

    @property
    def should_exit(self) -> bool:
        """Return whether it was told to stop."""
        return self._is_ending

    @should_exit.setter
    def should_exit(self, is_ending: bool) -> None:
        self._is_ending = is_ending
        if is_ending and self._wake is not None:
            self._wake()

    async def main_loop(self) -> None:
        """Serve until told to stop."""
        told = asyncio.Event()
        self._wake = partial(asyncio.get_running_loop().call_soon_threadsafe, told.set)
        try:
            while not await self.on_tick(_HEADERS_DUE):
                with suppress(TimeoutError):
                    await asyncio.wait_for(told.wait(), until_beat(_TICK_SECONDS))
        finally:
            self._wake = None


class ServerWithoutSignals(Server):
    """A server for processes with signal handlers of their own, which uvicorn's would replace."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers."""
        yield
