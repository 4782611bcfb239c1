"""Binds the data plane's port, watches slow connections, and lets the last requests finish at a stop."""

import asyncio
import errno
import math
import socket
from typing import Final, cast

from backends.beat import until_beat
from contracts.errors import ConfigurationError, Shutdown
from gateway.exchange import Handler
from gateway.http import HttpConnection, ShapeAt
from gateway.http_limits import HttpLimits
from gateway.rendering import OPENAI_ERRORS
from gateway.secure_listener import ListenerContext, SecureConnection

_SWEEP_SECONDS: Final = 0.5
_BACKLOG: Final = 4096
_DRAIN_POLL_SECONDS: Final = 0.02
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
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.Task[None] | None = None

    async def start(
        self, host: str, port: int, *, shares_port: bool = False, port_setting: str = "TOLLKEEPER_GATEWAY_PORT"
    ) -> None:
        """Bind and listen. Raises ConfigurationError where the port cannot be had.

        `shares_port`: other processes of the same user listen on it too, and the kernel spreads connections.
        """
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                self._new_connection,
                host,
                port,
                backlog=_BACKLOG,
                reuse_port=shares_port or None,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else self._tls.handshake_seconds,
                ssl_shutdown_timeout=None if self._tls is None else self._limits.write_seconds,
            )
        except OSError as error:
            raise ConfigurationError(_bind_failure(host, port, port_setting, error)) from error
        self._sweeper = asyncio.create_task(self._sweep(), name="connection deadlines")

    @property
    def port(self) -> int:
        """Give the port bound, which differs from the one asked for where that was 0."""
        assert self._server is not None
        address: tuple[str, int] = self._server.sockets[0].getsockname()
        return address[1]

    @property
    def connection_count(self) -> int:
        """Give the number of open connections."""
        return len(self._connections) if self._tls is None else self._tls.connection_count

    async def stop(
        self, drain_seconds: float, *, notice_seconds: float | None = 0.0, hurry: asyncio.Event | None = None
    ) -> None:
        """Let answers under way finish within the drain time, then end the rest with the error `shutdown`.

        The port stays open for `notice_seconds`, `None`: until no answer is under way. What arrives meanwhile is for
        the handler to refuse. `hurry` ends both times at once.
        """
        server, loop = self._server, asyncio.get_running_loop()
        if server is None:
            return
        closes_at = loop.time() + (math.inf if notice_seconds is None else notice_seconds)
        cuts_at, cut_at = loop.time() + drain_seconds, math.inf
        while True:
            now = loop.time()
            if hurry is not None and hurry.is_set():
                closes_at, cuts_at = min(closes_at, now), min(cuts_at, now)
            busy = [connection for connection in self._connections if connection.is_busy]
            if now >= cuts_at and busy and cut_at == math.inf:
                cut_at = now
                for connection in busy:
                    connection.cut(_cut_at(drain_seconds))
            is_over = not busy or now >= cut_at + _LAST_BYTES_SECONDS
            if now >= closes_at or (is_over and notice_seconds is None):
                server.close()
                for connection in tuple(self._connections):
                    connection.close_when_done()  # also one whose handshake ends only now
                if is_over and not any(connection.is_busy for connection in self._connections):
                    break
                if now >= cut_at + _LAST_BYTES_SECONDS:
                    break
            else:
                for connection in busy:
                    connection.announce_close()
            await asyncio.sleep(_DRAIN_POLL_SECONDS)
        for connection in tuple(self._connections):
            connection.abort()
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)

    def _new_connection(self) -> asyncio.Protocol:
        if self._tls is None:
            connection = HttpConnection(self._limits, self._handle, self._connections, self._shape_at)
        else:
            wants_certificate = self._tls.wants_certificates
            connection = SecureConnection(
                self._limits, self._handle, self._connections, self._shape_at, wants_certificate=wants_certificate
            )
        return cast(asyncio.Protocol, connection)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(until_beat(_SWEEP_SECONDS))
            now = asyncio.get_running_loop().time()
            if self._tls is not None:
                self._tls.refresh(at_once=True)
            for connection in tuple(self._connections):
                connection.check_deadline(now)


def _cut_at(drain_seconds: float) -> Shutdown:
    return Shutdown(
        f"the gateway is shutting down, and the answer was not complete within its drain time of {drain_seconds:g} s; "
        "send the request again"
    )


def _bind_failure(host: str, port: int, setting: str, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use; stop what holds it, or choose another with {setting}"
    if isinstance(error, socket.gaierror):
        return f"host {host!r} cannot be resolved; set TOLLKEEPER_HOST to an address of this machine"
    return f"port {port} on {host} cannot be bound: {error.strerror}; set TOLLKEEPER_HOST and {setting}"
