"""A keep-alive pool of HTTP/1.1 client connections to one origin, on httptools and raw asyncio protocols.

It exists because a general client costs more per request than the whole gateway may (see docs/decisions):
bytes of a reply are handed to a receiver as they arrive, and the reader can be paused for backpressure.
"""

import asyncio
import contextlib
import logging
import ssl
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol, cast

import httptools
import msgspec

from backends.http_origin import Origin
from backends.tls import TlsFiles, client_tls, tls_refusal
from contracts.errors import ConfigurationError, UpstreamBroken, UpstreamError, UpstreamTimeout, UpstreamUnreachable

_log = logging.getLogger(__name__)

# Below the 5 s after which uvicorn (and so vLLM) closes an idle connection, and loses what is just being sent into it.
_IDLE_SECONDS: Final = 4.0
_SWEEP_SECONDS: Final = 0.05
_MAX_IDLE: Final = 256
# News of a closed connection comes within a round trip; a server that dies of a request takes longer (decision 0007).
_STALE_SECONDS: Final = 1.0
_MAX_REPLY_HEAD_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long to wait, in seconds: to connect, until the reply first gets on, until it does again, in total.

    It gets on with each piece of its body, unless the receiver says that a piece only kept it alive.
    """

    connect: float = 5.0
    first_byte: float = 300.0
    between: float = 60.0
    total: float = 1800.0

    def __post_init__(self) -> None:
        for name in ("connect", "first_byte", "between", "total"):
            if getattr(self, name) <= 0:
                raise ConfigurationError(f"timeout {name!r} must be > 0 seconds, not {getattr(self, name)}")


class _StaleConnection(UpstreamBroken):
    """The target had closed an idle connection before the request reached it: it may be sent again."""


class Receiver(Protocol):
    """Takes a reply as it arrives. All calls happen on the event loop; none may block."""

    def on_head(self, status: int, headers: dict[bytes, bytes]) -> None: ...
    def on_body(self, data: bytes) -> bool | None:
        """Take a piece. False: the reply has not got on by it, it was only kept alive."""


class _Connection(asyncio.Protocol):
    """One connection: idle, or carrying exactly one exchange."""

    def __init__(self, pool: "HttpPool") -> None:
        self.pool = pool
        self.transport: asyncio.Transport | None = None
        self.receiver: Receiver | None = None
        self.done: asyncio.Future[None] | None = None
        self.idle_since = 0.0
        self.deadline = 0.0
        self.expires = 0.0
        self._stale_until = 0.0
        # One for all replies of a connection: it begins anew after each that keeps the connection.
        self._parser = httptools.HttpResponseParser(self)
        self._is_awaited = False  # a reply, from the request's sending to its end
        self._headers: dict[bytes, bytes] = {}
        self._head_bytes = 0
        self._has_head = False
        self._has_body = False
        self._keep = False
        self._is_paused = False

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its base class

    def data_received(self, data: bytes) -> None:
        if not self._is_awaited:  # bytes nobody asked for: the connection cannot be trusted any more
            self.abort()
            return
        if not self._has_head:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            # What a receiver raises in a callback, the parser carries as its error's context.
            raised = error.__context__
            if not isinstance(raised, UpstreamError):
                raised = UpstreamBroken("the target's reply is not valid HTTP/1.1")
            self._fail(raised)
            return
        if not self._has_head and self._head_bytes > _MAX_REPLY_HEAD_BYTES:
            self._fail(_too_long_a_head())

    def connection_lost(self, exc: Exception | None) -> None:
        self.pool.forget(self)
        was_awaited, self._is_awaited = self._is_awaited, False
        if self.done is None or self.done.done():
            return
        if was_awaited and self._has_head and exc is None and self._ends_with_connection():
            self.done.set_result(None)
        elif self._has_head:
            self.done.set_exception(UpstreamBroken("the target closed the connection in the middle of its reply"))
        elif isinstance(exc, ssl.SSLError):  # under TLS 1.3 a refused certificate of ours shows only now
            self.done.set_exception(tls_refusal(self.pool.origin.authority, exc))
        else:
            kind = _StaleConnection if self._was_stale(exc) else UpstreamBroken
            self.done.set_exception(kind("the target closed the connection before it replied"))

    # httptools' side

    def on_message_begin(self) -> None:
        if self._has_head:
            raise UpstreamBroken("the target sent more than the one reply it was asked for")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        assert self.receiver is not None
        status = self._parser.get_status_code()
        if status < 200:  # 100 Continue and the like are not the reply
            self._headers = {}
            return
        if self._head_bytes > _MAX_REPLY_HEAD_BYTES and _size_of(self._headers) > _MAX_REPLY_HEAD_BYTES:
            raise _too_long_a_head()
        self._has_head = True
        self.receiver.on_head(status, self._headers)

    def on_body(self, data: bytes) -> None:
        assert self.receiver is not None
        if self.receiver.on_body(data) is not False:
            self._has_body = True
            self.deadline = self.pool.clock() + self.pool.timeouts.between

    def on_message_complete(self) -> None:
        if not self._is_awaited or not self._has_head:
            return
        # Later the parser has forgotten: asked outside this callback it always says no.
        self._keep = self._parser.should_keep_alive()
        if self.done is not None and not self.done.done():
            self.done.set_result(None)

    # the pool's side

    def send(self, request: "_Request", now: float, *, is_reused: bool) -> asyncio.Future[None]:
        """Begin an exchange; the future ends with the reply, or with an UpstreamError."""
        assert self.transport is not None
        self.receiver = request.receiver
        self._is_awaited = True
        self._headers = {}
        self._head_bytes = 0
        self._has_head = self._has_body = self._keep = False
        self.deadline = now + self.pool.timeouts.first_byte
        self.expires = now + self.pool.timeouts.total
        self._stale_until = now + _STALE_SECONDS if is_reused else 0.0
        self.done = self.pool.loop.create_future()
        self.transport.writelines((request.head, request.body))
        return self.done

    def release(self) -> None:
        """Give the connection back to the pool, or close it where it cannot be used again."""
        self.receiver = None
        self._is_awaited = False
        done, self.done = self.done, None
        finished = done is not None and done.done() and not done.cancelled() and done.exception() is None
        if self._is_paused:
            self.resume()
        if finished and self._keep and self.transport is not None and not self.transport.is_closing():
            self.pool.keep(self)
        else:
            self.pool.forget(self)
            self.abort()

    def pause(self) -> None:
        """Stop reading. A target that may not send is not silent: its deadline between pieces rests."""
        if self.transport is not None and not self.transport.is_closing():
            self._is_paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if self._is_paused and self.transport is not None and not self.transport.is_closing():
            self._is_paused = False
            self.deadline = self.pool.clock() + self.pool.timeouts.between
            self.transport.resume_reading()

    def expire(self, now: float) -> None:
        """End the exchange where one of its deadlines has passed."""
        if now >= self.expires:
            self._fail(UpstreamTimeout(f"the target took more than {self.pool.timeouts.total:g} s in total"))
        elif now >= self.deadline and not self._is_paused:
            waited = self.pool.timeouts.between if self._has_body else self.pool.timeouts.first_byte
            where = "between two pieces of its reply" if self._has_body else "before it replied"
            self._fail(UpstreamTimeout(f"the target was silent for {waited:g} s {where}"))

    def abort(self) -> None:
        """Close at once, without waiting for unsent bytes."""
        if self.transport is not None:
            self.transport.abort()

    def _fail(self, error: UpstreamError) -> None:
        if self.done is not None and not self.done.done():
            self.done.set_exception(error)
        self.abort()

    def _was_stale(self, exc: Exception | None) -> bool:
        closed_by_target = exc is None or isinstance(exc, ConnectionError)
        return closed_by_target and not self._head_bytes and self.pool.clock() < self._stale_until

    def _ends_with_connection(self) -> bool:
        return b"content-length" not in self._headers and b"transfer-encoding" not in self._headers


class _Request(msgspec.Struct, frozen=True):
    """What is sent, and who takes the reply."""

    head: bytes
    body: bytes
    receiver: Receiver


class Exchange:
    """One request under way: await `finished()`, pause and resume its reading, or leave and it is aborted."""

    def __init__(self, request: _Request, connection: _Connection, done: asyncio.Future[None]) -> None:
        self._request = request
        self._connection = connection
        self._done = done
        self._is_over = False

    async def finished(self) -> None:
        """Wait for the reply's end. Raises UpstreamError; a cancelled wait aborts the connection at once.

        A request that went into a connection the target had closed already is sent once more, on a fresh one.
        """
        try:
            try:
                await self._done
            except _StaleConnection:
                self._connection.release()
                await self._send_again(self._connection.pool)
        finally:
            self._is_over = True
            self._connection.release()

    async def _send_again(self, pool: "HttpPool") -> None:
        _log.info("idle connection had been closed, sending again", extra={"target": pool.origin.authority})
        self._connection, self._done = await pool.begin(self._request, None)
        await self._done

    def pause(self) -> None:
        """Stop reading, so that a slow client holds the target back instead of filling memory."""
        if not self._is_over:  # afterwards the connection is another exchange's
            self._connection.pause()

    def resume(self) -> None:
        """Read again."""
        if not self._is_over:
            self._connection.resume()


class HttpPool:
    """Connections to one origin. Not for use from several event loops."""

    def __init__(
        self, origin: Origin, timeouts: Timeouts, tls: ssl.SSLContext | None = None, server_name: str = ""
    ) -> None:
        """`server_name` is what the server's certificate must be for, where that is not the origin's host."""
        self.origin = origin
        self.timeouts = timeouts
        self._tls = (tls or client_tls(TlsFiles())) if origin.scheme == "https" else None
        self._server_name = (server_name or origin.host) if self._tls is not None else None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._idle: deque[_Connection] = deque()
        self._busy: set[_Connection] = set()
        self._sweeper: asyncio.Task[None] | None = None
        self._connecting = 0
        self._is_closed = False

    def clock(self) -> float:
        """Give the event loop's time in seconds."""
        return self.loop.time()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Give the event loop of whoever asked first: the pool is for that one alone."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    async def send(self, head: bytes, body: bytes, receiver: Receiver) -> Exchange:
        """Send a request. Raises UpstreamUnreachable or UpstreamTimeout where no connection can be made.

        `head` is the complete request head including the blank line.
        """
        request = _Request(head, body, receiver)
        return Exchange(request, *await self.begin(request, self._take_idle()))

    async def begin(self, request: _Request, idle: _Connection | None) -> tuple[_Connection, asyncio.Future[None]]:
        """Put a request into an idle connection, or into a fresh one where none is given."""
        connection = idle
        if connection is None:
            self._connecting += 1
            try:
                connection = await self._connect()
            finally:
                self._connecting -= 1
        self._busy.add(connection)
        return connection, connection.send(request, self.clock(), is_reused=idle is not None)

    def keep(self, connection: _Connection) -> None:
        """Take back a connection whose exchange ended well."""
        self._busy.discard(connection)
        if self._is_closed or len(self._idle) >= _MAX_IDLE:
            connection.abort()
            return
        connection.idle_since = self.clock()
        self._idle.append(connection)

    def forget(self, connection: _Connection) -> None:
        """Drop a connection that has closed."""
        self._busy.discard(connection)
        with contextlib.suppress(ValueError):
            self._idle.remove(connection)

    async def close(self) -> None:
        """Close idle connections now and the others when their exchange has ended, which their timeouts bound."""
        self._is_closed = True
        for connection in tuple(self._idle):
            connection.abort()
        while self._busy or self._connecting:
            await asyncio.sleep(_SWEEP_SECONDS)
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)

    def _take_idle(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()  # the most recently used is the least likely to be closing
            if connection.transport is not None and not connection.transport.is_closing():
                return connection
        return None

    async def _connect(self) -> _Connection:
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep(), name=f"sweep {self.origin.authority}")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.timeouts.connect):
                _, connection = await loop.create_connection(
                    lambda: _Connection(self),
                    self.origin.host,
                    self.origin.port,
                    ssl=self._tls,
                    server_hostname=self._server_name,
                )
        except TimeoutError as error:
            raise UpstreamTimeout(
                f"{self.origin.authority} did not accept a connection within {self.timeouts.connect:g} s"
            ) from error
        except ssl.SSLError as error:
            raise tls_refusal(self.origin.authority, error) from error
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise UpstreamUnreachable(f"{self.origin.authority} cannot be reached: {reason}") from error
        return connection

    async def _sweep(self) -> None:
        # One coarse timer for all connections: a timer per request would cost more than the parse.
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            now = self.clock()
            for connection in tuple(self._busy):
                connection.expire(now)
            while self._idle and now - self._idle[0].idle_since > _IDLE_SECONDS:
                self._idle.popleft().abort()


def _size_of(headers: Mapping[bytes, bytes]) -> int:
    return sum(len(name) + len(value) for name, value in headers.items())


def _too_long_a_head() -> UpstreamBroken:
    return UpstreamBroken(f"the target's reply headers exceed {_MAX_REPLY_HEAD_BYTES} bytes")
