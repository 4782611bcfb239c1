"""The cached blocks of a pool's replicas, as far as known, to find how much of a prompt each has cached.

Three layers are combined. *Exact*: blocks that replicas report by events. *Expected*: blocks of requests whose prompt
is not computed yet, so that a burst finds them. *Assumed*: blocks that were computed on replicas without events; the
older half is dropped as a whole when the newer one is full, which approximates least recently used. Memory is bounded:
at the maximum number of blocks, new ones are refused.
"""

from collections.abc import Sequence
from typing import Final

from algorithms.routing.block_map import KEY_MASK, PARTS, BlockMap

MAX_BLOCKS: Final = 4_000_000
_ASSUMED_BLOCKS: Final = 200_000
_PART_MASK: Final = PARTS - 1


class PrefixIndex:
    """The caches of a pool's replicas. A replica is identified by a bit, which `join` returns."""

    def __init__(self, max_blocks: int = MAX_BLOCKS, assumed_blocks: int = _ASSUMED_BLOCKS) -> None:
        """`assumed_blocks` is the maximum number of blocks of all replicas without events together."""
        self.max_blocks = max_blocks
        self.assumed_blocks = assumed_blocks
        self.refused_blocks = 0
        self._exact = BlockMap()
        self._expected = BlockMap()
        self._newer = BlockMap()
        self._older = BlockMap()
        self._exact_blocks = 0  # as of the last count
        self._newer_blocks = 0
        self._live = 0  # bits of replicas
        self._stale = 0  # bits of removed replicas, which may still be in the maps
        self._sweeping = 0  # bits that the current sweep removes
        self._next_part = 0  # part of the maps to sweep next

    # replicas

    def join(self) -> int:
        """Return an unused bit for a replica without known blocks."""
        bit = 1
        taken = self._live | self._stale
        while taken & bit:
            bit <<= 1
        self._live |= bit
        return bit

    def leave(self, bit: int) -> None:
        """Forget all blocks of a replica at once. Its bit is reused after `sweep` has removed it from the maps."""
        if self._live & bit:
            self._live &= ~bit
            self._stale |= bit

    def sweep(self) -> bool:
        """Do a part of the clean-up after `leave`, which takes some hundred microseconds; return whether
        more is left.
        """
        if not self._stale:
            return False
        if not self._sweeping:
            self._sweeping, self._next_part = self._stale, 0
        for one in (self._exact, self._expected, self._newer, self._older):
            one.sweep(self._next_part, self._sweeping)
        self._next_part += 1
        if self._next_part == PARTS:
            self._stale &= ~self._sweeping
            self._sweeping = 0
            self._exact_blocks = len(self._exact)
        return bool(self._stale)

    # what they hold

    def stored(self, bit: int, hashes: Sequence[int]) -> None:
        """Record blocks that a replica reports as cached, by their hashes."""
        self._exact_blocks += len(hashes)
        if self._exact_blocks > self.max_blocks:
            self._exact_blocks = len(self._exact) + len(hashes)  # recount: some were known, some were removed
            if self._exact_blocks > self.max_blocks:
                self._exact_blocks -= len(hashes)
                self.refused_blocks += len(hashes)
                return
        self._exact.add([one & KEY_MASK for one in hashes], bit)

    def removed(self, bit: int, hashes: Sequence[int]) -> None:
        """Record blocks that a replica reports as evicted."""
        self._exact.remove([one & KEY_MASK for one in hashes], bit)

    def expect(self, bit: int, keys: Sequence[int]) -> None:
        """Record blocks that a replica is about to compute."""
        self._expected.add(keys, bit)

    def unexpect(self, bit: int, keys: Sequence[int]) -> None:
        """Undo `expect`: the blocks were computed and reported, or will not be computed."""
        self._expected.remove(keys, bit)

    def assume(self, bit: int, keys: Sequence[int]) -> None:
        """Record blocks that a replica without events computes or uses now."""
        self._newer.add(keys, bit)
        self._newer_blocks += len(keys)
        if self._newer_blocks > self.assumed_blocks // 2:
            self._newer_blocks = len(self._newer)
            if self._newer_blocks > self.assumed_blocks // 2:
                self._older, self._newer, self._newer_blocks = self._newer, BlockMap(), 0

    def unassume(self, bit: int, keys: Sequence[int]) -> None:
        """Undo `assume`: the blocks were not computed."""
        self._newer.remove(keys, bit)
        self._older.remove(keys, bit)

    # how much of a prompt

    def match(self, keys: Sequence[int], block_tokens: int = 1) -> list[tuple[int, int]]:
        """Return how much of a prompt's beginning the replicas have cached: (bits, tokens) pairs, fewest tokens first.

        A replica with a block is assumed to have those before it too, because keys are chained and engines evict a
        prefix from its end. So the ends are found by binary search: a look-up in a large map is slow, and a prompt of
        100 blocks needs eight of them, one of 8,000 blocks fourteen.
        """
        found: list[tuple[int, int]] = []
        if not keys:
            return found
        key = keys[0]
        part = key & _PART_MASK
        used = [one.parts for one in (self._exact, self._expected, self._newer, self._older) if one.is_used]
        bits = 0
        for parts in used:
            bits |= parts[part].get(key, 0)
        bits &= self._live
        good = 0  # index of the last block that all of `bits` are known to have
        ahead = [(len(keys), 0)]  # indexes checked beyond it, nearest last, with the replicas that have the block
        while bits:
            bad, rest = ahead[-1]
            rest &= bits
            while (middle := (good + bad) >> 1) > good:
                key = keys[middle]
                part = key & _PART_MASK
                held = 0
                for parts in used:
                    held |= parts[part].get(key, 0) & bits
                    if held == bits:
                        break
                if held == bits:
                    good = middle
                else:
                    bad, rest = middle, held
                    ahead.append((middle, held))
            found.append((bits & ~rest, bad * block_tokens))
            bits = rest
            while bits and ahead[-1][1] & bits == bits:
                good = ahead.pop()[0]
        return found

    # for health and tests

    @property
    def blocks(self) -> int:
        """Return the number of known blocks in all layers."""
        return sum(map(len, (self._exact, self._expected, self._newer, self._older)))

    @property
    def bytes(self) -> int:
        """Return the memory used by all layers."""
        return sum([one.bytes for one in (self._exact, self._expected, self._newer, self._older)])

    @property
    def live(self) -> int:
        """Return the bits of all replicas."""
        return self._live
