"""Which replicas have which blocks cached: one integer bit set per block, at about 80 bytes per block.

Keys are 60 bits of a block's hash, the largest that fit Python's smallest integers; equal bit sets are one object. The
map is split into 64 parts, so that none takes long to grow or sweep.
"""

import sys
from collections.abc import Iterable
from typing import Final

KEY_MASK: Final = (1 << 60) - 1
PARTS: Final = 64
_PART_MASK: Final = PARTS - 1
_MAX_SHARED: Final = 65_536
_KEY_BYTES: Final = 32  # memory of an integer below 2**60


class BlockMap:
    """For each block, the set of replicas that have it, as bits. Keys are below 2**60."""

    __slots__ = ("_shared", "is_used", "parts")

    def __init__(self) -> None:
        self.parts: list[dict[int, int]] = [{} for _ in range(PARTS)]
        self.is_used = False  # whether anything was ever added, to skip look-ups in an unused map
        self._shared: dict[int, int] = {}

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    @property
    def bytes(self) -> int:
        """Return the memory used: tables, keys, and the shared bit sets."""
        tables = sum([sys.getsizeof(part) for part in self.parts]) + sys.getsizeof(self._shared)
        return tables + _KEY_BYTES * len(self) + sum([sys.getsizeof(bits) for bits in self._shared])

    def holders(self, key: int) -> int:
        """Return the bits of the replicas that have a block."""
        return self.parts[key & _PART_MASK].get(key, 0)

    def add(self, keys: Iterable[int], bit: int) -> None:
        """Record that replica `bit` has blocks."""
        self.is_used = True
        parts, share = self.parts, self._share
        alone = share(bit)
        for key in keys:
            part = parts[key & _PART_MASK]
            held = part.setdefault(key, alone)
            if not held & bit:
                part[key] = share(held | bit)

    def remove(self, keys: Iterable[int], bit: int) -> None:
        """Record that replica `bit` no longer has blocks; those it did not have are skipped."""
        parts, share = self.parts, self._share
        for key in keys:
            part = parts[key & _PART_MASK]
            held = part.get(key, 0)
            if held & bit:
                rest = held & ~bit
                if rest:
                    part[key] = share(rest)
                else:
                    del part[key]

    def sweep(self, number: int, stale: int) -> None:
        """Remove the bits `stale` from part `number` (0 to 63)."""
        part = self.parts[number]
        touched = [key for key, held in part.items() if held & stale]
        for key in touched:
            rest = part[key] & ~stale
            if rest:
                part[key] = self._share(rest)
            else:
                del part[key]
        if touched and not part:
            self.parts[number] = {}  # an emptied dict would keep its memory

    def _share(self, bits: int) -> int:
        if bits < 257:  # the interpreter shares these itself
            return bits
        shared = self._shared
        found = shared.get(bits)
        if found is None:
            if len(shared) >= _MAX_SHARED:
                shared.clear()
            found = shared[bits] = bits
        return found
