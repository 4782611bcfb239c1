"""TLS on the data plane's port: its handshakes count as connections, and callers may have to show a certificate."""

import asyncio
import logging
import socket
from collections.abc import Callable
from functools import partial
from typing import Final, cast

from backends.network.connection_table import ConnectionTable
from contracts.errors import PermissionDenied
from gateway.wire.error_answer import send_error
from gateway.wire.exchange import Exchange, Handler, Serving
from gateway.wire.http import LINGER_SECONDS, PROBES, HttpConnection, ShapeAt
from gateway.wire.http_limits import HttpLimits
from gateway.wire.listener_context import ListenerContext

_log = logging.getLogger(__name__)

_ACCEPTS_AT_ONCE: Final = 100


class SecureConnection(HttpConnection):
    """One client connection within TLS, after its handshake. `handshake` is the object that holds its place in the
    connection limit.
    """

    def __init__(
        self,
        limits: HttpLimits,
        handle: Handler,
        connections: set[HttpConnection],
        table: ConnectionTable,
        shape_at: ShapeAt,
        handshake: "Handshake",
        *,
        wants_certificate: bool,
    ) -> None:
        super().__init__(limits, handle, connections, table, shape_at)
        self._handshake: Handshake | None = handshake
        self._wants_certificate = wants_certificate
        self._closing_since: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self._wants_certificate and not transport.get_extra_info("peercert"):
            self._handle = partial(_answer_unknown, self._handle, self._shape_at)
        super().connection_made(transport)

    def _is_admitted(self) -> bool:
        handshake, self._handshake = self._handshake, None
        if handshake is None or not self._table.holds(handshake):
            return False
        if handshake.is_probe:
            self._take_probes_only()
        self._table.replace(handshake, self, self._idle_since)
        return True

    @property
    def is_busy(self) -> bool:
        """Return whether an answer is in progress, or not yet completely sent.

        Data that the TLS layer has passed on is in no visible buffer: a closing connection gets a moment for it.
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


class SecureServer:
    """Listening sockets whose connections count from the moment they are accepted.

    `loop.create_server` would report a connection only after its TLS handshake, and its address not before.
    """

    def __init__(self, sockets: list[socket.socket], accept: Callable[[socket.socket, str], None]) -> None:
        self.sockets = sockets
        self._accept = accept
        self._loop = asyncio.get_running_loop()
        for each in sockets:
            each.setblocking(False)
            self._loop.add_reader(each.fileno(), self._accept_from, each)

    def close(self) -> None:
        """Stop listening."""
        for each in self.sockets:
            if each.fileno() >= 0:
                self._loop.remove_reader(each.fileno())
                each.close()

    def _accept_from(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTS_AT_ONCE):
            try:
                accepted, peer = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # no file descriptor is free
                _log.exception("cannot accept connections; trying again in a second")
                self._loop.remove_reader(listening.fileno())
                self._loop.call_later(1.0, self._listen_again, listening)
                return
            accepted.setblocking(False)
            self._accept(accepted, str(peer[0]))

    def _listen_again(self, listening: socket.socket) -> None:
        if listening.fileno() >= 0:
            self._loop.add_reader(listening.fileno(), self._accept_from, listening)


class Handshake:
    """A connection before the end of its TLS handshake. It counts against the connection limit, as an idle one."""

    def __init__(
        self, context: ListenerContext, limits: HttpLimits, table: ConnectionTable, among: "set[Handshake]"
    ) -> None:
        self._context = context
        self._limits = limits
        self._table = table
        self._among = among
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._task: asyncio.Task[None] | None = None
        self.is_probe = False

    @property
    def idle_since(self) -> float | None:
        """Return the time at which the handshake started."""
        return self._began

    def give_way(self) -> None:
        """Close now, because another connection needs the capacity."""
        if self._task is not None:
            self._task.cancel()

    def begin(self, accepted: socket.socket, address: str, make: Callable[["Handshake"], SecureConnection]) -> None:
        """Perform the handshake, if the connection limit allows it."""
        if not self._table.admit(self, address, self._began):
            self.is_probe = self._table.admit_probe(self, address, self._began)
            if not self.is_probe:
                accepted.close()  # half a handshake holds as much as a whole one
                return
        self._among.add(self)
        self._task = self._loop.create_task(self._shake_hands(accepted, make))
        self._task.add_done_callback(partial(self._end, accepted))

    async def _shake_hands(self, accepted: socket.socket, make: Callable[["Handshake"], SecureConnection]) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: cast(asyncio.BaseProtocol, make(self)),
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=self._context.handshake_seconds,
                ssl_shutdown_timeout=self._limits.write_seconds,
            )
        except OSError:  # it left, took too long, or does not speak TLS as we do
            pass

    def _end(self, accepted: socket.socket, task: "asyncio.Task[None]") -> None:
        self._among.discard(self)
        self._table.discard(self)
        if task.cancelled():
            accepted.close()


def _answer_unknown(handle: Handler, shape_at: ShapeAt, exchange: Exchange) -> Serving | None:
    """Answer requests of clients without a certificate."""
    if exchange.path in PROBES:
        return handle(exchange)
    send_error(
        exchange,
        PermissionDenied(
            "this gateway answers only clients that show a certificate of its authority", code="client_certificate"
        ),
        shape=shape_at(exchange.path),
    )
    return None
