"""Messages to Redis: reservations of one request, all or nothing, and reports of one counter."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from backends.counters.amounts import split
from backends.counters.batch_sender import Answer, Keys
from gateway.limits.counters.base import Counter
from gateway.limits.counters.lease_connection import LeasedAmount
from gateway.limits.counters.leased_escrow import AnyLeasedEscrow
from gateway.limits.counters.leased_sliding import LeasedSliding

_SYNC: Final = 0
_SEEK: Final = 1
_CONTENT: Final = 2
_SEEK_AS_NEW: Final = 2  # without the retry slots reserved for the claimant


@dataclass(frozen=True, slots=True)
class SeekResult:
    """The result of a seek. `alone_us`: for each line, when it alone would have room (0: unknown)."""

    is_granted: bool
    when_us: int
    is_held: bool
    alone_us: list[int]
    answer: Answer
    is_content: bool = False  # granted, with less than requested: the amount of the claimant's retry slot


class SyncCommand:
    """One counter's report, with what it returns and what it requests in addition."""

    lines = 1

    def __init__(self, part: LeasedAmount) -> None:
        self._part = part

    def pack(self, keys: Keys) -> list[object] | None:
        """Return the message to send, or `None` if there is nothing to send."""
        return [_SYNC, "", [self._part.pack(keys, 0, False)]]

    def deliver(self, result: list[Any], answer: Answer) -> None:
        """Accept what was granted."""
        self._part.deliver(result[3][0])

    def undo(self) -> None:
        """Mark the contents as not reported."""
        self._part.undo()


class SeekCommand:
    """A request that waits for room. What it is granted is set aside until the request takes it."""

    def __init__(
        self,
        lines: Sequence[tuple[LeasedSliding | AnyLeasedEscrow, int]],
        claimant: str,
        *,
        may_claim: bool = True,
        most_places: int = 256,
        least: Mapping[Counter, int] | None = None,
    ) -> None:
        self._asked = lines
        self._kind = _SEEK if may_claim else _SEEK_AS_NEW
        self._most_places = most_places
        self._least = [(least or {}).get(counter, asked) for counter, asked in lines]
        self._parts: list[LeasedSliding | Any] = []
        self._claimant = claimant
        self._aside: list[tuple[Any, Any]] = []
        self.lines = len(lines)
        self.found: asyncio.Future[SeekResult] = asyncio.get_running_loop().create_future()

    def pack(self, keys: Keys) -> list[object] | None:
        """Return the message to send; `None` if the request has been answered already."""
        if self.found.done():
            return None
        self._parts = [counter if isinstance(counter, LeasedSliding) else counter.grant for counter, _ in self._asked]
        packed = [part.pack(keys, asked, True) for part, (_, asked) in zip(self._parts, self._asked, strict=True)]
        return [self._kind, self._claimant, packed, self._most_places, [split(least) for least in self._least]]

    def deliver(self, result: list[Any], answer: Answer) -> None:
        """Accept what was granted, and set it aside if the request still waits for it.

        Other requests of this gateway may have used, in the meantime, room that this answer assumes. Then nothing is
        set aside, because more would count as reserved than was granted, and the request asks again.
        """
        is_granted, when_us, is_held, lines = result
        for part, line in zip(self._parts, lines, strict=True):
            part.deliver(line)
        if self.found.done():
            return
        if is_granted and self._is_backed():
            self._aside = [(counter, counter.earmark(asked)) for counter, asked in self._asked]
        alone = [
            line[5] if isinstance(counter, LeasedSliding) else 0
            for (counter, _), line in zip(self._asked, lines, strict=True)
        ]
        self.found.set_result(
            SeekResult(bool(is_granted), when_us, bool(is_held), alone, answer, is_granted == _CONTENT)
        )

    def _is_backed(self) -> bool:
        return all(isinstance(counter, LeasedSliding) or counter.grant.spare >= asked for counter, asked in self._asked)

    def undo(self) -> None:
        """Mark what was not taken as not reported."""
        for part in self._parts:
            part.undo()

    def release(self) -> None:
        """Release what was set aside, for the request to take within this turn of the event loop."""
        aside, self._aside = self._aside, []
        for counter, parts in aside:
            counter.release(parts)
