"""A keep-alive pool of HTTP/1.1 client connections to one origin, on httptools and asyncio protocols.

A general-purpose client would cost more per request than the whole gateway (see docs/decisions). Replies are passed to
a receiver as they arrive, and reading can be paused for backpressure.
"""

import asyncio
import contextlib
import logging
import ssl
import time
from collections import deque
from collections.abc import Callable
from typing import Final, cast

from backends.http_client.http_connection import Connection, Receiver, ReplyEndListener, StaleConnection
from backends.http_client.http_origin import Origin
from backends.http_client.http_timeouts import Timeouts
from backends.network.tls import TlsFiles, client_tls, tls_refusal
from backends.processes.beat import until_beat
from backends.processes.running_time import RunningTimeout, sleep_and_tell
from contracts.errors import ConnectTimeout, UpstreamUnreachable

_log = logging.getLogger(__name__)

# Below the 5 s after which uvicorn (and so vLLM) closes an idle connection and loses a request that is being sent.
_IDLE_SECONDS: Final = 4.0
_SWEEP_SECONDS: Final = 0.05  # minimum time between two checks of deadlines
_LOOKS_AT_IDLE: Final = 16  # checks of each idle connection before it is closed
_MAX_IDLE: Final = 256


class Request:
    """A request's bytes, and the receiver of its reply."""

    __slots__ = ("head", "body", "receiver")

    def __init__(
        self,
        head: bytes,
        body: bytes,
        receiver: Receiver,
    ) -> None:
        self.head = head
        self.body = body
        self.receiver = receiver


class Exchange:
    """One request in progress. Await `finished()`; leaving it early aborts the request."""

    def __init__(self, pool: "HttpPool", request: Request, connection: Connection, done: asyncio.Future[None]) -> None:
        self._pool = pool
        self._request = request
        self._connection = connection
        self._done = done
        self._is_over = False

    async def finished(self) -> None:
        """Wait for the end of the reply. Raises UpstreamError. Cancelling the wait aborts the connection.

        If the target had already closed the reused connection, the request is sent once more on a new one.
        """
        try:
            try:
                await self._done
                return
            except StaleConnection:
                self._connection.release()
            await self._send_again(self._pool)  # outside the handler, see decision 0032
        finally:
            self._is_over = True
            self._connection.release()

    async def _send_again(self, pool: "HttpPool") -> None:
        _log.info("idle connection was closed, sending again", extra={"target": pool.origin.authority})
        self._connection, self._done = await pool.begin(self._request, None)
        await self._done

    def pause(self) -> None:
        """Pause reading, so that a slow client slows the target down instead of filling memory."""
        if not self._is_over:  # afterwards another exchange may use the connection
            self._connection.pause()

    def resume(self) -> None:
        """Resume reading."""
        if not self._is_over:
            self._connection.resume()


