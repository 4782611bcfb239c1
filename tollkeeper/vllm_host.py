"""Keeps an engine host of kind vllm running once its environment is there: everything else serves meanwhile."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from contracts.errors import ConfigurationError
from tollkeeper.children import Child, PrintLine

NAME = "engine"
RETRY_SECONDS = 30.0


class Environment(Protocol):
    """Where the host's Python comes from."""

    async def set_up(self, say: Callable[[str], None]) -> None:
        """Install what is missing. Raises ConfigurationError."""


class VllmHost:
    """One host. A fault of it, or of its installation, ends nothing else: it is said, and tried again."""

    def __init__(
        self,
        environment: Environment,
        make_child: Callable[[], Child],
        print_line: PrintLine,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self._environment = environment
        self._make_child = make_child
        self._print_line = print_line
        self._retry_seconds = retry_seconds
        self._child: Child | None = None
        self._running: asyncio.Task[None] | None = None

    @property
    def child(self) -> Child | None:
        """The host, while it is kept running."""
        return self._child

    async def run(self) -> None:
        """Set up, start and keep running, until cancelled; `stop` ends what then still runs."""
        while True:
            try:
                await self._environment.set_up(self._say)
                self._child = self._make_child()
                self._running = asyncio.create_task(self._child.keep_running(), name=NAME)
                await asyncio.shield(self._running)
                return  # it was stopped
            except ConfigurationError as error:
                self._child = self._running = None
                self._say(f"{error.message}; its models answer 503, again in {self._retry_seconds:g} s")
                await asyncio.sleep(self._retry_seconds)

    async def stop(self, grace_seconds: float) -> None:
        """End the host, if it runs."""
        child, self._child = self._child, None
        if child is not None:
            await child.stop(grace_seconds)
        if self._running is not None:
            await asyncio.gather(self._running, return_exceptions=True)
            self._running = None

    def _say(self, line: str) -> None:
        self._print_line(NAME, line)
