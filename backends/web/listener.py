"""Binds a TCP port before anything else starts."""

import socket

from contracts.errors import ConfigurationError

_BACKLOG = 512


def listen(host: str, port: int, variable: str) -> socket.socket:
    """Bind a port and return the socket. Raises ConfigurationError with the setting to change if it is in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigurationError(
            f"cannot listen on {host} port {port} ({error.strerror}); free it, or set {variable} or `--port-base`"
        ) from error
    return listener
