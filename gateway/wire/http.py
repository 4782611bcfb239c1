"""The data plane's HTTP/1.1: an asyncio Protocol on httptools that turns bytes into exchanges, and its limits.

Ambiguous framing is refused by the parser (both Content-Length and Transfer-Encoding, repeated lengths, folded
headers, bad chunk sizes); what it lets through and we do not read (other transfer codings) is refused here.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, cast

import httptools

from backends.http_client.http_head import LastHead
from backends.llm.encoding_room import LARGE_BODY_BYTES
from backends.network.connection_table import ConnectionTable
from contracts.errors import (
    AmbiguousFraming,
    InvalidRequest,
    RequestTimeout,
    TollkeeperError,
    Unavailable,
    UnsupportedMediaType,
)
from gateway.apis.rendering import OPENAI_ERRORS, ErrorShape
from gateway.wire.error_answer import send_error
from gateway.wire.exchange import (
    REQUEST_ID,
    Exchange,
    Handler,
    Headers,
    Line,
    RequestHead,
    Serving,
    header_lines,
    new_request_id,
)
from gateway.wire.http_limits import ONLY_ONCE, HttpLimits

_log = logging.getLogger(__name__)

_LISTS: Final = frozenset((b"x-forwarded-for", b"anthropic-beta", b"openai-beta", b"baggage", b"tracestate"))
_MAX_PIPELINED: Final = 16
_MOST_PIECES: Final = 1024
_BLOCK_BYTES: Final = 1 << 20
_BIG_BYTES: Final = 32 * 1024  # in one piece: who sends such pieces has more of them
LINGER_SECONDS: Final = 1.0
# What of a head is not counted header by header: method, version, spaces and line ends.
_HEAD_SLACK_BYTES: Final = 64
# What load balancers and supervisors ask: answered at once, to anyone.
PROBES: Final = frozenset(("/health", "/ready"))


ShapeAt = Callable[[str], ErrorShape]  # how errors look at a path


_NO_PARSER: Final = httptools.HttpRequestParser(object())  # of connections that are lost


class HttpConnection(Line):
    """One client connection. Its requests are answered one after another, in order.

    It implements `asyncio.Protocol` without the base class, which would prevent its compilation.
    """

    def __init__(
        self,
        limits: HttpLimits,
        handle: Handler,
        connections: set["HttpConnection"],
        table: ConnectionTable,
        shape_at: ShapeAt = lambda path: OPENAI_ERRORS,
    ) -> None:
        self._limits = limits
        self._hosts = limits.hosts
        self._max_header_bytes, self._max_headers = limits.header_bytes, limits.header_count
        self._max_body_bytes = limits.body_bytes
        self._held = 0  # bytes of large bodies, of those counted in `limits.buffered`
        self._shape_at = shape_at
        self._handle = handle
        self._connections = connections
        self._table = table
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._last_head = LastHead()
        self._like_last: RequestHead | None = None
        self._fed = b""  # what began with a request's head, while the parser reads it
        self._address = ""
        # the request being read
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._header_count = 0
        self._header_size = 0
        self._unparsed_bytes = 0  # received since a head, a piece of body or a message was last complete
        self._in_head = False
        self._in_body = False
        self._pieces: list[bytes] = []
        self._blocks: list[bytes] = []  # of many pieces each, before the others
        self._in_blocks = 0  # bytes
        self._body_size = 0
        self._refusal: TollkeeperError | None = None
        # the requests being answered
        self._waiting: deque[Exchange] = deque()
        self._current: Exchange | None = None
        self._task: Serving | None = None
        self._is_closing = False
        # flow
        self._idle_since = self._loop.time()
        self._deadline = self._idle_since + limits.idle_seconds
        self._is_read_paused = False
        self._has_breath = False  # reading rests until the next turn of the event loop
        self._is_write_paused = False
        self._pause: Callable[[], None] | None = None
        self._resume: Callable[[], None] | None = None
        self._drain_waiter: asyncio.Future[None] | None = None

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its base class
        peer = transport.get_extra_info("peername")
        self._address = str(peer[0]) if peer else ""
        if self._is_admitted():
            self._connections.add(self)
        else:
            self._transport.abort()  # an answer would cost what the limit protects

    def _is_admitted(self) -> bool:
        """Return whether there is room for this connection. Without room, this machine's health checks have some."""
        if self._table.admit(self, self._address, self._idle_since):
            return True
        if not self._table.admit_probe(self, self._address, self._idle_since):
            return False
        self._take_probes_only()
        return True

    def _take_probes_only(self) -> None:
        self._handle = partial(_answer_probe, self._handle, self._shape_at)

    def data_received(self, data: bytes) -> None:
        if self._is_closing:
            return
        if len(data) > _BIG_BYTES:
            self._take_breath()
        self._fed = b""
        if not self._is_reading:
            if self._current is None and self._take_like_last(data):
                return
            self._fed = data
            self._expect_within(self._limits.head_seconds)
        self._unparsed_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(InvalidRequest("protocol upgrades are not offered; send plain HTTP/1.1"))
        except httptools.HttpParserError as error:
            self._refuse(self._refusal or AmbiguousFraming(f"the request is not valid HTTP/1.1: {error}"))
        else:
            # Also line ends before a request, chunk extensions and trailers, which no callback counts.
            if self._unparsed_bytes > self._limits.header_bytes + _HEAD_SLACK_BYTES:
                self._refuse(self._limits.headers_too_large())

    def eof_received(self) -> bool:
        return False  # a client that closes its side has left: transports then call connection_lost

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self._table.discard(self)
        self._is_closing = True
        self._waiting.clear()
        self._pieces, self._blocks = [], []
        self._body_size = 0
        if self._held and self._current is None:
            self._hold_body(0)
        if self._current is not None:
            self._current.is_gone = True
        self._wake_drain()
        if self._task is not None:
            self._task.cancel()
        # Both lead back here: a connection would wait for the cycle collector, which looks rarely, with all it holds.
        self._transport, self._parser, self._pause, self._resume = None, _NO_PARSER, None, None

    def pause_writing(self) -> None:
        self._is_write_paused = True
        self._deadline = self._loop.time() + self._limits.write_seconds
        if self._pause is not None:
            self._pause()

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self._wake_drain()
        if self._resume is not None:
            self._resume()
        if self._current is None and not self._is_closing:
            self._expect_within(self._limits.idle_seconds)
            self._go_on()

    # httptools' side

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers = {}
        self._header_count = 0
        self._header_size = 0
        self._pieces = []
        self._blocks = []
        self._body_size = self._in_blocks = 0
        self._in_head = True

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._header_size += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        lower = name.lower()
        self._header_count += 1
        self._header_size += len(name) + len(value) + 4
        if self._header_size > self._max_header_bytes:
            self._stop_parsing(self._limits.headers_too_large())
        if self._header_count > self._max_headers:
            self._stop_parsing(self._limits.too_many_headers())
        if self._in_body:
            return  # a trailer: it must not pass for a header (RFC 9110, section 6.5.1)
        if lower in self._headers:
            if lower in ONLY_ONCE:
                self._stop_parsing(AmbiguousFraming(f"the {ONLY_ONCE[lower]} header appears more than once"))
            if lower in _LISTS:  # proxies and libraries may each add a line: together they are one list (RFC 9110, 5.3)
                value = self._headers[lower] + b", " + value
        self._headers[lower] = value

    def on_headers_complete(self) -> None:
        headers = self._headers
        self._unparsed_bytes = 0
        if self._parser.should_upgrade():
            self._stop_parsing(InvalidRequest("protocol upgrades are not offered; send plain HTTP/1.1"))
        if self._parser.get_http_version() == "1.1" and b"host" not in headers:
            self._stop_parsing(InvalidRequest("the Host header is missing"))
        if self._hosts is not None and b"host" in headers:
            try:
                self._hosts.check(headers[b"host"])
            except TollkeeperError as error:
                self._stop_parsing(error)
        self._check_body_headers(headers)
        self._in_head = False
        self._in_body = True
        self._expect_within(self._limits.body_seconds)
        if b"expect" in headers and self._current is None and not self._waiting:
            if headers[b"expect"].lower() == b"100-continue":
                self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _check_body_headers(self, headers: dict[bytes, bytes]) -> None:
        """Refuse a body whose encoding is not supported, or that is too long."""
        coding = headers.get(b"transfer-encoding")
        if coding is not None and (coding.strip().lower() != b"chunked" or self._parser.get_http_version() != "1.1"):
            self._stop_parsing(AmbiguousFraming("the only transfer coding read here is 'chunked', of HTTP/1.1"))
        encoding = headers.get(b"content-encoding")
        if encoding is not None and encoding.strip().lower() != b"identity":
            self._stop_parsing(UnsupportedMediaType("compressed request bodies are not read; send them plain"))
        length = headers.get(b"content-length")
        if length is not None and int(length) > self._limits.body_bytes:
            self._stop_parsing(self._limits.body_too_large(int(length)))

    def on_body(self, data: bytes) -> None:
        self._unparsed_bytes = 0
        self._body_size += len(data)
        if self._body_size > self._max_body_bytes:
            self._stop_parsing(self._limits.body_too_large(self._body_size))
        elif self._body_size > LARGE_BODY_BYTES:
            self._hold_body(self._body_size)
        pieces = self._pieces
        pieces.append(data)
        # Pieces of a chunk of two bytes each would take many times their length, and those of many large bodies would
        # stay in the process's heap when they are freed: a block of a MiB has pages of its own.
        if len(pieces) >= _MOST_PIECES or self._body_size - self._in_blocks >= _BLOCK_BYTES:
            self._blocks.append(b"".join(pieces))
            self._in_blocks = self._body_size
            pieces.clear()

    def on_message_complete(self) -> None:
        self._in_body = False
        self._unparsed_bytes = 0
        path, _, query = self._url.decode("latin-1").partition("?")
        head = RequestHead(
            method=self._parser.get_method().decode("ascii"),
            path=path,
            query=query,
            version=self._parser.get_http_version(),
            headers=self._headers,
            keep_alive=self._parser.should_keep_alive(),
        )
        pieces, blocks = self._pieces, self._blocks
        if blocks:
            pieces, self._blocks = blocks + pieces, []
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._pieces = []
        self._like_last = head if self._fed and self._last_head.learn(self._fed) else None
        self._take(head, body)

    def _take_like_last(self, data: bytes) -> bool:
        """Accept a complete request that starts like the last one, without parsing it; return whether it was one."""
        head = self._like_last
        body = None if head is None or self._waiting else self._last_head.body_of(data)
        if head is None or body is None or len(body) > self._max_body_bytes:
            return False
        self._take(head.traced(self._last_head.trace) if self._last_head.trace else head, body)
        return True

    def _take(self, head: RequestHead, body: bytes) -> None:
        exchange = Exchange(self, head, body, self._address)
        is_free = self._current is None and not self._is_write_paused
        if is_free and not self._waiting:
            self._answer(exchange)
            return
        self._waiting.append(exchange)
        if is_free:
            self._answer_next()
        elif len(self._waiting) >= _MAX_PIPELINED:
            self._stop_parsing(InvalidRequest(f"more than {_MAX_PIPELINED} requests are pipelined on one connection"))
        elif self._transport is not None and not self._is_read_paused:
            self._is_read_paused = True
            self._transport.pause_reading()  # read on once this one is answered, and the answer taken

    # the exchange's side

    def write(self, data: bytes) -> None:
        """Send bytes to the client."""
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.write(data)

    def writer(self) -> Callable[[bytes], object]:
        """Return a faster equivalent of `write`, for a caller that stops when the client disconnects."""
        return self.write if self._transport is None else self._transport.write

    def finished(self, *, keep_alive: bool) -> None:
        """End the exchange's use of the connection after its answer."""
        self._current = self._task = self._pause = self._resume = None
        if self._held:
            self._hold_body(self._body_size if self._in_body else 0)
        if self._transport is None or self._transport.is_closing():
            return
        if self._is_write_paused:
            self._expect_within(self._limits.write_seconds)
        else:
            self._expect_within(self._limits.head_seconds if self._is_reading else self._limits.idle_seconds)
        if not keep_alive or self._is_closing:
            self._is_closing = True
            self._transport.close()
        elif not self._is_write_paused:
            self._go_on()

    def hold(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        """Register the producer's pause and resume functions, and pause it if the client is already behind."""
        self._pause, self._resume = pause, resume
        if self._is_write_paused:
            pause()

    async def drained(self) -> None:
        """Wait while the client reads more slowly than it is sent data."""
        if self._is_write_paused and self._transport is not None and not self._transport.is_closing():
            self._drain_waiter = self._loop.create_future()
            await self._drain_waiter

    # the server's side

    @property
    def idle_since(self) -> float | None:
        """Return the time since which no request has been in progress; `None` while one is, or while its answer is not
        completely sent. A request that is arriving counts from its first byte.
        """
        return None if self._waiting or self.is_busy else self._idle_since

    def give_way(self) -> None:
        """Close now, because another connection needs the capacity."""
        self.abort()

    @property
    def is_busy(self) -> bool:
        """Return whether an answer is in progress, or not yet wholly sent."""
        if self._current is not None:
            return True
        return self._transport is not None and self._transport.get_write_buffer_size() > 0

    def postpone(self, seconds: float) -> None:
        """Postpone the deadline, because this process did not run meanwhile, and data that the client has sent is still
        unread.
        """
        self._deadline += seconds

    def check_deadline(self, now: float) -> None:
        """Close a connection that is too slow to send, to read, or to send its next request."""
        if now < self._deadline or self._transport is None:
            return
        if self._is_write_paused:
            _log.info("client too slow to read", extra={"address": self._address})
            self._transport.abort()
        elif self._current is not None:
            return
        elif self._is_closing or self._transport.is_closing():
            self._transport.abort()  # it was refused and still sends, or does not take the last of its answer
        elif self._is_reading:
            self._refuse(RequestTimeout("the request did not arrive in time"))
        else:
            self._transport.close()

    def close_when_done(self) -> None:
        """Close now, or after the answer in progress."""
        self._is_closing = True
        if self._current is not None:
            self._current.close_after()
        elif self._transport is not None:
            self._transport.close()

    def announce_close(self) -> None:
        """Close after the answer in progress if its head, which announces this, has not been sent yet."""
        if self._current is not None and not self._current.is_started:
            self._current.close_after()

    def cut(self, error: TollkeeperError) -> None:
        """End the answer in progress with an error, as a body or as the stream's last event, and close after it."""
        exchange = self._current
        if exchange is None or self._task is None:
            return
        exchange.cut_by = error
        exchange.close_after()
        self._task.cancel()

    def abort(self) -> None:
        """Close at once; an answer in progress is cancelled."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def _is_reading(self) -> bool:
        """Return whether part of a request has arrived and the rest has not."""
        return self._in_head or self._in_body or self._unparsed_bytes > 0

    def _expect_within(self, seconds: float) -> None:
        """Set when the client's next step is due. While an answer is in progress only its reading is timed."""
        if self._current is None:
            self._idle_since = self._loop.time()
            self._deadline = self._idle_since + seconds

    def _go_on(self) -> None:
        """Turn to the next request: one that waits, or one that is still to be read."""
        if self._waiting:
            self._loop.call_soon(self._answer_next)
        elif self._is_read_paused and self._transport is not None:
            self._is_read_paused = False
            if not self._has_breath:
                self._transport.resume_reading()

    def _answer_next(self) -> None:
        if not self._waiting or self._current is not None or self._is_write_paused:
            return
        self._answer(self._waiting.popleft())

    def _answer(self, exchange: Exchange) -> None:
        self._current = exchange
        task = self._handle(exchange)
        if self._is_answering(exchange):
            self._task = task

    def _is_answering(self, exchange: Exchange) -> bool:
        """Return whether it is in progress. A call, because the type checker would assume that the value just set is
        unchanged.
        """
        return self._current is exchange

    def _take_breath(self) -> None:
        """Continue reading in the next turn of the event loop: otherwise a large body would delay others."""
        if not self._has_breath and self._transport is not None and not self._transport.is_closing():
            self._has_breath = True
            self._transport.pause_reading()
            self._loop.call_soon(self._breathe)

    def _breathe(self) -> None:
        self._has_breath = False
        if not self._is_read_paused and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _hold_body(self, arriving: int) -> None:
        """Count the large bodies in this connection's memory: an arriving one, and those of unanswered requests."""
        held = arriving if arriving > LARGE_BODY_BYTES else 0
        for exchange in self._waiting:
            if len(exchange.body) > LARGE_BODY_BYTES:
                held += len(exchange.body)
        if self._current is not None and len(self._current.body) > LARGE_BODY_BYTES:
            held += len(self._current.body)
        buffered = self._limits.buffered
        buffered.size += held - self._held
        self._held = held
        if arriving and buffered.size > self._limits.buffered_bytes:
            self._stop_parsing(self._limits.no_room())

    def _stop_parsing(self, refusal: TollkeeperError) -> None:
        self._refusal = refusal
        raise refusal  # out of the parser's callback; it comes back as HttpParserError in data_received

    def _refuse(self, error: TollkeeperError) -> None:
        """Answer an unreadable request and close, because the start of the next one is unknown.

        Data that still arrives is discarded for a moment: closing at once would make the client's system discard our
        answer unread (RFC 9112, section 9.6).
        """
        self._refusal = None
        self._is_closing = True
        self._pieces, self._blocks = [], []
        if self._held:
            self._hold_body(0)
        if self._transport is None or self._transport.is_closing():
            return
        if self._current is not None:
            self._current.close_after()  # the request before it still gets its answer
            return
        if self._waiting:
            self._transport.close()  # an error now would pass for the answer to the request that waits
            return
        shape = self._shape_at(self._url.partition(b"?")[0].decode("latin-1"))
        headers: Headers = ((REQUEST_ID, new_request_id()),)
        if shape.of_request is not None:
            shape, more = shape.of_request(headers)
            headers = (*headers, *more)
        body = shape.body(error)
        self.write(
            b"HTTP/1.1 %d Refused\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
            b"connection: close\r\n%b\r\n%b" % (shape.status(error), len(body), header_lines(headers), body)
        )
        self._deadline = self._loop.time() + LINGER_SECONDS
        self._end_sending(self._transport)

    def _end_sending(self, transport: asyncio.Transport) -> None:
        """Report that nothing follows, without closing."""
        transport.write_eof()

    def _wake_drain(self) -> None:
        waiter, self._drain_waiter = self._drain_waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


def _answer_probe(handle: Handler, shape_at: ShapeAt, exchange: Exchange) -> Serving | None:
    """Answer a health check on a connection beyond the limit, and nothing else."""
    exchange.close_after()
    if exchange.path in PROBES:
        return handle(exchange)
    send_error(
        exchange,
        Unavailable(
            "all connections are in use (TOLLKEEPER_MAX_CONNECTIONS, TOLLKEEPER_MAX_CONNECTIONS_PER_ADDRESS); "
            "try again shortly",
            code="connections_full",
        ),
        shape=shape_at(exchange.path),
    )
    return None
