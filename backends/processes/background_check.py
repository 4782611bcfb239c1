"""A check that may block for ever, such as a query to a stopped database, run with a time limit."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class BackgroundCheck(Generic[T]):
    """Runs a function in a thread of its own, one run at a time, for one event loop.

    A thread pool would not do, because the same failure may block all of its threads.
    """

    def __init__(self, name: str, check: Callable[[], T]) -> None:
        self._name = name
        self._check = check
        self._running: asyncio.Future[T] | None = None

    async def within(self, seconds: float) -> T:
        """Return the function's result, or raise what it raises; raise TimeoutError if it takes longer than `seconds`.

        After a timeout the function continues, and the next call waits for its result.
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
                future.exception()  # marks it as retrieved, in case no caller waits any more
            else:
                future.set_result(result[0])

        def run() -> None:
            error: Exception | None = None
            result: list[T] = []
            try:
                result.append(self._check())
            except Exception as caught:  # passed to the caller
                error = caught
            with contextlib.suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(end, error, result)

        threading.Thread(target=run, name=self._name, daemon=True).start()
        return future
