"""A worker's end of the way to its host: never waits, keeps what cannot be sent yet, and counts what it must drop."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

from backends.engine.vllm_engine.metering.frames import Begun, Ended, Mark, MeasuredStep, MeterFrame, encode_frame

_STEPS_A_FRAME: Final = 64
_MAX_STEPS: Final = 8192
_MAX_ROWS: Final = 4096  # of a frame: 16 columns of 5 bytes stay below what a datagram may have
_BUFFER_BYTES: Final = 4 << 20


class FrameSender:
    """Sends datagrams to a Unix socket. The oldest steps are dropped first; who began and ended is always kept."""

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
        """Send by another call from now on, given the socket's number, a datagram and a path; it raises OSError too."""
        self._send_quickly = send

    @property
    def has_unsent(self) -> bool:
        """Return whether something waits to be sent."""
        return bool(self._begun or self._steps or self._ended or self._marks)

    def add(self, begun: list[Begun], steps: list[MeasuredStep], ended: list[Ended]) -> None:
        """Keep what was measured until `flush`."""
        self._begun += begun
        self._steps += steps
        self._ended += ended
        excess = len(self._steps) - self._max_steps
        if excess > 0:
            self.dropped += sum(step.steps for step in self._steps[:excess])
            del self._steps[:excess]

    def mark(self, mark: Mark) -> None:
        """Keep a change of state until `flush`."""
        self._marks.append(mark)

    def flush(self, in_flight: int) -> bool:
        """Send all there is, or as much as the host takes; return whether nothing is left. `in_flight` goes along."""
        is_first = True
        while self.has_unsent or is_first:
            is_first = False
            steps = self._next_steps()
            frame = MeterFrame(
                rank=self._rank,
                begun=self._begun,
                steps=steps,
                # An end is told with the last of the steps, so that no step of a sequence comes after it.
                ended=self._ended if len(steps) == len(self._steps) else [],
                marks=self._marks,
                in_flight=in_flight + len(self._steps) - len(steps),
                dropped=self.dropped,
            )
            try:
                self._send(encode_frame(frame))
            except OSError:  # the host is behind, or gone: in both cases later is better than waiting
                return False
            del self._steps[: len(steps)]
            self._begun, self._marks = [], []
            if frame.ended:
                self._ended = []
        return True

    def close(self) -> None:
        """Let go of the socket."""
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
