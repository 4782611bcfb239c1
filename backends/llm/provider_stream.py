"""One request in progress at a provider host: its chunks on their way to the reader, and its end."""

import asyncio
from collections.abc import Callable

from contracts.engine.wire import Chunk, Invoked


class ProviderStream:
    """Accepts a request's frames. What `take` raises ends the request here; the host is told by the one that waits."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take
        self._done: asyncio.Future[Invoked] = asyncio.get_running_loop().create_future()

    def on_chunk(self, message: Chunk) -> None:
        """Pass a chunk on."""
        if self._done.done():
            return
        try:
            self._take(message.data)
        except Exception as error:  # one answer's fault must not end those that share the connection
            self.fail(error)

    def on_invoked(self, message: Invoked) -> None:
        """Receive the end."""
        if not self._done.done():
            self._done.set_result(message)

    def fail(self, error: Exception) -> None:
        """End without an account: the host is gone, what it sends cannot be used, or the reader failed to take it."""
        if not self._done.done():
            self._done.set_exception(error)

    async def invoked(self) -> Invoked:
        """Wait for the end. Raises what `fail` was given."""
        return await asyncio.shield(self._done)

    async def invoked_within(self, seconds: float) -> Invoked | None:
        """Wait for the end of a request that was aborted; `None` if it does not come in time, or at all."""
        await asyncio.wait((self._done,), timeout=seconds)
        if not self._done.done() or self._done.exception() is not None:
            return None
        return self._done.result()
