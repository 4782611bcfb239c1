"""The rules of continuous batching: who waits, who is next, how a step's tokens are shared, who gives way.

Pure logic. The torch engine's scheduler and the planner's simulated replicas keep to the same ones. A sequence's
`order` is (priority, arrival, choice): the lowest goes first.
"""

import heapq
from collections.abc import Callable, Iterable
from typing import Final, Generic, Protocol, TypeVar

WATERMARK: Final = 0.01  # of all blocks, left free when others run: room to grow before the next preemption

Order = tuple[int, int, int]


class Batched(Protocol):
    """What the rules look at."""

    @property
    def handle(self) -> int:
        """Return the sequence's number in its engine."""

    @property
    def order(self) -> Order:
        """Return its place in the queue."""

    @property
    def remaining(self) -> int:
        """Return the number of tokens whose keys and values are not computed yet; 1 while decoding."""


S = TypeVar("S", bound=Batched)


class WaitingLine(Generic[S]):
    """The sequences that wait, the most urgent first. Nobody overtakes the head."""

    __slots__ = ("_heap", "_waiting")

    def __init__(self) -> None:
        self._heap: list[tuple[Order, S]] = []
        self._waiting: set[int] = set()  # handles; the heap may hold sequences that have ended

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, sequence: S) -> None:
        """Let a sequence wait."""
        self._waiting.add(sequence.handle)
        heapq.heappush(self._heap, (sequence.order, sequence))

    def discard(self, sequence: S) -> None:
        """Let it wait no more. It stays in the heap until it comes up: a heap cannot cheaply lose a member inside."""
        self._waiting.discard(sequence.handle)

    def head(self) -> S | None:
        """Return who is next, if anybody waits."""
        while self._heap and self._heap[0][1].handle not in self._waiting:
            heapq.heappop(self._heap)
        return self._heap[0][1] if self._heap else None

    def take_head(self) -> None:
        """Let the head wait no more. Only after `head` gave one."""
        _, sequence = heapq.heappop(self._heap)
        self._waiting.discard(sequence.handle)


def share_step(
    budget: int, running: Iterable[S], give: Callable[[S, int], None], admit: Callable[[], S | None]
) -> None:
    """Share what decodes have left of a step: to prompts in progress in order, then to those that are admitted."""
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
    """Return the number of blocks that an admission has to leave free."""
    return max(1, int(total * WATERMARK)) if others_run else 0


def least_urgent(running: Iterable[S]) -> S | None:
    """Return whom to preempt: the least urgent, among equals the latest."""
    return max(running, key=_order, default=None)


def may_displace(newcomer: Batched, victim: Batched | None) -> bool:
    """Return whether who waits may take the place of who runs: only of one strictly less urgent."""
    return victim is not None and victim.order[0] > newcomer.order[0]


def _order(sequence: Batched) -> Order:
    return sequence.order
