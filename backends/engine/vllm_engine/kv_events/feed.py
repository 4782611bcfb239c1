"""Puts vLLM's numbered event batches in order: asks again for what is missing, and says what cannot be had any more."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

END: Final = -1  # the number after the last batch that is told again
_MOST_AHEAD: Final = 20_000  # batches kept while earlier ones are asked for again
_PATIENCE_NS: Final = 5_000_000_000  # vLLM answers between two batches, or within a tenth of a second


class KvWire(Protocol):
    """The way to vLLM's publisher. Nothing waits."""

    def receive(self) -> tuple[int, bytes] | None:
        """Return the next batch with its number; `None` if there is none yet."""

    def ask_again(self, first: int) -> None:
        """Ask for the batches from a number on once more, as far as they are kept."""

    def receive_again(self) -> tuple[int, bytes] | None:
        """Return the next of the requested batches with its number; the last has number -1."""

    def close(self) -> None:
        """Close the sockets."""


@dataclass(slots=True)
class KvFeed:
    """Yields every batch once and in order. Numbers begin at 0: batches before the first received one are missing."""

    wire: KvWire
    now_ns: Callable[[], int] = time.monotonic_ns
    gaps: int = 0  # times that batches were missing
    lost: int = 0  # times that they could not be had again
    _next: int = 0
    _asked_ns: int | None = None  # since when an answer is due
    _unended: int = 0  # answers whose end has not come: those to questions that were given up may still come
    _ahead: dict[int, bytes] = field(default_factory=dict)

    def take(self) -> list[bytes | None]:
        """Return the batches that have come; `None` stands where some are lost for good."""
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
        """Let go of an answer that came after its question was given up: its end would settle the next gap."""
        while self._unended and (batch := self.wire.receive_again()) is not None:
            self._unended -= batch[0] == END

    @property
    def _has_hole(self) -> bool:
        return max(self._ahead) - self._next >= len(self._ahead)

    def _take_again(self, found: list[bytes | None]) -> None:
        """Record what was asked for. Where the answer has a hole, what comes after it is used all the same."""
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
        """Continue with the events that have arrived."""
        self._asked_ns = None
        for number in sorted(self._ahead):
            if number != self._next:
                self.lost += 1
                found.append(None)
            found.append(self._ahead[number])
            self._next = number + 1
        self._ahead.clear()
