"""One HTTP/1.1 connection to a server. Carries one request at a time and passes the reply to a receiver as
it arrives.
"""

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Final, Protocol, cast

import httptools

from backends.http_client.http_head import LastHead
from backends.http_client.http_origin import Origin
from backends.http_client.http_timeouts import Timeouts
from backends.network.tls import tls_refusal
from backends.processes.native import mypyc_attr
from contracts.errors import UpstreamBroken, UpstreamTimeout

# A closed connection is noticed within a round trip; a server that crashes on a request takes longer (decision 0007).
_STALE_SECONDS: Final = 1.0
_MAX_REPLY_HEAD_BYTES: Final = 64 * 1024
_SMALL_BYTES: Final = 4096  # bodies up to this size are copied behind their head: two writes cost more
_PORTION_BYTES: Final = 32 * 1024  # processed per turn of the event loop; TLS delivers a little less at once
_MAX_REPLY_BYTES: Final = 1 << 30  # of a reply in big pieces: far more than any answer has
_MAX_IDLE_BYTES: Final = 16 << 20  # in big pieces without progress of the reply
_MAX_SIZE_DIGITS: Final = 8  # of a chunk size that is read without the parser


class StaleConnection(UpstreamBroken):
    """The target had closed an idle connection before the request reached it, so the request may be sent again."""


@mypyc_attr(allow_interpreted_subclasses=True)  # tests have subclasses
class ReplyEndListener(ABC):
    """Is notified when the reply to a request ends. An abstract class, because compiled calls of a protocol are slower
    (decision 0071).
    """

    __slots__ = ()

    @abstractmethod
    def reply_ended(self, error: Exception | None) -> None:
        """Handle the end of the reply, once: `None` if it is complete, else the error.

        An UpstreamError is the server's fault. Any other exception was raised by the receiver and is a bug of the
        gateway.
        """


@mypyc_attr(allow_interpreted_subclasses=True)  # tests use their own subclasses
class ChunkTaker:
    """Processes a chunked body chunk by chunk, each complete with its framing.

    A class instead of a callable, because compiled code calls a method faster, and it is called for every chunk.
    """

    __slots__ = ()

    def take(self, framed: bytes) -> bool:
        """Process a chunk and return true, or return false if its form is unknown: then the parser processes it."""
        return False


class Receiver(Protocol):
    """Receives a reply as it arrives. All calls happen on the event loop; none may block."""

    def on_head(self, status: int, headers: dict[bytes, bytes]) -> None: ...
    def on_body(self, data: bytes) -> bool | None:
        """Process a piece of the body. Return false if it is no progress of the reply but a keep-alive."""


class ChunkReceiver(Receiver, Protocol):
    """A receiver that recognizes some chunks by their bytes, including the framing, without the parser."""

    def chunk_taker(self) -> ChunkTaker | None:
        """Return the object that processes recognized chunks; `None` if there is none. Called after each chunk that was
        parsed.

        A chunk that it takes is progress of the reply.
        """


class PoolCallbacks(Protocol):
    """The attributes and methods of the pool that a connection uses."""

    origin: Origin
    timeouts: Timeouts

    def clock(self) -> float: ...
    def keep(self, connection: "Connection") -> None: ...
    def forget(self, connection: "Connection") -> None: ...


