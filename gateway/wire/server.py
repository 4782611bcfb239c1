"""Binds the data plane's port, watches slow connections, and lets the last requests finish at a stop."""

import asyncio
import errno
import math
import socket
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, cast

from backends.network.connection_table import ConnectionTable
from backends.processes.beat import until_beat
from backends.processes.running_time import sleep_and_tell
from contracts.errors import ConfigurationError, Shutdown
from gateway.apis.rendering import OPENAI_ERRORS
from gateway.wire.exchange import Handler
from gateway.wire.http import HttpConnection, ShapeAt
from gateway.wire.http_limits import HttpLimits
from gateway.wire.listener_context import ListenerContext
from gateway.wire.secure_listener import Handshake, SecureConnection, SecureServer

_SWEEP_SECONDS: Final = 0.5
_BACKLOG: Final = 4096
_DRAIN_POLL_SECONDS: Final = 0.02
# Family, kind, protocol, canonical name and address, as `getaddrinfo` gives them.
AddressInfo = tuple[int, int, int, str, tuple[Any, ...]]
_LAST_BYTES_SECONDS: Final = 2.0  # for answers that were cut to be settled, recorded and sent with their error


class HttpServer:
    """One listening socket and its connections."""

    def __init__(
        self,
        handle: Handler,
        limits: HttpLimits,
        tls: ListenerContext | None = None,
        shape_at: ShapeAt = lambda path: OPENAI_ERRORS,
    ) -> None:
        self._shape_at = shape_at
        self._handle = handle
        self._limits = limits
        self._tls = tls
        self._connections: set[HttpConnection] = set()
        self._handshakes: set[Handshake] = set()
        self._table = ConnectionTable(limits.connections)
        self._server: asyncio.Server | SecureServer | None = None
        self._sweeper: asyncio.Task[None] | None = None

    async def start(
        self, host: str, port: int, *, shares_port: bool = False, port_setting: str = "TOLLKEEPER_GATEWAY_PORT"
    ) -> None:
        """Bind and listen. Raises ConfigurationError if the port is not available.

        `shares_port`: other processes of the same user listen on it too, and the kernel distributes connections.
        """
        loop = asyncio.get_running_loop()
        try:
            if self._tls is None:
                self._server = await loop.create_server(
                    self._new_connection, host, port, backlog=_BACKLOG, reuse_port=shares_port or None
                )
            else:
                sockets = _bound(await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM), shares_port=shares_port)
                self._server = SecureServer(sockets, partial(self._shake_hands, self._tls))
        except OSError as error:
            raise ConfigurationError(_bind_failure(host, port, port_setting, error)) from error
        self._sweeper = asyncio.create_task(self._sweep(), name="connection deadlines")

    @property
    def port(self) -> int:
        """Return the bound port, which differs from the requested one if that was 0."""
        assert self._server is not None
        address: tuple[str, int] = self._server.sockets[0].getsockname()
        return address[1]

    @property
    def connection_count(self) -> int:
        """Return the number of open connections."""
        return len(self._table)

    async def stop(
        self, drain_seconds: float, *, notice_seconds: float | None = 0.0, hurry: asyncio.Event | None = None
    ) -> None:
        """Let answers in progress finish within the drain time, then end the rest with the error `shutdown`.

        The port stays open for `notice_seconds`, `None`: until no answer is in progress. The handler refuses requests
        that arrive meanwhile. `hurry` ends both times at once.
        """
        if self._server is None:
            return
        await self._drain(self._server, drain_seconds, notice_seconds, hurry)
        for connection in tuple(self._connections):
            connection.abort()
        for handshake in tuple(self._handshakes):
            handshake.give_way()
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)

    async def _drain(
        self,
        server: asyncio.Server | SecureServer,
        drain_seconds: float,
        notice_seconds: float | None,
        hurry: asyncio.Event | None,
    ) -> None:
        """Wait until no answer is in progress, and close the port on the way. Answers that take longer are cut."""
        loop = asyncio.get_running_loop()
        closes_at = loop.time() + (math.inf if notice_seconds is None else notice_seconds)
        cuts_at, ends_at = loop.time() + drain_seconds, math.inf
        while True:
            now = loop.time()
            if hurry is not None and hurry.is_set():
                closes_at = cuts_at = now
            busy = self._busy()
            if busy and now >= cuts_at and ends_at == math.inf:
                ends_at = now + _LAST_BYTES_SECONDS
                _cut(busy, drain_seconds)
            is_over = not busy or now >= ends_at
            if now >= closes_at or (is_over and notice_seconds is None):
                self._close(server)
                if is_over and (now >= ends_at or not self._busy()):
                    return
            else:
                _announce_close(busy)
            await asyncio.sleep(_DRAIN_POLL_SECONDS)

    def _close(self, server: asyncio.Server | SecureServer) -> None:
        """Close the port, and each connection after its answer in progress."""
        server.close()
        for connection in tuple(self._connections):
            connection.close_when_done()  # also one whose handshake ends only now

    def _busy(self) -> list[HttpConnection]:
        return [connection for connection in self._connections if connection.is_busy]

    def _new_connection(self) -> asyncio.Protocol:
        connection = HttpConnection(self._limits, self._handle, self._connections, self._table, self._shape_at)
        return cast(asyncio.Protocol, connection)

    def _shake_hands(self, tls: ListenerContext, accepted: socket.socket, address: str) -> None:
        handshake = Handshake(tls, self._limits, self._table, self._handshakes)
        handshake.begin(accepted, address, partial(self._secure_connection, tls.wants_certificates))

    def _secure_connection(self, wants_certificate: bool, handshake: Handshake) -> SecureConnection:
        return SecureConnection(
            self._limits,
            self._handle,
            self._connections,
            self._table,
            self._shape_at,
            handshake,
            wants_certificate=wants_certificate,
        )

    async def _sweep(self) -> None:
        held_up = 0.0
        while True:
            was_held_up = held_up > 0
            held_up = await sleep_and_tell(until_beat(_SWEEP_SECONDS))
            now = asyncio.get_running_loop().time()
            if self._tls is not None:
                self._tls.refresh(at_once=True)
            for connection in tuple(self._connections):
                if held_up:
                    connection.postpone(held_up)
                if not held_up or was_held_up:  # otherwise at the next look, once what was sent is read
                    connection.check_deadline(now)


def _bound(addresses: Sequence[AddressInfo], *, shares_port: bool) -> list[socket.socket]:
    """Listen on all addresses of a host, or raise OSError."""
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in addresses:
            bound = socket.socket(family, kind, protocol)
            sockets.append(bound)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shares_port:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # as event loops do
            bound.bind(address)
            bound.listen(_BACKLOG)
    except BaseException:
        for bound in sockets:
            bound.close()
        raise
    return sockets


def _cut(busy: Sequence[HttpConnection], drain_seconds: float) -> None:
    """End answers in progress with the error `shutdown`, each with its own."""
    told = (
        f"the gateway is shutting down, and the answer was not complete within its drain time of {drain_seconds:g} s; "
        "send the request again"
    )
    for connection in busy:
        connection.cut(Shutdown(told))


def _announce_close(busy: Sequence[HttpConnection]) -> None:
    """Let clients know that their connections close after the answers in progress."""
    for connection in busy:
        connection.announce_close()


def _bind_failure(host: str, port: int, setting: str, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use; stop the process that uses it, or choose another with {setting}"
    if isinstance(error, socket.gaierror):
        return f"host {host!r} cannot be resolved; set TOLLKEEPER_HOST to an address of this machine"
    return f"port {port} on {host} cannot be bound: {error.strerror}; set TOLLKEEPER_HOST and {setting}"
