"""Sends a worker's measurements to its host without blocking; buffers what cannot be sent yet, counts what it drops."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

from backends.engine.vllm_engine.metering.frames import Begun, Ended, Mark, MeasuredStep, MeterFrame, encode_frame

_STEPS_A_FRAME: Final = 64
_MAX_STEPS: Final = 8192
_MAX_ROWS: Final = 4096  # of a frame: 16 columns of 5 bytes fit a datagram
_BUFFER_BYTES: Final = 4 << 20


class FrameSender:
    """Sends datagrams to a Unix socket. If the buffer is full, the oldest steps are dropped; begins and
    ends never are.
    """

    def __init__(self, path: Path, rank: int, *, max_steps: int = _MAX_STEPS) -> None:
        self._path = str(path)
        self._rank = rank
        self._max_steps = max_steps
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        self._begun: list[Begun] = []
        self._steps: list[MeasuredStep] = []
        self._ended: list[Ended] = []
        self._marks: list[Mark] = []
        self._send_quickly: Callable[[int, bytes, str], None] | None = None
        self.dropped = 0

    def send_with(self, send: Callable[[int, bytes, str], None]) -> None:
        """Send by `send` from now on. It gets the socket's file descriptor, a datagram and a path, and
        raises OSError.
        """
        self._send_quickly = send

    @property
    def has_unsent(self) -> bool:
        """Return whether anything is buffered."""
        return bool(self._begun or self._steps or self._ended or self._marks)

    def add(self, begun: list[Begun], steps: list[MeasuredStep], ended: list[Ended]) -> None:
        """Buffer measurements until `flush`."""
        self._begun += begun
        self._steps += steps
        self._ended += ended
        excess = len(self._steps) - self._max_steps
        if excess > 0:
            self.dropped += sum(step.steps for step in self._steps[:excess])
            del self._steps[:excess]

    def mark(self, mark: Mark) -> None:
        """Buffer a change of the engine's state until `flush`."""
        self._marks.append(mark)

    def flush(self, in_flight: int) -> bool:
        """Send the buffer, as far as the host accepts it; return whether it is empty. `in_flight` is reported to the
        host.
        """
        is_first = True
        while self.has_unsent or is_first:
            is_first = False
            steps = self._next_steps()
            frame = MeterFrame(
                rank=self._rank,
                begun=self._begun,
                steps=steps,
                # Ends are sent with the last steps, so that no step of a sequence comes after its end.
                ended=self._ended if len(steps) == len(self._steps) else [],
                marks=self._marks,
                in_flight=in_flight + len(self._steps) - len(steps),
                dropped=self.dropped,
            )
            try:
                self._send(encode_frame(frame))
            except OSError:  # the host is behind or gone: try again later instead of waiting
                return False
            del self._steps[: len(steps)]
            self._begun, self._marks = [], []
            if frame.ended:
                self._ended = []
        return True

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _send(self, packed: bytes) -> None:
        if self._send_quickly is not None:
            self._send_quickly(self._socket.fileno(), packed, self._path)
        else:
            self._socket.sendto(packed, self._path)

    def _next_steps(self) -> list[MeasuredStep]:
        rows = 0
        for count, step in enumerate(self._steps[:_STEPS_A_FRAME]):
            rows += len(step.keys)
            if count and rows > _MAX_ROWS:
                return self._steps[:count]
        return self._steps[:_STEPS_A_FRAME]
