"""A relay in front of servers that accept connections themselves, such as gRPC's: adds limits per address and timeouts.

The server listens on a Unix socket; bytes are relayed without being parsed.
"""

import asyncio
import logging
import socket
import threading
from typing import Final, cast

import uvloop

from backends.network.connection_table import ConnectionTable

_log = logging.getLogger(__name__)

_BACKLOG: Final = 2048


class BoundedRelay:
    """Relays connections of a bound socket to the Unix socket `to`, in a thread of its own.

    `first_seconds` is the time limit for a client's first byte.
    """

    def __init__(self, bound: socket.socket, to: str, table: ConnectionTable, first_seconds: float) -> None:
        self._bound = bound
        self._to = to
        self._table = table
        self._first_seconds = first_seconds
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)

    def start(self) -> None:
        """Start accepting connections."""
        self._thread.start()

    def stop(self) -> None:
        """Stop accepting, and close open connections. Blocks."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._bound.close()

    def _run(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        loop.run_until_complete(
            loop.create_server(
                lambda: _Client(loop, self._to, self._table, self._first_seconds), sock=self._bound, backlog=_BACKLOG
            )
        )
        try:
            loop.run_forever()
        finally:
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.close()


class _End(asyncio.Protocol):
    """One end of a relayed connection. Reading pauses while the other end cannot be written to."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: _End | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's has the methods, not the base class

    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    def eof_received(self) -> bool:
        return False  # HTTP/2 has no half-closed connections

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        other, self.other, self.transport = self.other, None, None
        if other is not None and other.transport is not None:
            other.transport.close()


class _Client(_End):
    """The client's end. The server is connected to at the first byte, so that silent clients cost it nothing."""

    def __init__(self, loop: asyncio.AbstractEventLoop, to: str, table: ConnectionTable, first_seconds: float) -> None:
        super().__init__()
        self._loop = loop
        self._to = to
        self._table = table
        self._timer: asyncio.TimerHandle | None = None
        self._first_seconds = first_seconds
        self._task: asyncio.Task[None] | None = None
        self._early: list[bytes] = []
        self.answered_at = loop.time()

    @property
    def idle_since(self) -> float | None:
        """Return when the server last sent something. Bytes from the client do not count, so that it cannot stay by
        sending.
        """
        return self.answered_at

    def give_way(self) -> None:
        """Close now, to make room for another connection."""
        if self.transport is not None:
            self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        if self._table.admit(self, str(peer[0]) if peer else "", self.answered_at):
            self._timer = self._loop.call_later(self._first_seconds, self.give_way)
        else:
            self.give_way()

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            super().data_received(data)
            return
        self._early.append(data)
        if self._task is None and self.transport is not None:
            self.transport.pause_reading()
            self._stop_timer()
            self._task = self._loop.create_task(self._connect())

    def connection_lost(self, exc: Exception | None) -> None:
        self._table.discard(self)
        self._stop_timer()
        super().connection_lost(exc)

    async def _connect(self) -> None:
        try:
            _, server = await self._loop.create_unix_connection(lambda: _Server(self), self._to)
        except OSError as error:
            _log.warning("relay cannot reach its server", extra={"reason": error.strerror})
            self.give_way()
            return
        if self.transport is None:  # disconnected meanwhile
            if server.transport is not None:
                server.transport.abort()
            return
        self.other = server
        early, self._early = self._early, []
        super().data_received(b"".join(early))
        self.transport.resume_reading()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Server(_End):
    """The server's end."""

    def __init__(self, client: _Client) -> None:
        super().__init__()
        self.other = self._client = client

    def data_received(self, data: bytes) -> None:
        self._client.answered_at = asyncio.get_running_loop().time()
        super().data_received(data)
