"""The KV cache of a simulated replica: the number of blocks in use, and the cached prefixes.

Prefixes are cached in units of several blocks, as a workload names them. Unused blocks are evicted least recently used
first, a prefix from its end, as in the engines.
"""

from collections import OrderedDict
from collections.abc import Sequence


class SimulatedCache:
    """A count of blocks, and prefixes by key. Held and cached blocks together never exceed `total`."""

    __slots__ = ("_idle", "_references", "block_tokens", "held", "news", "peak", "total", "unit_blocks", "unit_tokens")

    def __init__(self, total: int, block_tokens: int, unit_tokens: int) -> None:
        self.total = total
        self.block_tokens = block_tokens
        self.unit_blocks = max(unit_tokens // block_tokens, 1)
        self.unit_tokens = self.unit_blocks * block_tokens
        self.held = 0
        self.peak = 0
        self._references: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()
        self.news: list[tuple[bool, list[int]]] = []  # (stored, keys) since the last `take_news`

    @property
    def free(self) -> int:
        """Return the number of blocks that can be allocated, including cached blocks that would be evicted."""
        return self.total - self.held

    @property
    def cached_blocks(self) -> int:
        """Return the number of blocks that are cached but not in use."""
        return len(self._idle) * self.unit_blocks

    def blocks_for(self, tokens: int) -> int:
        """Return the number of blocks that this many tokens need."""
        return -(-tokens // self.block_tokens)

    def hits(self, keys: Sequence[int], tokens: int) -> int:
        """Return the number of cached units of a prompt; at least its last token remains to compute."""
        found = 0
        for key in keys[: (tokens - 1) // self.unit_tokens]:
            if key not in self._references and key not in self._idle:
                break
            found += 1
        return found

    def open(self, keys: Sequence[int], tokens: int, spare: int) -> int | None:
        """Allocate the blocks of a prompt; return the units hit, or `None`, without a change, if blocks are missing.

        As in an engine's block manager, the missing blocks, `spare` ones and the unused hit ones must be free.
        """
        if not keys:
            missing = -(-tokens // self.block_tokens)
            if missing + spare > self.total - self.held:
                return None
            self.take(missing)
            return 0
        units = self.hits(keys, tokens)
        idle = sum([key in self._idle for key in keys[:units]]) * self.unit_blocks
        missing = self.blocks_for(tokens) - units * self.unit_blocks
        if missing + max(spare, idle) > self.free:
            return None
        for key in keys[:units]:
            if key in self._idle:
                del self._idle[key]
                self._references[key] = 1
            else:
                self._references[key] += 1
        self.take(missing + idle)
        return units

    def take(self, blocks: int) -> None:
        """Allocate that many blocks, which must be free."""
        self.held += blocks
        if self.held > self.peak:
            self.peak = self.held
        idle = self._idle
        if idle and self.held + len(idle) * self.unit_blocks > self.total:
            removed = []
            while idle and self.held + len(idle) * self.unit_blocks > self.total:
                removed.append(idle.popitem(last=False)[0])
            self.news.append((False, removed))

    def publish(self, keys: Sequence[int]) -> list[int]:
        """Add computed units to the cache; return those that are shared from now on, the others remain private."""
        new = [key for key in keys if key not in self._references and key not in self._idle]
        for key in new:
            self._references[key] = 1
        if new:
            self.news.append((True, new))
        return new

    def give_back(self, private_blocks: int, shared: Sequence[int]) -> None:
        """Release blocks; shared units that no other sequence uses remain cached."""
        self.held -= private_blocks
        references = self._references
        for key in reversed(shared):
            left = references[key] - 1
            if left:
                references[key] = left
            else:
                del references[key]
                self._idle[key] = None
                self.held -= self.unit_blocks

    def take_news(self) -> list[tuple[bool, list[int]]]:
        """Return the changes of cached units since the last call, as (stored, keys)."""
        news, self.news = self.news, []
        return news

    def clear(self) -> None:
        """Empty the cache, as when a replica is lost."""
        self.held = 0
        self._references.clear()
        self._idle.clear()
        self.news.clear()
