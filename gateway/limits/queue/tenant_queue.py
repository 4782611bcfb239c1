"""Orders the tenants that have requests waiting at one level, and finds the one with the smallest counter whose request
fits.

Counters grow while requests run, so entries hold the counter at the time they were made and are corrected when they
reach the front: a lower bound that is too low is updated, and the search continues. A tree over the size classes
answers "the smallest counter among those of at most this size" in O(height).
"""

import heapq
from itertools import count
from math import inf
from typing import Final

from gateway.limits.queue.sizes import CLASSES, size_class
from gateway.limits.queue.tenant import LevelQueue

# Counter, sequence number of the first request, unique number of the entry, size class, owner.
Entry = tuple[float, int, int, int, LevelQueue | None]
_NOBODY: Final[Entry] = (inf, 0, 0, 0, None)


class TenantQueue:
    """Tenants by counter and by the size of their first request. All operations are O(log n), corrections amortised."""

    def __init__(self) -> None:
        self._tree: list[Entry] = [_NOBODY] * (2 * CLASSES)
        self._heaps: dict[int, list[Entry]] = {}
        self._members: dict[int, int] = {}
        self._serial = count(1)
        self.members = 0

    def put(self, level_queue: LevelQueue, sequence: int, tokens: int) -> None:
        """Add a tenant with this first request, or record that its first request or its counter has changed."""
        old = level_queue.entry
        counter = level_queue.tenant.counter(level_queue.level)
        if old is not None:
            if old[1] == sequence and old[0] <= counter:
                return
            self.remove(level_queue)
        size = size_class(tokens)
        level_queue.entry = entry = (counter, sequence, next(self._serial), size, level_queue)
        self.members += 1
        self._members[size] = self._members.get(size, 0) + 1
        heap = self._heaps.setdefault(size, [])
        heapq.heappush(heap, entry)
        if heap[0] is entry:
            self._mend(size, heap)

    def remove(self, level_queue: LevelQueue) -> None:
        """Remove a tenant; a second call does nothing."""
        entry = level_queue.entry
        if entry is None:
            return
        level_queue.entry = None
        size = entry[3]
        self.members -= 1
        self._members[size] -= 1
        heap = self._heaps[size]
        if heap[0] is entry:
            heapq.heappop(heap)
            self._mend(size, heap)
        elif len(heap) > 2 * self._members[size] + 8:
            heap[:] = [one for one in heap if one[4] is not None and one[4].entry is one]
            heapq.heapify(heap)
            self._mend(size, heap)

    def best(self, largest: int | None = None) -> LevelQueue | None:
        """Return the tenant with the smallest counter up to this size class; among equals, the one with the older
        request.
        """
        if not self.members or (largest is not None and largest < 0):
            return None
        while True:
            entry = self._tree[1] if largest is None else self._lowest(largest)
            level_queue = entry[4]
            if level_queue is None:
                return None
            heap = self._heaps[entry[3]]
            if level_queue.entry is not entry:
                heapq.heappop(heap)
            else:
                counter = level_queue.tenant.counter(level_queue.level)
                if counter <= entry[0]:
                    return level_queue
                level_queue.entry = fresh = (counter, entry[1], next(self._serial), entry[3], level_queue)
                heapq.heapreplace(heap, fresh)
            self._mend(entry[3], heap)

    def _lowest(self, largest: int) -> Entry:
        tree = self._tree
        node = largest + CLASSES
        lowest = tree[node]
        while node > 1:
            if node & 1 and tree[node - 1] < lowest:
                lowest = tree[node - 1]
            node >>= 1
        return lowest

    def _mend(self, size: int, heap: list[Entry]) -> None:
        """Carry the first entry of a size class up the tree."""
        tree = self._tree
        node = size + CLASSES
        tree[node] = heap[0] if heap else _NOBODY
        while node > 1:
            left, right = tree[node & ~1], tree[node | 1]
            node >>= 1
            lowest = left if left < right else right
            if tree[node] is lowest:
                break
            tree[node] = lowest
