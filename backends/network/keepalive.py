"""TCP keep-alive for connections whose other end vanishes silently, so that the kernel closes them early."""

import socket
from typing import Final

# After 5 s of silence three probes are sent, 5 s apart; unacknowledged data ends the connection after 20 s.
_PROBES: Final = (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 20_000))


def keep_alive(connection: socket.socket) -> None:
    """Enable keep-alive on a socket. Accepted connections inherit it from a listening socket."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBES:
        if hasattr(socket, name):  # Linux has all of them
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
