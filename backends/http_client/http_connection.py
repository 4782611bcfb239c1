"""One HTTP/1.1 connection to a server: a request at a time, whose reply goes to a receiver as it arrives."""

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

# News of a closed connection comes within a round trip; a server that dies of a request takes longer (decision 0007).
_STALE_SECONDS: Final = 1.0
_MAX_REPLY_HEAD_BYTES: Final = 64 * 1024
_SMALL_BYTES: Final = 4096  # are copied to stand behind their head: sending two pieces takes more
_PORTION_BYTES: Final = 32 * 1024  # that are taken in one turn of the event loop; from TLS a little less comes at once
_MAX_REPLY_BYTES: Final = 1 << 30  # in big pieces: far more than any answer has
_MAX_IDLE_BYTES: Final = 16 << 20  # in big pieces, without getting the reply on
_MAX_SIZE_DIGITS: Final = 8  # of a chunk that is looked for without the parser


class StaleConnection(UpstreamBroken):
    """The target had closed an idle connection before the request reached it: it may be sent again."""


@mypyc_attr(allow_interpreted_subclasses=True)  # tests ask, too
class Asker(ABC):
    """Has sent a request. It is a class, whose methods machine code finds sooner than a protocol's (decision 0071)."""

    __slots__ = ()

    @abstractmethod
    def reply_ended(self, error: Exception | None) -> None:
        """Note, once, that the reply has ended: well, or with what went wrong.

        An UpstreamError is the server's fault. Anything else was raised where the reply was taken, and is ours.
        """


@mypyc_attr(allow_interpreted_subclasses=True)  # tests use their own subclasses
class ChunkTaker:
    """Takes a chunked body chunk by chunk, each complete with its framing.

    A class where a callable would do: what calls it for every chunk of every stream calls it by its place.
    """

    __slots__ = ()

    def take(self, framed: bytes) -> bool:
        """Take a chunk; return whether it was. False: it is another than is known here, and comes as any does."""
        return False


class Receiver(Protocol):
    """Accepts a reply as it arrives. All calls happen on the event loop; none may block."""

    def on_head(self, status: int, headers: dict[bytes, bytes]) -> None: ...
    def on_body(self, data: bytes) -> bool | None:
        """Receive a piece. False: the reply has not got on by it, it was only kept alive."""


class ChunkReceiver(Receiver, Protocol):
    """A receiver that knows some chunks of a body by their bytes, the framing of the chunked coding among them."""

    def chunk_taker(self) -> ChunkTaker | None:
        """Return what takes the chunks that are known. Asked after each that came as any does; `None`: none is known.

        What is taken gets the reply on.
        """


class Home(Protocol):
    """What a connection needs of the pool that it belongs to."""

    origin: Origin
    timeouts: Timeouts

    def clock(self) -> float: ...
    def keep(self, connection: "Connection") -> None: ...
    def forget(self, connection: "Connection") -> None: ...


