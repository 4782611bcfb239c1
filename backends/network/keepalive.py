"""Connections whose other end has vanished without a word: ended by the kernel, not waited for until a long timeout."""

import socket
from typing import Final

# After five seconds of silence it is asked three times, five seconds apart; what it never confirms ends it as well.
_PROBES: Final = (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 20_000))


def keep_alive(connection: socket.socket) -> None:
    """Have the kernel end a connection whose other machine has vanished; what it accepts does as a listener does."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBES:
        if hasattr(socket, name):  # Linux has all of them
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
