"""One request in progress at a provider host: passes its chunks to the reader and waits for its end."""

import asyncio
from collections.abc import Callable

from contracts.engine.wire import Chunk, Invoked


class ProviderStream:
    """Receives a request's frames. If `take` raises, the request fails with that error; the waiting call then aborts
    it.
    """

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take
        self._done: asyncio.Future[Invoked] = asyncio.get_running_loop().create_future()

    def on_chunk(self, message: Chunk) -> None:
        """Pass a chunk to the reader."""
        if self._done.done():
            return
        try:
            self._take(message.data)
        except Exception as error:  # an error in one answer must not end others on the connection
            self.fail(error)

    def on_invoked(self, message: Invoked) -> None:
        """Process the host's final message."""
        if not self._done.done():
            self._done.set_result(message)

    def fail(self, error: Exception) -> None:
        """End without an account: the host is gone or sent invalid data, or the reader raised."""
        if not self._done.done():
            self._done.set_exception(error)

    async def invoked(self) -> Invoked:
        """Wait for the end. Raises the error that `fail` got."""
        return await asyncio.shield(self._done)

    async def invoked_within(self, seconds: float) -> Invoked | None:
        """Wait for the end of an aborted request; return `None` if it does not arrive in time."""
        await asyncio.wait((self._done,), timeout=seconds)
        if not self._done.done() or self._done.exception() is not None:
            return None
        return self._done.result()
