"""uvicorn's HTTP connection under the limits of the data plane's: shares by address, slow requests, host names."""

import asyncio
from asyncio.events import TimerHandle
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from backends.connection_table import ConnectionTable
from backends.host_names import HostNames
from contracts.errors import HostNotAllowed, TollkeeperError, Unavailable

# What supervisors and load balancers ask.
_PROBES: Final = frozenset(("/health", "/healthz", "/ready", "/_stcore/health"))


@dataclass(frozen=True, slots=True)
class Bounds:
    """One listener's limits. Times are seconds. `hosts`: `None` allows every name."""

    table: ConnectionTable
    hosts: HostNames | None
    head_seconds: float
    body_seconds: float
    idle_seconds: float  # before the first byte; between requests uvicorn's own holds


class BoundedProtocol(HttpToolsProtocol):
    """One client connection. `partial(BoundedProtocol, bounds)` is what uvicorn's `http` takes."""

    def __init__(self, bounds: Bounds, **of_uvicorn: Any) -> None:
        super().__init__(**of_uvicorn)
        self._bounds = bounds
        self._timer: TimerHandle | None = None
        self._idle_since = self.loop.time()
        self._is_upgraded = self._is_arriving = False
        if self.ws_protocol_class is not None:
            self.ws_protocol_class = partial(_followed, self.ws_protocol_class, self._end)  # type: ignore[assignment]

    @property
    def idle_since(self) -> float | None:
        """Return since when no whole request has been under way; `None` while one is."""
        if self._is_upgraded or self.pipeline:
            return None
        cycle = self.cycle
        return self._idle_since if cycle is None or cycle.response_complete or cycle.more_body else None

    def give_way(self) -> None:
        """Close now, for a connection that needs the room."""
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
        if self.cycle is None or self.cycle.response_complete:
            if not self._is_arriving:
                self._idle_since = self.loop.time()
                self._close_after(self._bounds.head_seconds)
                self._is_arriving = True
        super().data_received(data)

    def on_headers_complete(self) -> None:
        refusal = self._refusal()
        if refusal is None:
            super().on_headers_complete()
        else:
            app, self.app = self.app, partial(_refuse, refusal)
            super().on_headers_complete()
            self.app = app
        self._close_after(self._bounds.body_seconds)

    def on_message_complete(self) -> None:
        self._is_arriving = False
        self._stop_timer()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._idle_since = self.loop.time()
        self._is_arriving = False
        self._stop_timer()
        super().on_response_complete()

    def handle_websocket_upgrade(self) -> None:
        refusal = self._refusal()
        if refusal is not None:
            self.send_400_response(refusal.message)
            return
        self._is_upgraded = True
        self._stop_timer()
        super().handle_websocket_upgrade()

    def _refusal(self) -> TollkeeperError | None:
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
    """Make the protocol of a WebSocket, whose connection counts until it is lost."""

    class Followed(protocol_class):  # type: ignore[misc]
        def connection_lost(self, exc: Exception | None) -> None:
            on_lost()
            super().connection_lost(exc)

    return Followed(**of_uvicorn)


async def _answer_probe(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a health check on a connection beyond the limit, and nothing else."""
    if scope["path"] in _PROBES:
        await app(scope, receive, send)
        return
    full = Unavailable(
        "all connections are in use (TOLLKEEPER_MAX_CONNECTIONS, TOLLKEEPER_MAX_CONNECTIONS_PER_ADDRESS); try again "
        "shortly",
        code="connections_full",
    )
    await _refuse(full, scope, receive, send)


async def _refuse(error: TollkeeperError, scope: Scope, receive: Receive, send: Send) -> None:
    body = {"message": error.message, "type": error.kind, "param": None, "code": error.error_code}
    refusal = JSONResponse({"error": body}, status_code=error.status, headers={"connection": "close"})
    await refusal(scope, receive, send)
