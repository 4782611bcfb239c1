"""Runs a coroutine that a signal can ask to end early."""

import asyncio
import resource
import signal
from collections.abc import Awaitable, Callable
from typing import TypeVar

import uvloop

T = TypeVar("T")


def run_until_signal(work: Callable[[asyncio.Event], Awaitable[T]]) -> T:
    """Run `work` with an event that Ctrl-C or SIGTERM sets; return its result. A second Ctrl-C kills it."""
    _allow_many_connections()

    async def main() -> T:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()

        def ask() -> None:
            stop.set()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, ask)
        return await work(stop)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def _allow_many_connections() -> None:
    # An open loop needs a connection per request in progress; the usual soft limit is 1,024.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
