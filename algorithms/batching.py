"""The rules of continuous batching: the queue, the sharing of a step's tokens, and preemption.

Pure. Used by the torch engine's scheduler and by the planner's simulated replicas. A sequence's `order` is (priority,
arrival, choice); the lowest goes first.
"""

import heapq
from collections.abc import Callable, Iterable
from typing import Final, Generic, Protocol, TypeVar

WATERMARK: Final = 0.01  # share of all blocks left free while others run, so that they can grow before a preemption

Order = tuple[int, int, int]


class Batched(Protocol):
    """The fields of a sequence that the rules use."""

    @property
    def handle(self) -> int:
        """Return the sequence's number in its engine."""

    @property
    def order(self) -> Order:
        """Return its position in the queue."""

    @property
    def remaining(self) -> int:
        """Return the number of tokens whose keys and values are not yet computed; 1 while decoding."""


S = TypeVar("S", bound=Batched)


class WaitingLine(Generic[S]):
    """The queue of waiting sequences, most urgent first. None overtakes the first."""

    __slots__ = ("_heap", "_waiting")

    def __init__(self) -> None:
        self._heap: list[tuple[Order, S]] = []
        self._waiting: set[int] = set()  # handles; the heap may also contain removed sequences

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, sequence: S) -> None:
        """Add a sequence to the queue."""
        self._waiting.add(sequence.handle)
        heapq.heappush(self._heap, (sequence.order, sequence))

    def discard(self, sequence: S) -> None:
        """Remove a sequence from the queue. It stays in the heap until it reaches the top, as removal inside a heap is
        slow.
        """
        self._waiting.discard(sequence.handle)

    def head(self) -> S | None:
        """Return the first sequence; `None` if the queue is empty."""
        while self._heap and self._heap[0][1].handle not in self._waiting:
            heapq.heappop(self._heap)
        return self._heap[0][1] if self._heap else None

    def take_head(self) -> None:
        """Remove the first sequence. Call only after `head` returned one."""
        _, sequence = heapq.heappop(self._heap)
        self._waiting.discard(sequence.handle)


def share_step(
    budget: int, running: Iterable[S], give: Callable[[S, int], None], admit: Callable[[], S | None]
) -> None:
    """Distribute a step's remaining token budget: first to running prefills in order, then to admitted sequences.

    `give` gets a sequence and its number of tokens; `admit` returns the next admitted sequence, or `None`.
    """
    for sequence in running:
        if budget and sequence.remaining > 1:
            count = min(sequence.remaining, budget)
            give(sequence, count)
            budget -= count
    while budget:
        admitted = admit()
        if admitted is None:
            break
        count = min(admitted.remaining, budget)
        give(admitted, count)
        budget -= count


def spare_blocks(total: int, *, others_run: bool) -> int:
    """Return the number of blocks that must stay free after an admission."""
    return max(1, int(total * WATERMARK)) if others_run else 0


def least_urgent(running: Iterable[S]) -> S | None:
    """Return the sequence to preempt: the least urgent, the latest among equals; `None` if none runs."""
    return max(running, key=_order, default=None)


def may_displace(newcomer: Batched, victim: Batched | None) -> bool:
    """Return whether a waiting sequence may preempt a running one: only if that is strictly less urgent."""
    return victim is not None and victim.order[0] > newcomer.order[0]


def _order(sequence: Batched) -> Order:
    return sequence.order
