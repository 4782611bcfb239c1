"""The cached answers of this process, partitioned by tenant: bounded in time and bytes, least recently used evicted
first.
"""

import heapq
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec

from gateway.cache.cached_answer import CachedAnswer

# What an entry takes beyond its packed answer: its key, its place in the order and in the line of what ends.
ENTRY_BYTES: Final = 400
READ_BYTES: Final = 1000  # and more once it is read: the objects that it is made of
MEANING_BYTES: Final = 2300  # for an answer that is found by meaning: a vector of 1,536 bytes, its array and places
_MOST_BYTES_PER_CHARACTER: Final = 4
_FREED_SHARE: Final = 100  # room is made by the hundredth part of the whole, so that shelves are compared seldom
_STALE_ENDS: Final = 1024
_SWEPT_AT_ONCE: Final = 16  # at a look, which must not wait for more than that


def text_bytes(text: str) -> int:
    """Return the maximum number of bytes that a question's text takes in memory."""
    return _MOST_BYTES_PER_CHARACTER * len(text)


class Entry(msgspec.Struct, eq=False, gc=False):
    """A packed answer, and the bytes stored elsewhere because of it. Times are monotonic nanoseconds.

    Once returned, it is stored unpacked, with the header lines that name the model.
    """

    packed: bytes
    kept_at_ns: int
    ends_at_ns: int
    size_bytes: int
    answer: CachedAnswer | None = None
    served_lines: bytes = b""


class _Partition:
    """One tenant's cached answers, least recently used first."""

    __slots__ = ("entries", "size_bytes")

    def __init__(self) -> None:
        self.entries: OrderedDict[bytes, Entry] = OrderedDict()
        self.size_bytes = 0


class AnswerStore:
    """A bounded store of packed answers by tenant and key. `on_gone` is called for each that is removed."""

    def __init__(self, max_bytes: int, on_gone: Callable[[str, bytes], None] | None = None) -> None:
        self.max_bytes = max_bytes
        self._on_gone = on_gone
        self._partitions: dict[str, _Partition] = {}
        self._ends: list[tuple[int, str, bytes]] = []  # a heap; what has gone before its time is still in it
        self.size_bytes = 0
        self.entries = 0
        self.evicted = 0  # for want of room

    def get(self, tenant: str, key: bytes, now_ns: int, max_age_ns: int | None = None) -> Entry | None:
        """Return a tenant's answer; `None` if it has expired or is older than the caller accepts."""
        if self._ends and self._ends[0][0] <= now_ns:
            self.sweep(now_ns, _SWEPT_AT_ONCE)
        partition = self._partitions.get(tenant)
        entry = None if partition is None else partition.entries.get(key)
        if partition is None or entry is None:
            return None
        if now_ns >= entry.ends_at_ns:
            self.remove(tenant, key)
            return None
        if max_age_ns is not None and now_ns - entry.kept_at_ns > max_age_ns:
            return None
        partition.entries.move_to_end(key)
        return entry

    def put(self, tenant: str, key: bytes, packed: bytes, now_ns: int, ttl_ns: int, *, beside_bytes: int = 0) -> bool:
        """Store an answer, replacing the key's previous one; return whether there is room for it.

        `beside_bytes` is what is stored elsewhere for it until `on_gone` is called.
        """
        self.sweep(now_ns)
        self.remove(tenant, key)
        size = len(packed) + beside_bytes + ENTRY_BYTES
        entry = Entry(packed, now_ns, now_ns + ttl_ns, size)
        if size > self.max_bytes:
            return False
        if self.size_bytes + size > self.max_bytes:
            self._make_room(size)
        partition = self._partitions.setdefault(tenant, _Partition())
        partition.entries[key] = entry
        partition.size_bytes += size
        self.size_bytes += size
        self.entries += 1
        heapq.heappush(self._ends, (entry.ends_at_ns, tenant, key))
        return True

    def note_read(self, tenant: str, entry: Entry, answer: CachedAnswer, served_lines: bytes) -> None:
        """Store a tenant's answer unpacked, which takes a little more memory and saves parsing it again."""
        entry.answer, entry.served_lines, entry.packed = answer, served_lines, b""
        entry.size_bytes += READ_BYTES
        self._partitions[tenant].size_bytes += READ_BYTES
        self.size_bytes += READ_BYTES
        if self.size_bytes > self.max_bytes:
            self._make_room(0)

    def remove(self, tenant: str, key: bytes) -> None:
        """Remove an answer if it exists."""
        partition = self._partitions.get(tenant)
        entry = None if partition is None else partition.entries.pop(key, None)
        if partition is None or entry is None:
            return
        partition.size_bytes -= entry.size_bytes
        self.size_bytes -= entry.size_bytes
        self.entries -= 1
        if not partition.entries:
            del self._partitions[tenant]
        if self._on_gone is not None:
            self._on_gone(tenant, key)

    def sweep(self, now_ns: int, most: int | None = None) -> None:
        """Remove at most `most` expired answers, so that memory is released soon after they expire."""
        ends = self._ends
        left = len(ends) if most is None else most
        while left and ends and ends[0][0] <= now_ns:
            left -= 1
            ends_at_ns, tenant, key = heapq.heappop(ends)
            partition = self._partitions.get(tenant)
            entry = None if partition is None else partition.entries.get(key)
            if entry is not None and entry.ends_at_ns == ends_at_ns:
                self.remove(tenant, key)
        if len(ends) > 2 * self.entries + _STALE_ENDS:
            self._ends = [
                (entry.ends_at_ns, tenant, key)
                for tenant, partition in self._partitions.items()
                for key, entry in partition.entries.items()
            ]
            heapq.heapify(self._ends)

    def _make_room(self, size: int) -> None:
        """Evict until there is room: one after another, each the least recently used of the tenant that has the most.

        So no tenant's answers evict those of another that has fewer.
        """
        wanted = max(self.max_bytes - max(size, self.max_bytes // _FREED_SHARE), 0)
        largest = [(-partition.size_bytes, tenant) for tenant, partition in self._partitions.items()]
        heapq.heapify(largest)
        while self.size_bytes > wanted:
            tenant = largest[0][1]
            partition = self._partitions[tenant]
            self.evicted += 1
            self.remove(tenant, next(iter(partition.entries)))
            if partition.entries:
                heapq.heapreplace(largest, (-partition.size_bytes, tenant))
            else:
                heapq.heappop(largest)
