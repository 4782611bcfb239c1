"""Places that a sliding counter keeps for those it has told to wait: who comes when told is admitted.

A place is due at one moment and kept for a short grace, within which its holder may come; then it is gone. Until it
is claimed, every window that a charge within the grace could fall into counts it as if it were charged.
"""

from heapq import heappop, heappush
from typing import Final

MAX_PLACES: Final = 4096  # of one counter: what a flood of refused requests can hold in memory
MAX_PLACES_OF_ONE: Final = 256  # of one claimant at one counter
MAX_SECONDS_AHEAD: Final = 120.0  # clients are not asked to retry by themselves later than this


class Place:
    """An amount kept for a claimant from one moment to another (Unix nanoseconds)."""

    __slots__ = ("amount", "bucket", "claimant", "due_ns", "until_ns")

    def __init__(self, claimant: str, amount: int, bucket: int, due_ns: int, until_ns: int) -> None:
        self.claimant = claimant
        self.amount = amount
        self.bucket = bucket  # that `due_ns` lies in
        self.due_ns = due_ns
        self.until_ns = until_ns


class HeldPlaces:
    """The places held at one counter. Callers let them lapse (`drop_lapsed`) before they ask anything else."""

    __slots__ = ("_by_claimant", "_by_end", "_sequence", "by_bucket", "count")

    def __init__(self) -> None:
        self._by_end: list[tuple[int, int, Place]] = []  # a heap; places claimed early lie in it until their end
        self._by_claimant: dict[str, list[Place]] = {}  # each list in the order of when they are due
        self._sequence = 0  # places of the same end are told apart by it
        self.by_bucket: dict[int, int] = {}  # bucket due -> sum held
        self.count = 0

    def may_add(self, claimant: str, most: int) -> bool:
        """Return whether one more place may be held for a claimant, of `most` at a time."""
        return self.count < MAX_PLACES and len(self._by_claimant.get(claimant, ())) < min(most, MAX_PLACES_OF_ONE)

    def later(self, claimant: str, now_ns: int) -> list[Place]:
        """Return the places of a claimant that are not yet due, the first first."""
        return [place for place in self._by_claimant.get(claimant, ()) if place.due_ns > now_ns]

    def add(self, place: Place) -> None:
        """Hold a place."""
        own = self._by_claimant.setdefault(place.claimant, [])
        own.append(place)
        own.sort(key=_due)
        self._sequence += 1
        heappush(self._by_end, (place.until_ns, self._sequence, place))
        self.by_bucket[place.bucket] = self.by_bucket.get(place.bucket, 0) + place.amount
        self.count += 1

    def drop_lapsed(self, now_ns: int) -> bool:
        """Let go of places whose grace is over; return whether there were any."""
        by_end, count = self._by_end, self.count
        while by_end and by_end[0][0] < now_ns:
            place = heappop(by_end)[2]
            if place.amount:
                self._release(place, place.amount)
        return self.count < count

    def due(self, claimant: str, now_ns: int) -> int:
        """Return what is held for a claimant to be claimed now."""
        own = self._by_claimant.get(claimant)
        if own is None:
            return 0
        return sum(place.amount for place in own if place.due_ns <= now_ns)

    def give_up(self, place: Place) -> None:
        """Hold a place no longer."""
        self._release(place, place.amount)

    def claim(self, claimant: str, amount: int, now_ns: int) -> None:
        """Use up to `amount` of what is due for a claimant, the earliest first."""
        for place in list(self._by_claimant.get(claimant, ())):
            if not amount or place.due_ns > now_ns:
                return
            used = min(amount, place.amount)
            amount -= used
            self._release(place, used)

    def _release(self, place: Place, amount: int) -> None:
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


def _due(place: Place) -> int:
    return place.due_ns