class Connection:
    """One connection: idle, or carrying exactly one exchange. An `asyncio.Protocol` in all but its base class."""

    def __init__(self, pool: Home, time: Callable[[], float] | None = None) -> None:
        """`time` is what `pool.clock` gives, for less."""
        # Touched by every chunk, and so beside each other: what takes whole chunks, while the parser stands between
        # two and can do without those that are known; and when the next is due.
        self._chunks: ChunkTaker | None = None
        self._time = time or pool.clock
        timeouts = pool.timeouts
        self._first_byte, self._between, self._total = timeouts.first_byte, timeouts.between, timeouts.total
        self.deadline = 0.0
        self.pool = pool
        self.transport: asyncio.Transport | None = None
        self.receiver: Receiver | None = None
        self._asker: Asker | None = None
        self._has_ended_well = False
        self.idle_since = 0.0
        self.expires = 0.0
        self._stale_until = 0.0
        # One for all replies of a connection: it begins again after each that keeps the connection.
        self._parser = httptools.HttpResponseParser(self)
        self._last_head = LastHead()
        self._like_last: dict[bytes, bytes] | None = None  # the headers of the last reply, of status 200
        self._is_complete = False
        self._is_awaited = False  # a reply, from the request's sending to its end
        self._headers: dict[bytes, bytes] = {}
        self._head_bytes = 0
        self._has_head = False
        self._has_body = False
        self._keep = False
        self._is_paused = False
        self._unread = b""  # the rest of what came in a big piece
        self._has_breath = False  # reading rests until the next turn of the event loop
        self._taken_bytes = 0  # of this reply, in big pieces
        self._idle_bytes = 0  # of these, since the reply last got on
        self.is_closing = False  # as far as is known: a connection that breaks tells of it in the next turn

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
        """Accept some of what has come in big pieces; the rest, and more, in the next turns of the event loop.

        A server that sends without a break would else be read, and its pieces be taken, before others have theirs.
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
        if not self._is_awaited:  # bytes nobody asked for: the connection cannot be trusted any more
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
            if self._is_complete:  # what follows a reply that is whole takes nothing from it
                self._keep = False
                self._end(None)
                return
            # What a receiver raises in a callback, the parser carries as its error's context.
            self._fail(_fault_of(error.__context__))
            return
        self._look_at_parsed(data, is_first=is_first)

    def _after_chunks(self, chunks: ChunkTaker, data: bytes) -> bytes:
        """Let a receiver take whole chunks itself; return what is left for the parser, empty if nothing is."""
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
        """Look how far a reply has come, now that the parser has seen what came."""
        if self._chunks is not None and not data.endswith(b"\r\n"):
            self._chunks = None  # part of the next chunk's size has come
        if not self._has_head and self._head_bytes > _MAX_REPLY_HEAD_BYTES:
            self._fail(_too_long_a_head())
        elif self._is_complete:
            self._like_last = None
            if is_first and self._keep and self._parser.get_status_code() == 200 and self._last_head.learn(data):
                self._like_last = self._headers
            self._end(None)

    def _take_like_last(self, headers: dict[bytes, bytes], body: bytes) -> None:
        """Accept a whole reply whose head, its length aside, is the last one's."""
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
        elif isinstance(exc, ssl.SSLError):  # under TLS 1.3 a refused certificate of ours shows only now
            self._end(tls_refusal(self.pool.origin.authority, exc))
        else:
            kind = StaleConnection if self._was_stale(exc) else UpstreamBroken
            self._end(kind("the target closed the connection before it replied"))

    def eof_received(self) -> None:
        """Let the transport close: what was not yet sent is for nobody."""
        self.is_closing = True

    def pause_writing(self) -> None:
        """Go on: a request is written in one piece."""

    def resume_writing(self) -> None:
        """Go on, as before."""

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
        # Later the parser has forgotten: asked outside this callback it always says no.
        self._keep = self._parser.should_keep_alive()
        self._is_complete = True

    # the pool's side

    def send(self, head: bytes, body: bytes, receiver: Receiver | None, asker: Asker, *, is_reused: bool) -> None:
        """Start an exchange, whose end `asker` is told of.

        Who gives no receiver yet sets it within this turn of the event loop, before which no reply comes.
        """
        assert self.transport is not None
        now = self._time()
        self.receiver, self._asker = receiver, asker
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
        """Release the connection to the pool, or close it if it cannot be used again."""
        self.receiver = self._asker = self._chunks = None
        self._is_awaited = False
        if self._is_paused:
            self.resume()
        if self._has_ended_well and self._keep and not self.is_closing and not self._unread:
            self.pool.keep(self)
        else:
            self.pool.forget(self)
            self.abort()

    def give_up(self) -> None:
        """Close the connection, also where a reply on it has ended well that nobody has looked at."""
        self._has_ended_well = False
        self.release()

    def pause(self) -> None:
        """Pause reading. The target's deadline between chunks is suspended meanwhile."""
        if self.transport is not None and not self.transport.is_closing():
            self._is_paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if self._is_paused and self.transport is not None and not self.transport.is_closing():
            self._is_paused = False
            self.deadline = self._time() + self._between
            if not self._has_breath:
                self._breathe()

    def postpone(self, seconds: float) -> None:
        """Move all deadlines: this process did not run meanwhile, and what has arrived is still unread."""
        self.deadline += seconds
        self.expires += seconds
        if self._stale_until:
            self._stale_until += seconds

    def expire(self, now: float) -> None:
        """End the exchange where one of its deadlines has passed."""
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
        """Report how the reply ended, the first time. What comes after it was not asked for."""
        self._is_awaited = False
        asker, self._asker = self._asker, None
        if asker is not None:
            self._has_ended_well = error is None
            asker.reply_ended(error)

    def _was_stale(self, exc: Exception | None) -> bool:
        is_closed = exc is None or isinstance(exc, OSError)  # by the target, or what is between
        return is_closed and not self._head_bytes and self._time() < self._stale_until

    def _ends_with_connection(self) -> bool:
        return b"content-length" not in self._headers and b"transfer-encoding" not in self._headers


def _rest_of(data: bytes, chunks: ChunkTaker) -> bytes:
    """Let chunks be taken that came in one piece, as far as they are known; return what is left for the parser.

    The piece as a whole is not one that is known.
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
    """Return what a reply ends with: what its receiver has raised, or, if it raised nothing, that this is not HTTP.

    A fault of the receiver's is not the server's: it stays what it is, for the one that waits for the reply to log.
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
