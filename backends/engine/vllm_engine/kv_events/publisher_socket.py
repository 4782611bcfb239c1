"""ZeroMQ sockets to vLLM's event publisher. Only on this machine, because events contain prompts."""

import importlib
from pathlib import Path
from typing import Any, Final

_MOST_WAITING: Final = 200_000  # batches; beyond, ZeroMQ drops them, which shows as missing numbers


class PublisherSocket:
    """Subscribes to a publisher, which may start later. Used by one thread."""

    def __init__(self, events: str, again: str) -> None:
        """Connect to the addresses `events` (live events) and `again` (replays)."""
        # a dependency of vLLM: not installed where types are checked, and needed only here
        self._zmq: Any = importlib.import_module("zmq")
        self._context: Any = self._zmq.Context(1)
        self._events = self._context.socket(self._zmq.SUB)
        self._events.set(self._zmq.RCVHWM, _MOST_WAITING)
        self._events.set(self._zmq.SUBSCRIBE, b"")
        self._events.connect(events)
        self._again = self._context.socket(self._zmq.DEALER)
        self._again.set(self._zmq.RCVHWM, _MOST_WAITING)
        self._again.connect(again)

    def receive(self) -> tuple[int, bytes] | None:
        """Return the next batch with its number; `None` if none has arrived."""
        return self._next(self._events)

    def ask_again(self, first: int) -> None:
        """Request a replay of the batches from number `first` on."""
        self._again.send_multipart((b"", first.to_bytes(8, "big")))

    def receive_again(self) -> tuple[int, bytes] | None:
        """Return the next replayed batch with its number, or `None`; number -1 ends the replay."""
        return self._next(self._again)

    def close(self) -> None:
        """Close the sockets."""
        self._context.destroy(linger=0)

    def _next(self, socket: Any) -> tuple[int, bytes] | None:
        while socket.get(self._zmq.EVENTS) & self._zmq.POLLIN:
            parts = socket.recv_multipart(self._zmq.NOBLOCK)
            if len(parts) == 3:  # a topic or a delimiter, the number, the batch
                return int.from_bytes(parts[1], "big", signed=True), parts[2]
        return None


def addresses(folder: Path) -> tuple[str, str]:
    """Return the addresses for live events and for replays, as sockets in a folder that only its owner may enter."""
    return f"ipc://{folder / 'e'}", f"ipc://{folder / 'r'}"
