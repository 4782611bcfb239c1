"""One HTTP request and the means to answer it, as the rest of the gateway uses them."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from typing import Final, Protocol

from backends.processes.native import mypyc_attr
from contracts.access.keys import KEY_PREFIX
from contracts.api.requests import AnyRequest
from contracts.errors import TollkeeperError
from contracts.recording.ids import uuid7
from gateway.request.context import NO_CONTEXT, RequestContext, read_trace

REQUEST_ID: Final = b"x-request-id"
_MODEL: Final = b"x-tollkeeper-model"
_VERSION: Final = b"x-tollkeeper-model-version"
_LONGEST_WORD: Final = 200
_OK: Final = b"200 OK"
_KEY_BEGINS: Final = KEY_PREFIX.encode()
_REASONS: Final = {
    202: b"Accepted",
    204: b"No Content",
    400: b"Bad Request",
    401: b"Unauthorized",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    408: b"Request Timeout",
    409: b"Conflict",
    413: b"Content Too Large",
    415: b"Unsupported Media Type",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    502: b"Bad Gateway",
    503: b"Service Unavailable",
    504: b"Gateway Timeout",
    529: b"Overloaded",
}

Headers = tuple[tuple[bytes, bytes], ...]


@mypyc_attr(allow_interpreted_subclasses=True)  # a batch's lines have one as well, and tests
class Line(ABC):
    """The connection of an exchange. An abstract class, because compiled code calls its methods faster than a
    protocol's.
    """

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Send bytes."""

    @abstractmethod
    def writer(self) -> Callable[[bytes], object]:
        """Return a faster equivalent of `write`, for a caller that stops when the client disconnects."""

    @abstractmethod
    def finished(self, *, keep_alive: bool) -> None:
        """End the exchange's use of the connection after its answer."""

    @abstractmethod
    def hold(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        """Register how to pause and resume the producer of the answer."""

    @abstractmethod
    async def drained(self) -> None:
        """Wait while the client reads more slowly than it is sent data."""


class RequestHead:
    """The head of a request. The content length among its headers may be another request's."""

    __slots__ = ("method", "path", "query", "version", "headers", "keep_alive", "is_plain", "authorization", "context")

    def __init__(
        self,
        method: str,
        path: str,
        query: str,  # as it came, without the question mark
        version: str,
        headers: dict[bytes, bytes],  # names in lower case; the last of a repeated header holds
        keep_alive: bool,
        is_plain: bool | None = None,  # as whoever answers it has found; `None`: nobody has looked yet
        context: RequestContext = NO_CONTEXT,  # known once somebody has looked
    ) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.version = version
        self.headers = headers
        self.keep_alive = keep_alive
        self.is_plain = is_plain
        self.context = context
        # The credential as it came, by which it is known again; empty: it came in another way, or not at all. No
        # header's value begins with a line end, so a key in one header does not pass for one in the other.
        sent = headers.get(b"authorization", b"")
        if not sent:
            key = headers.get(b"x-api-key", b"")
            sent = b"\n" + key if key.startswith(_KEY_BEGINS) else b""
        self.authorization = sent

    def traced(self, trace: bytes) -> "RequestHead":
        """Return an equal head with another well-formed `traceparent`."""
        headers = {**self.headers, b"traceparent": trace}
        context = self.context.traced(read_trace(headers)) if self.is_plain else NO_CONTEXT
        return RequestHead(
            self.method, self.path, self.query, self.version, headers, self.keep_alive, self.is_plain, context
        )


@mypyc_attr(allow_interpreted_subclasses=True)  # lines of a batch are exchanges too
class Exchange:
    """A complete request, and its answer: complete, or head, pieces and end. Writing after the client disconnected does
    nothing.
    """

    __slots__ = (
        "_is_finished",
        "_keep_alive",
        "_request_id",
        "line",
        "address",
        "body",
        "bytes_sent",
        "cut_by",
        "head",
        "headers",
        "held_back",
        "is_chunked",
        "is_gone",
        "is_started",
        "method",
        "path",
        "query",
        "read",
        "version",
    )

    def __init__(self, line: Line, head: RequestHead, body: bytes, address: str) -> None:
        self.line = line
        self._keep_alive = head.keep_alive
        self.is_chunked = False
        self._is_finished = False
        self._request_id = b""
        self.head = head
        self.method = head.method
        self.path = head.path
        self.query = head.query
        self.version = head.version
        self.headers = head.headers
        self.body = body
        self.address = address
        self.read: AnyRequest | None = None  # the body, where it has been read already
        self.bytes_sent = 0
        self.held_back = b""  # pieces that leave with the next one, in their framing
        self.is_started = False  # the answer's head has been written
        self.is_gone = False  # the client has left
        self.cut_by: TollkeeperError | None = None  # why the gateway itself cancelled the answer under way

    def header(self, name: bytes) -> str:
        """Return a header's value as text, empty if it is absent. `name` in lower case."""
        value = self.headers.get(name)
        return value.decode("latin-1") if value else ""

    @property
    def request_id(self) -> bytes:
        """Return the id of an answer for which no record is written, for the client and the log."""
        if not self._request_id:
            self._request_id = new_request_id()
        return self._request_id

    def send(self, status: int, content_type: bytes, body: bytes, headers: Headers = ()) -> None:
        """Answer with a complete body and end the exchange. An id is added to headers without one."""
        self.send_lines(status, content_type, body, header_lines(self._identified(headers)))

    def send_lines(self, status: int, content_type: bytes, body: bytes, lines: bytes) -> None:
        """Answer as `send` does, with headers that are lines already, each with its line end."""
        head = _head(
            status, content_type, lines, b"content-length: %b\r\n" % str(len(body)).encode(), self._connection_line()
        )
        self.is_started = True
        self._write(head if self.method == "HEAD" else head + body)
        self.finish()

    def start(self, status: int, content_type: bytes, headers: Headers = ()) -> None:
        """Start an answer of unknown length. For HTTP/1.0 clients the connection's close ends it.

        An id is added to headers without one.
        """
        self.start_lines(status, content_type, header_lines(self._identified(headers)))

    def start_lines(self, status: int, content_type: bytes, lines: bytes, first: bytes = b"") -> None:
        """Start an answer as `start` does, with headers that are lines already, each with its line end.

        `first` is the answer's first piece, if available.
        """
        self.is_chunked = self.version == "1.1"
        if not self.is_chunked:
            self._keep_alive = False
        framing = b"transfer-encoding: chunked\r\n" if self.is_chunked else b""
        self.is_started = True
        head = _head(status, content_type, lines, framing, self._connection_line())
        self._write(head + self._framed(first) if first else head)

    def write(self, data: bytes) -> None:
        """Send a piece of the answer at once."""
        if data:
            self._write(self._framed(data))

    def hold_back(self, data: bytes) -> None:
        """Send a piece of the answer together with the next, or with its end."""
        framed = self._framed(data)
        self.bytes_sent += len(framed)
        self.held_back += framed

    def send_held_back(self) -> None:
        """Send held-back data now."""
        if self.held_back:
            self._write(b"")

    def end(self, last: bytes = b"") -> None:
        """End an answer started with `start`: its last piece and the terminator in one write."""
        if self.is_chunked:
            self._write((self._framed(last) if last else b"") + b"0\r\n\r\n")
        elif last or self.held_back:
            self._write(last)
        self.finish()

    def break_off(self) -> None:
        """Close the connection without the answer's end, so that no client takes it for complete."""
        self.close_after()
        self.finish()

    def finish(self) -> None:
        """Release the connection for the next request. Further calls do nothing."""
        if not self._is_finished:
            self._is_finished = True
            self.line.finished(keep_alive=self._keep_alive)

    def close_after(self) -> None:
        """Close the connection after this answer."""
        self._keep_alive = False

    def hold(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        """Register how to pause the producer while the client reads slowly."""
        self.line.hold(pause, resume)

    async def drained(self) -> None:
        """Wait until the client has read enough to continue."""
        await self.line.drained()

    def _identified(self, headers: Headers) -> Headers:
        for name, _ in headers:
            if name == REQUEST_ID:
                return headers
        return ((REQUEST_ID, self.request_id), *headers)

    def _framed(self, data: bytes) -> bytes:
        return b"%b\r\n%b\r\n" % (hex(len(data))[2:].encode(), data) if self.is_chunked else data

    def _write(self, data: bytes) -> None:
        if not self.is_gone and not self._is_finished:
            self.bytes_sent += len(data)
            if self.held_back:
                data, self.held_back = self.held_back + data, b""
            self.line.write(data)

    def _connection_line(self) -> bytes:
        if not self._keep_alive:
            return b"connection: close\r\n"
        return b"connection: keep-alive\r\n" if self.version == "1.0" else b""


class Serving(Protocol):
    """An answer in progress: a task, or an object that answers without a task."""

    def cancel(self) -> object:
        """Cancel the exchange: the client has disconnected."""


Handler = Callable[[Exchange], Serving | None]
"""Answers an exchange: at once and returns None, or gives what a client that leaves cancels."""


def new_request_id() -> bytes:
    """Return a new id for an answer without a record."""
    return str(uuid7(time.time_ns())).encode()


def header_lines(headers: Headers) -> bytes:
    """Return headers as the lines of a head, each with its line end."""
    return b"".join([b"%b: %b\r\n" % header for header in headers])


@lru_cache(maxsize=512)  # a gateway's models are few, and each answer names one
def served_headers(model: str, version: str) -> Headers:
    """Return the headers for a model and its version, either empty if unknown.

    The values are the target's: characters that are invalid in a header are removed.
    """
    stated = ((_MODEL, model), (_VERSION, version))
    return tuple((name, word.encode()) for name, word in stated if _may_stand(word))


@lru_cache(maxsize=512)
def lines_of(served: Headers) -> bytes:
    """Return the model's response headers as header lines."""
    return header_lines(served)


def _may_stand(word: str) -> bool:
    """Return whether a word of a target may stand in a header."""
    return 0 < len(word) <= _LONGEST_WORD and word.isascii() and word.isprintable()


def _head(status: int, content_type: bytes, lines: bytes, framing: bytes, connection: bytes) -> bytes:
    # By `%b` alone: for `%d` the interpreter's own formatting is called, which is the longer way.
    return b"HTTP/1.1 %b\r\ncontent-type: %b\r\n%b%b%b\r\n" % (
        _OK if status == 200 else b"%d %b" % (status, _REASONS.get(status, b"Unknown")),
        content_type,
        framing,
        connection,
        lines,
    )
