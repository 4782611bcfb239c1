"""What a pool's replicas have in their caches, as far as it is known: how much of a prompt each would not compute.

Three layers, asked together. *Exact*: blocks that replicas say they hold, by their events. *Expected*: blocks of
requests that were sent and whose prompt is not computed yet, so that a burst finds them. *Assumed*: blocks that were
sent to be computed if nobody tells of evictions; the older half is forgotten as a whole when the newer is full, which
is nearly the least recently used. The memory is bounded: beyond the most blocks nothing is taken in until some go.
"""

from collections.abc import Sequence
from typing import Final

from algorithms.routing.block_map import KEY_MASK, PARTS, BlockMap

MAX_BLOCKS: Final = 4_000_000
_ASSUMED_BLOCKS: Final = 200_000
_PART_MASK: Final = PARTS - 1


class PrefixIndex:
    """The caches of a pool's replicas. A replica is known here by its bit, which `join` gives."""

    def __init__(self, max_blocks: int = MAX_BLOCKS, assumed_blocks: int = _ASSUMED_BLOCKS) -> None:
        """`assumed_blocks` is what all replicas without events hold together, in blocks."""
        self.max_blocks = max_blocks
        self.assumed_blocks = assumed_blocks
        self.refused_blocks = 0
        self._exact = BlockMap()
        self._expected = BlockMap()
        self._newer = BlockMap()
        self._older = BlockMap()
        self._exact_blocks = 0  # as of the last look
        self._newer_blocks = 0
        self._live = 0  # bits that stand for a replica
        self._stale = 0  # bits that stand for nobody any more, and may still be in the maps
        self._sweeping = 0  # those of them that the sweep in progress takes out
        self._next_part = 0  # of the maps, to sweep

    # replicas

    def join(self) -> int:
        """Return a bit to a replica of which nothing is known yet."""
        bit = 1
        taken = self._live | self._stale
        while taken & bit:
            bit <<= 1
        self._live |= bit
        return bit

    def leave(self, bit: int) -> None:
        """Forget all that a replica holds, at once; its bit is given out again when it is swept from the maps."""
        if self._live & bit:
            self._live &= ~bit
            self._stale |= bit

    def sweep(self) -> bool:
        """Do a small part of what `leave` has left to do, some hundred microseconds; return whether more is left."""
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
        """Record blocks that a replica says it holds, by their hashes."""
        self._exact_blocks += len(hashes)
        if self._exact_blocks > self.max_blocks:
            self._exact_blocks = len(self._exact) + len(hashes)  # some were known, some have gone
            if self._exact_blocks > self.max_blocks:
                self._exact_blocks -= len(hashes)
                self.refused_blocks += len(hashes)
                return
        self._exact.add([one & KEY_MASK for one in hashes], bit)

    def removed(self, bit: int, hashes: Sequence[int]) -> None:
        """Record blocks that a replica says it holds no more."""
        self._exact.remove([one & KEY_MASK for one in hashes], bit)

    def expect(self, bit: int, keys: Sequence[int]) -> None:
        """Record blocks that a replica is about to compute."""
        self._expected.add(keys, bit)

    def unexpect(self, bit: int, keys: Sequence[int]) -> None:
        """Undo what `expect` noted: it is computed, and told of, or never will be."""
        self._expected.remove(keys, bit)

    def assume(self, bit: int, keys: Sequence[int]) -> None:
        """Record blocks that a replica computes or uses just now, and does not tell of."""
        self._newer.add(keys, bit)
        self._newer_blocks += len(keys)
        if self._newer_blocks > self.assumed_blocks // 2:
            self._newer_blocks = len(self._newer)
            if self._newer_blocks > self.assumed_blocks // 2:
                self._older, self._newer, self._newer_blocks = self._newer, BlockMap(), 0

    def unassume(self, bit: int, keys: Sequence[int]) -> None:
        """Undo what `assume` noted: they were not computed."""
        self._newer.remove(keys, bit)
        self._older.remove(keys, bit)

    # how much of a prompt

    def match(self, keys: Sequence[int], block_tokens: int = 1) -> list[tuple[int, int]]:
        """Return who holds how much of a prompt's beginning: (bits, tokens) pairs, the fewest first, a block's being 1.

        Who holds a block is taken to hold those before it, as keys are chained and engines evict a prefix from its end.
        So the ends are searched for by halves: a look at a block out of a million is a walk to far memory, and a prompt
        of 100 blocks takes eight of them, one of 8,000 fourteen.
        """
        found: list[tuple[int, int]] = []
        if not keys:
            return found
        exact, expected = self._exact.parts, self._expected.parts
        assumed = None
        key = keys[0]
        part = key & _PART_MASK
        bits = exact[part].get(key, 0) | expected[part].get(key, 0)
        if self._newer.is_used or self._older.is_used:
            assumed = (self._newer.parts, self._older.parts)
            for parts in assumed:
                bits |= parts[part].get(key, 0)
        bits &= self._live
        good = 0  # the last place that all of `bits` are known to hold
        ahead = [(len(keys), 0)]  # places looked at beyond it, the nearest last, and who holds the block there
        while bits:
            bad, rest = ahead[-1]
            rest &= bits
            while (middle := (good + bad) >> 1) > good:
                key = keys[middle]
                held = exact[key & _PART_MASK].get(key, 0) & bits
                if held != bits:
                    part = key & _PART_MASK
                    held |= expected[part].get(key, 0) & bits
                    if assumed:
                        for parts in assumed:
                            held |= parts[part].get(key, 0) & bits
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
        """Return the number of blocks that are known, of all layers."""
        return sum(map(len, (self._exact, self._expected, self._newer, self._older)))

    @property
    def bytes(self) -> int:
        """Return the memory that all layers take."""
        return sum([one.bytes for one in (self._exact, self._expected, self._newer, self._older)])

    @property
    def live(self) -> int:
        """Return the bits that stand for replicas."""
        return self._live