class HttpPool:
    """Connections to one origin, for use on one event loop."""

    def __init__(
        self,
        origin: Origin,
        timeouts: Timeouts,
        tls: ssl.SSLContext | None = None,
        server_name: str = "",
        *,
        idle_seconds: float = _IDLE_SECONDS,
        socket_path: str = "",
    ) -> None:
        """`server_name` is the name that the server's certificate must have, if it is not the origin's host.

        `socket_path` is the Unix socket to connect to, if the server listens on one.
        """
        self.origin = origin
        self.timeouts = timeouts
        self._tls = (tls or client_tls(TlsFiles())) if origin.scheme == "https" else None
        self._server_name = (server_name or origin.host) if self._tls is not None else None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._time: Callable[[], float] = time.monotonic  # the loop's clock
        self._idle: deque[Connection] = deque()
        self._busy: set[Connection] = set()
        self._sweeper: asyncio.Task[None] | None = None
        self._connecting = 0
        self._idle_seconds = idle_seconds
        self._is_closed = False
        self._socket_path = socket_path
        self._place = socket_path or origin.authority  # as errors name it

    def clock(self) -> float:
        """Return the event loop's time in seconds."""
        if self._loop is None:
            self._join(asyncio.get_running_loop())
        return self._time()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop of the first caller, the only one that may use the pool."""
        return self._loop or self._join(asyncio.get_running_loop())

    def _join(self, loop: asyncio.AbstractEventLoop) -> asyncio.AbstractEventLoop:
        self._loop = loop
        # uvloop's clock is the monotonic clock behind a slow wrapper.
        self._time = time.monotonic if type(loop).__module__ == "uvloop" else loop.time
        return loop

    async def send(self, head: bytes, body: bytes, receiver: Receiver) -> Exchange:
        """Send a request and return its exchange. Raises UpstreamUnreachable or ConnectTimeout if no connection can be
        made.

        `head` is the complete request head including the blank line.
        """
        request = Request(head, body, receiver)
        return Exchange(self, request, *await self.begin(request, self._take_idle()))

    def send_at_once(self, head: bytes, body: bytes, listener: ReplyEndListener) -> Connection | None:
        """Send a request on an idle connection and return the connection; `None` if none is idle.

        `listener` is notified of the reply's end. The caller must set the connection's `receiver` before the next turn
        of the event loop, and call the connection's `release` at the end, which aborts an unfinished reply.
        """
        connection = self._take_idle()
        if connection is not None:
            self._busy.add(connection)
            connection.send(head, body, None, listener, is_reused=True)
        return connection

    async def begin(self, request: Request, idle: Connection | None) -> tuple[Connection, asyncio.Future[None]]:
        """Send a request on the connection `idle`, or on a new one if it is `None`."""
        connection = idle
        if connection is None:
            self._connecting += 1
            try:
                connection = await self._connect()
            finally:
                self._connecting -= 1
        return connection, self._begin_on(connection, request, is_reused=idle is not None)

    def _begin_on(self, connection: Connection, request: Request, *, is_reused: bool) -> asyncio.Future[None]:
        self._busy.add(connection)
        done: asyncio.Future[None] = self.loop.create_future()
        connection.send(request.head, request.body, request.receiver, _Waiting(done), is_reused=is_reused)
        return done

    def keep(self, connection: Connection) -> None:
        """Put a connection whose exchange ended well back among the idle ones."""
        self._busy.discard(connection)
        if self._is_closed or len(self._idle) >= _MAX_IDLE:
            connection.abort()
            return
        connection.idle_since = self.clock()
        self._idle.append(connection)

    def forget(self, connection: Connection) -> None:
        """Remove a connection that has closed."""
        self._busy.discard(connection)
        with contextlib.suppress(ValueError):
            self._idle.remove(connection)

    def drop_idle(self) -> None:
        """Close all idle connections, because one of them was dead."""
        for connection in tuple(self._idle):
            connection.abort()
        self._idle.clear()

    async def close(self) -> None:
        """Close idle connections now, and wait for exchanges in progress, which timeouts bound."""
        self._is_closed = True
        for connection in tuple(self._idle):
            connection.abort()
        while self._busy or self._connecting:
            await asyncio.sleep(_SWEEP_SECONDS)
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)

    def _take_idle(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()  # the most recently used is the least likely to be closing
            if not connection.is_closing:
                return connection
        return None

    async def _connect(self) -> Connection:
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep(), name=f"sweep {self.origin.authority}")
        loop = self.loop
        try:
            async with RunningTimeout(self.timeouts.connect):
                made = await self._connected(loop)
        except TimeoutError as error:
            raise ConnectTimeout(
                f"{self._place} did not accept a connection within {self.timeouts.connect:g} s"
            ) from error
        except ssl.SSLError as error:
            raise tls_refusal(self.origin.authority, error) from error
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise UpstreamUnreachable(f"{self._place} cannot be reached: {reason}") from error
        return made

    async def _connected(self, loop: asyncio.AbstractEventLoop) -> Connection:
        def make() -> asyncio.Protocol:
            return cast(asyncio.Protocol, Connection(self, self._time))

        if self._socket_path:
            _, made = await loop.create_unix_connection(make, self._socket_path)
        else:
            _, made = await loop.create_connection(
                make, self.origin.host, self.origin.port, ssl=self._tls, server_hostname=self._server_name
            )
        return cast(Connection, made)

    async def _sweep(self) -> None:
        # One coarse timer for all connections: a timer per request would cost more than the parse.
        now = next_due = held_up = 0.0
        while True:
            until_due = max(next_due - now, _SWEEP_SECONDS)
            was_held_up = held_up > 0
            held_up = await sleep_and_tell(
                min(until_due, until_beat(max(self._idle_seconds / _LOOKS_AT_IDLE, _SWEEP_SECONDS)))
            )
            now = self.clock()
            if held_up:
                for connection in self._busy:
                    connection.postpone(held_up)
            if held_up and not was_held_up:
                next_due = now  # at the next pass, when what has arrived has been read
            elif now >= next_due:
                next_due = self._expire(now)
            while self._idle and now - self._idle[0].idle_since > self._idle_seconds:
                self._idle.popleft().abort()

    def _expire(self, now: float) -> float:
        """End exchanges whose deadline has passed; return the time of the next possible deadline."""
        timeouts = self.timeouts
        next_due = now + min(timeouts.first_byte, timeouts.between, timeouts.total)  # for requests sent later
        for connection in tuple(self._busy):
            try:
                connection.expire(now)
            except Exception:  # an error in one sender must not keep the other exchanges from ending
                _log.exception("finishing a request failed", extra={"target": self.origin.authority})
            next_due = min(next_due, connection.deadline, connection.expires)
        return next_due


class _Waiting(ReplyEndListener):
    """Resolves the future of a task that awaits a reply's end."""

    __slots__ = ("_done",)

    def __init__(self, done: asyncio.Future[None]) -> None:
        self._done = done

    def reply_ended(self, error: Exception | None) -> None:
        if self._done.done():  # the task may have been cancelled
            return
        if error is None:
            self._done.set_result(None)
        else:
            self._done.set_exception(error)
