"""A check that may block for ever, such as a question to a stopped database, asked without waiting for ever."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class BackgroundCheck(Generic[T]):
    """Runs a function in a thread of its own, once at a time. For one event loop.

    Not in a pool of threads: those of a pool may all be blocked by what the check is about.
    """

    def __init__(self, name: str, check: Callable[[], T]) -> None:
        self._name = name
        self._check = check
        self._running: asyncio.Future[T] | None = None

    async def within(self, seconds: float) -> T:
        """Return the function's result, or raise what it raises. Raise TimeoutError if it takes longer.

        A run that has not ended is waited for again by the next call.
        """
        running = self._running
        if running is None:
            running = self._running = self._start()
        await asyncio.wait((running,), timeout=seconds)
        if not running.done():
            raise TimeoutError
        return running.result()

    def _start(self) -> "asyncio.Future[T]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def end(error: Exception | None, result: list[T]) -> None:
            self._running = None
            if error is not None:
                future.set_exception(error)
                future.exception()  # seen, also if nobody waits any more
            else:
                future.set_result(result[0])

        def run() -> None:
            error: Exception | None = None
            result: list[T] = []
            try:
                result.append(self._check())
            except Exception as caught:  # the thread's edge: whoever asked gets it
                error = caught
            with contextlib.suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(end, error, result)

        threading.Thread(target=run, name=self._name, daemon=True).start()
        return future