class Connection:
    """One connection: idle, or carrying exactly one exchange. Implements `asyncio.Protocol` without subclassing it."""

    def __init__(self, pool: PoolCallbacks, time: Callable[[], float] | None = None) -> None:
        """`time` returns the same as `pool.clock`, but is faster."""
        # Accessed for every chunk, so kept next to each other in memory. `_chunks` is set only while the parser is
        # between two chunks, so that recognized ones need not pass it.
        self._chunks: ChunkTaker | None = None
        self._time = time or pool.clock
        timeouts = pool.timeouts
        self._first_byte, self._between, self._total = timeouts.first_byte, timeouts.between, timeouts.total
        self.deadline = 0.0
        self.pool = pool
        self.transport: asyncio.Transport | None = None
        self.receiver: Receiver | None = None
        self._listener: ReplyEndListener | None = None
        self._has_ended_well = False
        self.idle_since = 0.0
        self.expires = 0.0
        self._stale_until = 0.0
        # One parser for all replies of a connection: it restarts after each reply that keeps the connection alive.
        self._parser = httptools.HttpResponseParser(self)
        self._last_head = LastHead()
        self._like_last: dict[bytes, bytes] | None = None  # the headers of the last reply, of status 200
        self._is_complete = False
        self._is_awaited = False  # true from the sending of a request to the end of its reply
        self._headers: dict[bytes, bytes] = {}
        self._head_bytes = 0
        self._has_head = False
        self._has_body = False
        self._keep = False
        self._is_paused = False
        self._unread = b""  # the unprocessed rest of a big piece
        self._has_breath = False  # true while reading is paused until the next turn of the event loop
        self._taken_bytes = 0  # bytes of this reply that came in big pieces
        self._idle_bytes = 0  # of these, the bytes since the last progress
        self.is_closing = False  # a broken connection is noticed only in the event loop's next turn

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its base class

    def data_received(self, data: bytes) -> None:
        if len(data) <= _PORTION_BYTES and not self._unread:
            self._receive(data)
            return
        self._unread += data
        if not self._has_breath:
            self._take_portion()

    def _take_portion(self) -> None:
        """Process a portion of a big piece; the rest follows in later turns of the event loop.

        Otherwise a server that sends without a pause would delay all other connections.
        """
        transport = self.transport
        portion, self._unread = self._unread[:_PORTION_BYTES], self._unread[_PORTION_BYTES:]
        self._taken_bytes += len(portion)
        self._idle_bytes += len(portion)
        if self._is_awaited and (self._taken_bytes > _MAX_REPLY_BYTES or self._idle_bytes > _MAX_IDLE_BYTES):
            self._fail(_flood(_MAX_REPLY_BYTES if self._taken_bytes > _MAX_REPLY_BYTES else _MAX_IDLE_BYTES))
            return
        if transport is not None and not transport.is_closing():
            self._has_breath = True
            transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._breathe)
        self._receive(portion)

    def _breathe(self) -> None:
        self._has_breath = False
        if self._is_paused or self.transport is None or self.transport.is_closing():
            return
        if self._unread:
            self._take_portion()
        else:
            self.transport.resume_reading()

    def _receive(self, data: bytes) -> None:
        if self._chunks is not None:
            data = self._after_chunks(self._chunks, data)
            if not data:
                return
        if not self._is_awaited:  # unsolicited bytes: the connection cannot be trusted any more
            self.abort()
            return
        is_first = not self._head_bytes
        if is_first and self._like_last is not None:
            body = self._last_head.body_of(data)
            if body is not None:
                self._take_like_last(self._like_last, body)
                return
        if not self._has_head:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if self._is_complete:  # invalid bytes after a complete reply do not affect it
                self._keep = False
                self._end(None)
                return
            # An exception of the receiver in a callback is the context of the parser's error.
            self._fail(_fault_of(error.__context__))
            return
        self._look_at_parsed(data, is_first=is_first)

    def _after_chunks(self, chunks: ChunkTaker, data: bytes) -> bytes:
        """Pass whole chunks to `chunks`; return the rest for the parser."""
        try:
            rest = b"" if chunks.take(data) else _rest_of(data, chunks)
        except Exception as error:  # as in a callback of the parser's
            self._fail(error)
            return b""
        if len(rest) != len(data):
            self._idle_bytes = 0
            self.deadline = self._time() + self._between
        return rest

    def _look_at_parsed(self, data: bytes, *, is_first: bool) -> None:
        """Check the reply's state after the parser has processed `data`."""
        if self._chunks is not None and not data.endswith(b"\r\n"):
            self._chunks = None  # part of the next chunk's size has arrived
        if not self._has_head and self._head_bytes > _MAX_REPLY_HEAD_BYTES:
            self._fail(_too_long_a_head())
        elif self._is_complete:
            self._like_last = None
            if is_first and self._keep and self._parser.get_status_code() == 200 and self._last_head.learn(data):
                self._like_last = self._headers
            self._end(None)

    def _take_like_last(self, headers: dict[bytes, bytes], body: bytes) -> None:
        """Process a whole reply whose head equals the last one's except for the length."""
        assert self.receiver is not None
        self._headers, self._head_bytes = headers, 1
        self._has_head = self._has_body = self._keep = True
        try:
            self.receiver.on_head(200, headers)
            self.receiver.on_body(body)
        except Exception as error:  # as in a callback of the parser's
            self._fail(error)
            return
        self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        while self._unread and self._is_awaited:
            portion, self._unread = self._unread[:_PORTION_BYTES], self._unread[_PORTION_BYTES:]
            self._receive(portion)
        self._unread = b""
        self.is_closing = True
        self.pool.forget(self)
        was_awaited, self._is_awaited = self._is_awaited, False
        if was_awaited and self._has_head and exc is None and self._ends_with_connection():
            self._end(None)
        elif self._has_head:
            self._end(UpstreamBroken("the target closed the connection in the middle of its reply"))
        elif isinstance(exc, ssl.SSLError):  # in TLS 1.3 the refusal of a client certificate arrives only now
            self._end(tls_refusal(self.pool.origin.authority, exc))
        else:
            kind = StaleConnection if self._was_stale(exc) else UpstreamBroken
            self._end(kind("the target closed the connection before it replied"))

    def eof_received(self) -> None:
        """Let the transport close: unsent bytes have no reader any more."""
        self.is_closing = True

    def pause_writing(self) -> None:
        """Ignore: a request is written in one piece."""

    def resume_writing(self) -> None:
        """Ignore: writing is never paused."""

    # httptools' side

    def on_message_begin(self) -> None:
        if self._has_head:
            raise UpstreamBroken("the target sent more than the one reply it was asked for")
        self._headers = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        assert self.receiver is not None
        status = self._parser.get_status_code()
        if status < 200:  # 100 Continue and the like are not the reply
            return
        if self._head_bytes > _MAX_REPLY_HEAD_BYTES and _size_of(self._headers) > _MAX_REPLY_HEAD_BYTES:
            raise _too_long_a_head()
        self._has_head = True
        self.receiver.on_head(status, self._headers)

    def on_body(self, data: bytes) -> None:
        assert self.receiver is not None
        if self.receiver.on_body(data) is not False:
            self._has_body = True
            self._idle_bytes = 0
            self.deadline = self._time() + self._between

    def on_chunk_header(self) -> None:
        self._chunks = None

    def on_chunk_complete(self) -> None:
        ask: Callable[[], ChunkTaker | None] | None = getattr(self.receiver, "chunk_taker", None)
        if ask is not None:  # it is a ChunkReceiver
            self._chunks = ask()

    def on_message_complete(self) -> None:
        self._chunks = None
        if not self._is_awaited or not self._has_head:
            return
        # Read here because outside this callback the parser always returns false.
        self._keep = self._parser.should_keep_alive()
        self._is_complete = True

    # the pool's side

    def send(
        self, head: bytes, body: bytes, receiver: Receiver | None, listener: ReplyEndListener, *, is_reused: bool
    ) -> None:
        """Send a request, and notify `listener` when its reply ends.

        If `receiver` is `None`, the caller must set it before the event loop's next turn, in which the reply may
        arrive.
        """
        assert self.transport is not None
        now = self._time()
        self.receiver, self._listener = receiver, listener
        self._is_awaited = True
        self._head_bytes = self._taken_bytes = self._idle_bytes = 0
        self._has_head = self._has_body = self._keep = self._is_complete = self._has_ended_well = False
        self.deadline = now + self._first_byte
        self.expires = now + self._total
        self._stale_until = now + _STALE_SECONDS if is_reused else 0.0
        if len(body) <= _SMALL_BYTES:
            self.transport.write(head + body)
        else:
            self.transport.writelines((head, body))

    def release(self) -> None:
        """Return the connection to the pool, or close it if it cannot be reused."""
        self.receiver = self._listener = self._chunks = None
        self._is_awaited = False
        if self._is_paused:
            self.resume()
        if self._has_ended_well and self._keep and not self.is_closing and not self._unread:
            self.pool.keep(self)
        else:
            self.pool.forget(self)
            self.abort()

    def give_up(self) -> None:
        """Close the connection, even if its reply ended well."""
        self._has_ended_well = False
        self.release()

    def pause(self) -> None:
        """Pause reading. The deadline for the next piece is suspended meanwhile."""
        if self.transport is not None and not self.transport.is_closing():
            self._is_paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        """Resume reading."""
        if self._is_paused and self.transport is not None and not self.transport.is_closing():
            self._is_paused = False
            self.deadline = self._time() + self._between
            if not self._has_breath:
                self._breathe()

    def postpone(self, seconds: float) -> None:
        """Move all deadlines by the time in which this process did not run: what has arrived since is still unread."""
        self.deadline += seconds
        self.expires += seconds
        if self._stale_until:
            self._stale_until += seconds

    def expire(self, now: float) -> None:
        """End the exchange if one of its deadlines has passed."""
        if now >= self.expires:
            self._fail(UpstreamTimeout(f"the target took more than {self._total:g} s in total"))
        elif now >= self.deadline and not self._is_paused:
            waited = self._between if self._has_body else self._first_byte
            where = "between two pieces of its reply" if self._has_body else "before it replied"
            self._fail(UpstreamTimeout(f"the target was silent for {waited:g} s {where}"))

    def abort(self) -> None:
        """Close at once, without waiting for unsent bytes."""
        self.is_closing = True
        if self.transport is not None:
            self.transport.abort()

    def _fail(self, error: Exception) -> None:
        self._end(error)
        self.abort()

    def _end(self, error: Exception | None) -> None:
        """Notify the sender of the reply's end, once. Bytes that follow are unsolicited."""
        self._is_awaited = False
        listener, self._listener = self._listener, None
        if listener is not None:
            self._has_ended_well = error is None
            listener.reply_ended(error)

    def _was_stale(self, exc: Exception | None) -> bool:
        is_closed = exc is None or isinstance(exc, OSError)  # by the target, or what is between
        return is_closed and not self._head_bytes and self._time() < self._stale_until

    def _ends_with_connection(self) -> bool:
        return b"content-length" not in self._headers and b"transfer-encoding" not in self._headers


