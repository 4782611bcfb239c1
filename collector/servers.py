"""Runs two HTTP servers in one event loop until a signal."""

import asyncio
import errno
import signal
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import uvicorn
from starlette.applications import Starlette

from backends.web.bounded_protocol import BoundedProtocol, Bounds
from backends.web.server import ServerWithoutSignals
from contracts.errors import ConfigurationError

_BACKLOG = 2048
_FINISH_SECONDS = 2  # time for requests in progress at shutdown


@dataclass(frozen=True, slots=True)
class Listener:
    """A bound socket and its ASGI application."""

    bound: socket.socket
    app: Starlette
    bounds: Bounds


def bind(host: str, port: int, variable: str) -> socket.socket:
    """Bind a port, before anything else is started. Raises ConfigurationError naming the variable to change."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen(_BACKLOG)  # listen now: two processes that start at once could both bind, but not both listen
    except OSError as error:
        bound.close()
        reason = "it is in use" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
        raise ConfigurationError(
            f"cannot listen on {host} port {port}: {reason}; stop the process that uses it or set {variable}"
        ) from error
    return bound


async def serve_until_signal(listeners: Sequence[Listener]) -> None:
    """Serve all applications until SIGTERM or SIGINT, then finish requests in progress for at most two seconds."""
    servers = [ServerWithoutSignals(_config(listener)) for listener in listeners]

    def stop() -> None:
        for server in servers:
            server.should_exit = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    await asyncio.gather(
        *(server.serve(sockets=[listener.bound]) for server, listener in zip(servers, listeners, strict=True))
    )


def _config(listener: Listener) -> uvicorn.Config:
    return uvicorn.Config(
        listener.app,
        http=partial(BoundedProtocol, listener.bounds),  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=_FINISH_SECONDS,
    )
