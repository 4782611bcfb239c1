"""Installs vLLM's environment if needed, then keeps an engine host of kind vllm running, beside all other processes."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from contracts.errors import ConfigurationError
from tollkeeper.children import Child, PrintLine

NAME = "engine"
RETRY_SECONDS = 30.0


class Environment(Protocol):
    """The virtual environment of the engine host."""

    async def set_up(self, say: Callable[[str], None]) -> None:
        """Install what is missing. Raises ConfigurationError."""


class VllmHost:
    """One engine host. A failure of it or of its installation is printed and retried, and stops no other process."""

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
        """Return the host's process; `None` if it is not running."""
        return self._child

    async def run(self) -> None:
        """Install, start and keep the host running, until cancelled; then call `stop`."""
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
        """Stop the host if it runs."""
        child, self._child = self._child, None
        if child is not None:
            await child.stop(grace_seconds)
        if self._running is not None:
            await asyncio.gather(self._running, return_exceptions=True)
            self._running = None

    def _say(self, line: str) -> None:
        self._print_line(NAME, line)
