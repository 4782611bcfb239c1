"""Retry slots that a sliding-window counter reserves for refused requests: a retry at the stated time is admitted.

A slot is due at one moment and stays reserved for a short grace period, in which its claimant may use it; then it
expires. Until it is used, every window that a charge within the grace period could fall into counts the slot as if it
were charged.
"""

from heapq import heappop, heappush
from typing import Final

MAX_SLOTS: Final = 4096  # per counter: bounds the memory that a flood of refused requests can use
MAX_SLOTS_OF_ONE: Final = 256  # per claimant and counter
MAX_SECONDS_AHEAD: Final = 120.0  # longest wait for which clients are asked to retry automatically


class RetrySlot:
    """A retry slot: an amount reserved for a claimant from `due_ns` to `until_ns` (Unix nanoseconds)."""

    __slots__ = ("amount", "bucket", "claimant", "due_ns", "until_ns")

    def __init__(self, claimant: str, amount: int, bucket: int, due_ns: int, until_ns: int) -> None:
        self.claimant = claimant
        self.amount = amount
        self.bucket = bucket  # the bucket that contains `due_ns`
        self.due_ns = due_ns
        self.until_ns = until_ns


class RetrySlots:
    """The retry slots of one counter. Callers remove expired ones (`drop_lapsed`) before any other call."""

    __slots__ = ("_by_claimant", "_by_end", "_sequence", "by_bucket", "count")

    def __init__(self) -> None:
        # A heap; slots that were used early stay in it until their end.
        self._by_end: list[tuple[int, int, RetrySlot]] = []
        self._by_claimant: dict[str, list[RetrySlot]] = {}  # each list in the order of due times
        self._sequence = 0  # distinguishes slots with the same end
        self.by_bucket: dict[int, int] = {}  # bucket of the due time -> reserved sum
        self.count = 0

    def may_add(self, claimant: str, most: int) -> bool:
        """Return whether one more slot may be reserved for a claimant, of at most `most` at a time."""
        return self.count < MAX_SLOTS and len(self._by_claimant.get(claimant, ())) < min(most, MAX_SLOTS_OF_ONE)

    def later(self, claimant: str, now_ns: int) -> list[RetrySlot]:
        """Return the slots of a claimant that are not yet due, earliest first."""
        return [place for place in self._by_claimant.get(claimant, ()) if place.due_ns > now_ns]

    def add(self, place: RetrySlot) -> None:
        """Reserve a slot."""
        own = self._by_claimant.setdefault(place.claimant, [])
        own.append(place)
        own.sort(key=_due)
        self._sequence += 1
        heappush(self._by_end, (place.until_ns, self._sequence, place))
        self.by_bucket[place.bucket] = self.by_bucket.get(place.bucket, 0) + place.amount
        self.count += 1

    def drop_lapsed(self, now_ns: int) -> bool:
        """Remove slots whose grace period is over; return whether there were any."""
        by_end, count = self._by_end, self.count
        while by_end and by_end[0][0] < now_ns:
            place = heappop(by_end)[2]
            if place.amount:
                self._release(place, place.amount)
        return self.count < count

    def due(self, claimant: str, now_ns: int) -> int:
        """Return the amount that a claimant can use now."""
        own = self._by_claimant.get(claimant)
        if own is None:
            return 0
        return sum(place.amount for place in own if place.due_ns <= now_ns)

    def give_up(self, place: RetrySlot) -> None:
        """Release a slot."""
        self._release(place, place.amount)

    def claim(self, claimant: str, amount: int, now_ns: int) -> None:
        """Use up to `amount` of a claimant's due slots, earliest first."""
        for place in list(self._by_claimant.get(claimant, ())):
            if not amount or place.due_ns > now_ns:
                return
            used = min(amount, place.amount)
            amount -= used
            self._release(place, used)

    def _release(self, place: RetrySlot, amount: int) -> None:
        left = self.by_bucket[place.bucket] - amount
        if left:
            self.by_bucket[place.bucket] = left
        else:
            del self.by_bucket[place.bucket]
        place.amount -= amount
        if place.amount:
            return
        self.count -= 1
        own = self._by_claimant[place.claimant]
        own.remove(place)
        if not own:
            del self._by_claimant[place.claimant]


def _due(place: RetrySlot) -> int:
    return place.due_ns
