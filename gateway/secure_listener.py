"""TLS on the data plane's port: its handshakes count as connections, and callers may have to show a certificate."""

import asyncio
import ssl
import weakref
from dataclasses import dataclass
from functools import partial
from typing import Final

from backends.tls import LiveContext, TlsFiles, server_context
from contracts.errors import PermissionDenied
from gateway.error_answer import send_error
from gateway.exchange import Exchange, Handler, Serving
from gateway.http import LINGER_SECONDS, HttpConnection, ShapeAt
from gateway.http_limits import HttpLimits

# What load balancers and supervisors ask, which hold no certificate.
_OPEN_TO_ALL: Final = frozenset(("/health", "/ready"))


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The listener's files. Where authorities are named, clients must show a certificate signed by one of them."""

    files: TlsFiles
    handshake_seconds: float = 10.0


class ListenerContext(LiveContext):
    """The listener's certificate, and how many connections there are with the handshakes not yet done."""

    def __init__(self, settings: TlsSettings, limits: HttpLimits) -> None:
        """Read the files. Raises ConfigurationError."""
        self.wants_certificates = settings.files.authorities is not None
        # Asked for and not required: who has none is told so in HTTP, and may still ask how the gateway is.
        clients: Final = "optional" if self.wants_certificates else "none"
        super().__init__(partial(server_context, settings.files, clients), settings.files)
        self.handshake_seconds = settings.handshake_seconds
        self._limits = limits
        self._open: weakref.WeakSet[ssl.SSLObject] = weakref.WeakSet()

    @property
    def connection_count(self) -> int:
        """Give the number of connections, with those that are still shaking hands."""
        return len(self._open)

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Begin a handshake, unless there are too many connections: half a handshake holds as much as a whole one."""
        if len(self._open) >= self._limits.connections:
            raise ConnectionAbortedError("too many connections")
        begun = super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        self._open.add(begun)
        return begun


class SecureConnection(HttpConnection):
    """One client connection within TLS, from the end of its handshake on."""

    def __init__(
        self,
        limits: HttpLimits,
        handle: Handler,
        connections: set[HttpConnection],
        shape_at: ShapeAt,
        *,
        wants_certificate: bool,
    ) -> None:
        super().__init__(limits, handle, connections, shape_at)
        self._wants_certificate = wants_certificate
        self._closing_since: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self._wants_certificate and not transport.get_extra_info("peercert"):
            self._handle = partial(_answer_unknown, self._handle, self._shape_at)
        super().connection_made(transport)

    @property
    def is_busy(self) -> bool:
        """Say whether an answer is under way, or not yet wholly sent.

        What the TLS layer has handed on shows in no buffer of its own: a connection that closes has a moment for it.
        """
        if super().is_busy:
            return True
        if self._transport is None or not self._transport.is_closing() or self not in self._connections:
            return False
        if self._closing_since is None:
            self._closing_since = self._loop.time()
        return self._loop.time() - self._closing_since < LINGER_SECONDS

    def _end_sending(self, transport: asyncio.Transport) -> None:
        transport.close()  # it tells the client, and throws away what still comes until the client has done the same


def _answer_unknown(handle: Handler, shape_at: ShapeAt, exchange: Exchange) -> Serving | None:
    """Answer who showed no certificate."""
    if exchange.path in _OPEN_TO_ALL:
        return handle(exchange)
    send_error(
        exchange,
        PermissionDenied(
            "this gateway answers only clients that show a certificate of its authority", code="client_certificate"
        ),
        shape=shape_at(exchange.path),
    )
    return None
