"""Which replicas hold which blocks: one integer of bits for every block, at about 80 bytes a block.

Keys are 60 bits of a block's hash, which make the smallest integers that Python has for them; equal sets of holders
are one object. The map lies in 64 parts, so that none of them is long to grow or to sweep.
"""

import sys
from collections.abc import Iterable
from typing import Final

KEY_MASK: Final = (1 << 60) - 1
PARTS: Final = 64
_PART_MASK: Final = PARTS - 1
_MAX_SHARED: Final = 65_536
_KEY_BYTES: Final = 32  # of an integer below 2**60, as the allocator gives it


class BlockMap:
    """Holders of blocks, as bits. Keys are below 2**60."""

    __slots__ = ("_shared", "is_used", "parts")

    def __init__(self) -> None:
        self.parts: list[dict[int, int]] = [{} for _ in range(PARTS)]
        self.is_used = False  # ever: one look saves asking an empty map
        self._shared: dict[int, int] = {}

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    @property
    def bytes(self) -> int:
        """Return the memory that it takes: its tables, its keys, and the sets of holders that they share."""
        tables = sum([sys.getsizeof(part) for part in self.parts]) + sys.getsizeof(self._shared)
        return tables + _KEY_BYTES * len(self) + sum([sys.getsizeof(bits) for bits in self._shared])

    def holders(self, key: int) -> int:
        """Return the bits of who holds a block."""
        return self.parts[key & _PART_MASK].get(key, 0)

    def add(self, keys: Iterable[int], bit: int) -> None:
        """Record that `bit` holds blocks."""
        self.is_used = True
        parts, share = self.parts, self._share
        alone = share(bit)
        for key in keys:
            part = parts[key & _PART_MASK]
            held = part.setdefault(key, alone)
            if not held & bit:
                part[key] = share(held | bit)

    def remove(self, keys: Iterable[int], bit: int) -> None:
        """Record that `bit` holds blocks no more; what it never held is passed over."""
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
        """Remove bits from one part: the maps' parts are numbered alike, from 0 to 63."""
        part = self.parts[number]
        touched = [key for key, held in part.items() if held & stale]
        for key in touched:
            rest = part[key] & ~stale
            if rest:
                part[key] = self._share(rest)
            else:
                del part[key]
        if touched and not part:
            self.parts[number] = {}  # an emptied dict keeps its table

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
