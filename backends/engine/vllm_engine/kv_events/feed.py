"""Puts vLLM's numbered event batches in order: requests missing batches again, and reports those that are lost."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

END: Final = -1  # the number that ends a replay
_MOST_AHEAD: Final = 20_000  # batches buffered while a replay of earlier ones is awaited
_PATIENCE_NS: Final = 5_000_000_000  # time limit of a replay; vLLM answers between two batches, or within 0.1 s


class KvWire(Protocol):
    """The connection to vLLM's event publisher. No method blocks."""

    def receive(self) -> tuple[int, bytes] | None:
        """Return the next batch with its number; `None` if there is none yet."""

    def ask_again(self, first: int) -> None:
        """Request a replay of the batches from number `first` on, as far as vLLM still has them."""

    def receive_again(self) -> tuple[int, bytes] | None:
        """Return the next replayed batch with its number, or `None`; number -1 ends the replay."""

    def close(self) -> None:
        """Close the sockets."""


@dataclass(slots=True)
class KvFeed:
    """Yields every batch once and in order. Numbers begin at 0: batches before the first received one are missing."""

    wire: KvWire
    now_ns: Callable[[], int] = time.monotonic_ns
    gaps: int = 0  # how often batches were missing
    lost: int = 0  # how often the replay did not have them
    _next: int = 0
    _asked_ns: int | None = None  # when the awaited replay was requested
    _unended: int = 0  # replays whose end has not arrived, including those that timed out
    _ahead: dict[int, bytes] = field(default_factory=dict)

    def take(self) -> list[bytes | None]:
        """Return the batches that have arrived, in order; `None` marks a place where batches are lost."""
        found: list[bytes | None] = []
        if self._asked_ns is not None:
            self._take_again(found)
        else:
            self._drop_late()
        while (batch := self.wire.receive()) is not None:
            number, payload = batch
            if number == self._next and self._asked_ns is None:
                found.append(payload)
                self._next += 1
            elif number >= self._next:
                self._ahead[number] = payload
                self._miss(found)
        return found

    def _miss(self, found: list[bytes | None]) -> None:
        if self._asked_ns is None:
            self._drop_late()
            self.gaps += 1
            self._unended += 1
            self._asked_ns = self.now_ns()
            self.wire.ask_again(self._next)
        elif len(self._ahead) > _MOST_AHEAD:
            self._settle(found)

    def _drop_late(self) -> None:
        """Discard a replay that arrives after its time limit: its end would be taken for that of the next one."""
        while self._unended and (batch := self.wire.receive_again()) is not None:
            self._unended -= batch[0] == END

    @property
    def _has_hole(self) -> bool:
        return max(self._ahead) - self._next >= len(self._ahead)

    def _take_again(self, found: list[bytes | None]) -> None:
        """Read replayed batches. If the replay has a gap too, the batches after it are used nevertheless."""
        while (batch := self.wire.receive_again()) is not None:
            number, payload = batch
            if number == END:
                self._unended -= 1
                if not self._unended or not self._has_hole:
                    self._settle(found)
                    return
            elif number >= self._next:
                self._ahead[number] = payload
        assert self._asked_ns is not None
        if self.now_ns() - self._asked_ns > _PATIENCE_NS:
            self._settle(found)

    def _settle(self, found: list[bytes | None]) -> None:
        """End the wait for a replay, and continue with the batches that have arrived."""
        self._asked_ns = None
        for number in sorted(self._ahead):
            if number != self._next:
                self.lost += 1
                found.append(None)
            found.append(self._ahead[number])
            self._next = number + 1
        self._ahead.clear()