def _rest_of(data: bytes, chunks: ChunkTaker) -> bytes:
    """Pass the recognized chunks of a piece to `chunks`; return the rest for the parser.

    Called only if the piece as a whole is no recognized chunk.
    """
    size = len(data)
    while True:
        line_end = data.find(b"\r\n", 1, _MAX_SIZE_DIGITS + 1)
        digits = data[: max(line_end, 0)]
        if not digits.isalnum():
            return data
        try:
            length = int(digits, 16) + line_end + 4
        except ValueError:
            return data
        if length > len(data) or length == size or not chunks.take(data[:length]):
            return data
        data = data[length:]


def _fault_of(raised: BaseException | None) -> Exception:
    """Return the exception that a receiver raised, or UpstreamBroken if it raised none: then the reply is not valid
    HTTP.

    A receiver's exception is not the server's fault and is passed on unchanged, to be logged.
    """
    if isinstance(raised, Exception):
        return raised
    return UpstreamBroken("the target's reply is not valid HTTP/1.1")


def _size_of(headers: Mapping[bytes, bytes]) -> int:
    return sum(len(name) + len(value) for name, value in headers.items())


def _flood(limit: int) -> UpstreamBroken:
    what = "in one reply" if limit == _MAX_REPLY_BYTES else "that do not get its reply on"
    return UpstreamBroken(f"the target sent more than {limit} bytes {what}")


def _too_long_a_head() -> UpstreamBroken:
    return UpstreamBroken(f"the target's reply headers exceed {_MAX_REPLY_HEAD_BYTES} bytes")
