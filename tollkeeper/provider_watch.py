"""Runs the provider host only while the gateway has targets that need it, because it is large and has API keys."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from contracts.errors import ConfigurationError
from tollkeeper.children import Child, PrintLine

NAME = "providers"


class Environment(Protocol):
    """The virtual environment of the provider host."""

    async def set_up(self, say: Callable[[str], None]) -> None:
        """Install what is missing. Raises ConfigurationError."""


@dataclass(frozen=True, slots=True)
class WatchTimes:
    """Seconds between polls, until an unneeded host is stopped, and until a retry after a failure."""

    poll_seconds: float = 5.0
    idle_seconds: float = 60.0
    retry_seconds: float = 30.0


class ProviderWatch:
    """Polls the gateway and starts or stops the provider host. `is_needed` returns `None` if that is unknown."""

    def __init__(
        self,
        is_needed: Callable[[], Awaitable[bool | None]],
        environment: Environment,
        make_child: Callable[[], Child],
        print_line: PrintLine,
        times: WatchTimes | None = None,
    ) -> None:
        self._is_needed = is_needed
        self._environment = environment
        self._make_child = make_child
        self._print_line = print_line
        self._times = times or WatchTimes()
        self._child: Child | None = None
        self._running: asyncio.Task[None] | None = None

    @property
    def child(self) -> Child | None:
        """Return the host's process; `None` if it is not running."""
        return self._child

    async def run(self) -> None:
        """Start and stop the host as needed, until cancelled; then call `stop`."""
        loop = asyncio.get_running_loop()
        needed_at = loop.time()
        while True:
            is_needed = await self._is_needed()
            if is_needed is not False:
                needed_at = loop.time()
            if is_needed and self._child is None:
                await self._start()
            elif self._child is not None and loop.time() - needed_at > self._times.idle_seconds:
                self._say("no target needs the provider host any more; ended")
                await self.stop(self._times.poll_seconds)
            if self._running is not None and self._running.done():
                await self._give_up()
            await asyncio.sleep(self._times.poll_seconds)

    async def stop(self, grace_seconds: float) -> None:
        """Stop the host if it runs."""
        child, self._child = self._child, None
        if child is not None:
            await child.stop(grace_seconds)
        if self._running is not None:
            await asyncio.gather(self._running, return_exceptions=True)
            self._running = None

    async def _start(self) -> None:
        try:
            await self._environment.set_up(self._say)
        except ConfigurationError as error:
            await self._wait_after(error)
            return
        self._say("a target needs hosted providers; starting the provider host, which takes some seconds")
        self._child = self._make_child()
        self._running = asyncio.create_task(self._child.keep_running(), name=NAME)

    async def _give_up(self) -> None:
        """Stop restarting a host with an invalid configuration; all other processes continue."""
        assert self._running is not None
        error = self._running.exception()
        self._child = self._running = None
        if error is not None:
            await self._wait_after(error)

    async def _wait_after(self, error: BaseException) -> None:
        self._say(f"{error}; hosted providers answer 503, again in {self._times.retry_seconds:g} s")
        await asyncio.sleep(self._times.retry_seconds)

    def _say(self, line: str) -> None:
        self._print_line(NAME, line)
