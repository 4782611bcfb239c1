"""uvicorn's server, woken once a second instead of ten times."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

import uvicorn

from backends.processes.beat import until_beat

_TICK_SECONDS: Final = 1.0  # the age of the header `Date`
_HEADERS_DUE: Final = 0  # of uvicorn's ticks each tenth makes that header anew


class Server(uvicorn.Server):
    """uvicorn's server, which sleeps until the next second or until it is told to end.

    uvicorn itself looks ten times a second whether it was told. That was a third of what an installation took at rest.
    """

    _is_ending = False
    _wake: Callable[[], object] | None = None  # from any thread, and from a signal handler

    @property
    def should_exit(self) -> bool:
        """Whether it was told to end."""
        return self._is_ending

    @should_exit.setter
    def should_exit(self, is_ending: bool) -> None:
        self._is_ending = is_ending
        if is_ending and self._wake is not None:
            self._wake()

    async def main_loop(self) -> None:
        """Serve until told to end."""
        told = asyncio.Event()
        self._wake = partial(asyncio.get_running_loop().call_soon_threadsafe, told.set)
        try:
            while not await self.on_tick(_HEADERS_DUE):
                with suppress(TimeoutError):
                    await asyncio.wait_for(told.wait(), until_beat(_TICK_SECONDS))
        finally:
            self._wake = None


class ServerWithoutSignals(Server):
    """A server for processes that end by signal handlers of their own: two in one process would undo each other's."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield
