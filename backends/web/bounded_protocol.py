"""uvicorn's HTTP protocol with the data plane's limits: connections per address, slow requests, size of heads,
pipelined requests, host names.
"""

import asyncio
from asyncio.events import TimerHandle
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from backends.network.connection_table import ConnectionTable
from backends.network.head_limits import HeadLimits
from backends.network.host_names import HostNames
from backends.web.request_ids import HEADER, new_request_id
from contracts.errors import AmbiguousFraming, HostNotAllowed, InvalidRequest, TollkeeperError, Unavailable

# Paths of health checks.
_PROBES: Final = frozenset(("/health", "/healthz", "/ready", "/_stcore/health"))
_MAX_PIPELINED: Final = 16  # queued requests per connection
_HEAD_SLACK_BYTES: Final = 64  # bytes that callbacks do not count: method, version, spaces and line ends
_LINGER_SECONDS: Final = 1.0  # how long a refused client may continue sending (RFC 9112, section 9.6)


@dataclass(frozen=True, slots=True)
class Bounds:
    """One listener's limits. Times are in seconds. `hosts`: `None` allows every name."""

    table: ConnectionTable
    hosts: HostNames | None
    head: HeadLimits
    head_seconds: float
    body_seconds: float
    idle_seconds: float  # before the first byte; between requests uvicorn's own limit applies


class BoundedProtocol(HttpToolsProtocol):
    """One client connection. Pass `partial(BoundedProtocol, bounds)` as uvicorn's `http`."""

    def __init__(self, bounds: Bounds, **of_uvicorn: Any) -> None:
        super().__init__(**of_uvicorn)
        self._bounds = bounds
        self._timer: TimerHandle | None = None
        self._idle_since = self.loop.time()
        self._is_upgraded = self._is_arriving = False
        self._header_bytes = self._header_count = 0  # of the request being read, its request line and trailers included
        self._unparsed_bytes = 0  # received since the last complete head, piece of a body or request
        self._in_body = False  # whether the body of `cycle`'s request is being read
        self._refusal: TollkeeperError | None = None  # why a callback stopped the parser
        self._is_refused = False
        if self.ws_protocol_class is not None:
            self.ws_protocol_class = partial(_followed, self.ws_protocol_class, self._end)  # type: ignore[assignment]

    @property
    def idle_since(self) -> float | None:
        """Return since when no complete request has been in progress; `None` while one is."""
        if self._is_upgraded or self.pipeline:
            return None
        cycle = self.cycle
        return self._idle_since if cycle is None or cycle.response_complete or cycle.more_body else None

    def give_way(self) -> None:
        """Close now, to make room for another connection."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        table, address = self._bounds.table, self.client[0] if self.client else ""
        if not table.admit(self, address, self._idle_since):
            if not table.admit_probe(self, address, self._idle_since):
                transport.abort()
                return
            self.app = partial(_answer_probe, self.app)
        self._close_after(self._bounds.idle_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        if self.cycle is None or self.cycle.response_complete:
            if not self._is_arriving:
                self._idle_since = self.loop.time()
                self._close_after(self._bounds.head_seconds)
                self._is_arriving = True
        self._unparsed_bytes += len(data)
        super().data_received(data)
        # This includes line ends before a request, chunk extensions, and unfinished headers and trailers.
        if self._unparsed_bytes > self._bounds.head.header_bytes + _HEAD_SLACK_BYTES and not self._is_refused:
            self._refuse(self._bounds.head.too_large())

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that the parser or one of its callbacks did not accept. Called by uvicorn."""
        self._refuse(
            self._refusal
            or AmbiguousFraming("the request is not valid HTTP/1.1; check the request line, the headers and the length")
        )

    def on_message_begin(self) -> None:
        self._header_bytes = self._header_count = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_count += 1
        if self._header_count > self._bounds.head.header_count:
            self._stop_parsing(self._bounds.head.too_many())
        self._count_head(len(name) + len(value) + 4)
        if not self._in_body:  # a trailer must not be treated as a header (RFC 9110, section 6.5.1)
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._unparsed_bytes = 0
        if len(self.pipeline) >= _MAX_PIPELINED:
            self._stop_parsing(
                InvalidRequest(f"more than {_MAX_PIPELINED} requests are pipelined on one connection; send fewer")
            )
        refusal = self._host_refusal()
        if refusal is None:
            super().on_headers_complete()
        else:
            app, self.app = self.app, partial(_answer_refusal, refusal)
            super().on_headers_complete()
            self.app = app
        self._in_body = True
        self._close_after(self._bounds.body_seconds)

    def on_body(self, body: bytes) -> None:
        self._unparsed_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unparsed_bytes = 0
        self._in_body = False
        self._is_arriving = False
        self._stop_timer()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._idle_since = self.loop.time()
        self._is_arriving = False
        if not self._in_body:  # otherwise the rest of the body is being discarded, with its own time limit
            self._stop_timer()
        super().on_response_complete()

    def handle_websocket_upgrade(self) -> None:
        refusal = self._host_refusal()
        if refusal is not None:
            self._refuse(refusal)
            return
        self._is_upgraded = True
        self._stop_timer()
        super().handle_websocket_upgrade()

    def _count_head(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > self._bounds.head.header_bytes:
            self._stop_parsing(self._bounds.head.too_large())

    def _stop_parsing(self, refusal: TollkeeperError) -> None:
        self._refusal = refusal
        raise refusal  # leaves the parser's callback; uvicorn then calls `send_400_response`

    def _refuse(self, error: TollkeeperError) -> None:
        """Answer an unreadable request, unless an answer is in progress, and close.

        Bytes that still arrive are discarded for a moment: closing at once would make the client's system discard the
        answer.
        """
        self._is_refused = True
        cycle = self.cycle
        is_answered = cycle is not None and cycle.response_started
        if not self._in_body:
            if cycle is not None and not cycle.response_complete:
                cycle.keep_alive = False  # earlier requests are answered; then the connection closes
                return
            is_answered = False
        elif self.pipeline:
            self.pipeline[0] = (cycle, partial(_answer_refusal, error))  # after the requests before it
            cycle.keep_alive = False
            return
        if cycle is not None:
            cycle.disconnected = True  # the application sees a disconnected client and can write no more
            cycle.message_event.set()
        if not is_answered:
            reply = _reply(error)
            headers = (*self.server_state.default_headers, *reply.raw_headers)
            lines = b"".join(b"%b: %b\r\n" % header for header in headers)
            self.transport.write(b"%b%b\r\n%b" % (STATUS_LINE[error.status], lines, bytes(reply.body)))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._close_after(_LINGER_SECONDS)

    def _host_refusal(self) -> TollkeeperError | None:
        hosts = self._bounds.hosts
        if hosts is not None:
            try:
                for name, value in self.headers:
                    if name == b"host":
                        hosts.check(value)
            except HostNotAllowed as error:
                return error
        return None

    def _close_after(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        self._bounds.table.discard(self)
        self._stop_timer()


def _followed(protocol_class: type[Any], on_lost: Any, **of_uvicorn: Any) -> Any:
    """Create a WebSocket protocol whose connection counts until it is closed."""

    class Followed(protocol_class):  # type: ignore[misc]
        def connection_lost(self, exc: Exception | None) -> None:
            on_lost()
            super().connection_lost(exc)

    return Followed(**of_uvicorn)


async def _answer_probe(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a health check on a connection beyond the limit; refuse other requests."""
    if scope["path"] in _PROBES:
        await app(scope, receive, send)
        return
    full = Unavailable(
        "all connections are in use (TOLLKEEPER_MAX_CONNECTIONS, TOLLKEEPER_MAX_CONNECTIONS_PER_ADDRESS); try again "
        "shortly",
        code="connections_full",
    )
    await _answer_refusal(full, scope, receive, send)


async def _answer_refusal(error: TollkeeperError, scope: Scope, receive: Receive, send: Send) -> None:
    await _reply(error)(scope, receive, send)


def _reply(error: TollkeeperError) -> JSONResponse:
    body = {"message": error.message, "type": error.kind, "param": None, "code": error.error_code}
    headers = {"connection": "close", HEADER: new_request_id()}
    return JSONResponse({"error": body}, status_code=error.status, headers=headers)
