"""A network that loses packets between a client and a server: nothing is refused, and nothing arrives."""

import contextlib
import socket
import threading
from typing import Self

_PIECE_BYTES = 1 << 16
_BUFFER_BYTES = 1 << 14  # what a sender is rid of before it notices that nothing is read


class LossyNetwork:
    """Relays connections to a port of this machine. While it is cut, bytes and new connections wait, as those do that
    are sent again until the network is back; `cut_answers` lets requests through and holds what comes back."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._requests_pass, self._answers_pass = threading.Event(), threading.Event()
        self._is_closed = False
        self._held: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        self.port = int(self._listener.getsockname()[1])
        self.answered_bytes = 0  # that the server sent, whether they arrived or not
        self.mend()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Lose everything from now on."""
        self._requests_pass.clear()
        self._answers_pass.clear()

    def cut_answers(self) -> None:
        """Lose what the server sends from now on."""
        self._answers_pass.clear()

    def mend(self) -> None:
        """Let through what was sent and what will be."""
        self._requests_pass.set()
        self._answers_pass.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed = True
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._held:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        self.mend()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while not self._is_closed:
                client, _ = self._listener.accept()
                self._requests_pass.wait()
                server = socket.create_connection(("127.0.0.1", self._to))
                self._held += [client, server]
                for source, target, passes in (
                    (client, server, self._requests_pass),
                    (server, client, self._answers_pass),
                ):
                    threading.Thread(target=self._relay, args=(source, target, passes), daemon=True).start()

    def _relay(self, source: socket.socket, target: socket.socket, passes: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(_PIECE_BYTES):
                if passes is self._answers_pass:
                    self.answered_bytes += len(piece)
                passes.wait()
                target.sendall(piece)
            passes.wait()
            target.shutdown(socket.SHUT_WR)
