"""Pins on blocks of vLLM's KV cache. A pin is a reference like the one that a running request has on its blocks."""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

_FRESH_NS: Final = 200_000_000  # how long a count of blocks that only pins reference is reused


class Block(Protocol):
    """vLLM's KVCacheBlock."""

    ref_cnt: int
    block_hash: bytes | None  # with four bytes of its group's number at the end


class BlockPool(Protocol):
    """The methods and fields of vLLM's BlockPool (vllm/v1/core/block_pool.py) that are used here."""

    num_gpu_blocks: int

    def get_cached_block(self, block_hash: Any, kv_cache_group_ids: list[int]) -> Sequence[Any] | None:
        """Return the block with a hash, one per group of layers, or `None` if it is not cached."""

    def touch(self, blocks: Sequence[Any]) -> None:
        """Add a reference to each block."""

    def free_blocks(self, ordered_blocks: Any) -> None:
        """Remove a reference from each block. Blocks without references may be evicted, the first in the list first."""

    def get_num_free_blocks(self) -> int:
        """Count the blocks that could be allocated."""


@dataclass(slots=True)
class HeldBlocks:
    """Pins and unpins blocks by vLLM's block hashes. Works for models with one group of layers only."""

    pool: BlockPool
    block_size: int
    now_ns: Callable[[], int] = time.monotonic_ns
    _pinned: dict[bytes, Any] = field(default_factory=dict)
    _counted: tuple[int, int] = (0, 0)  # time of the last count, and the count

    @property
    def total(self) -> int:
        """Return the number of blocks in the pool, without the one that vLLM reserves as the null block."""
        return self.pool.num_gpu_blocks - 1

    @property
    def free(self) -> int:
        """Return the number of blocks that could be allocated now."""
        return self.pool.get_num_free_blocks()

    def pin(self, key: bytes) -> bool:
        """Protect a cached block from eviction until `unpin`; return `False` if it is not cached."""
        found = self.pool.get_cached_block(key, [0])
        if not found:
            return False
        self.pool.touch(found)
        self._pinned[key] = found[0]
        self._counted = (0, 0)
        return True

    def unpin(self, key: bytes) -> None:
        """Undo one `pin`. Raises KeyError if the key is not pinned."""
        self.pool.free_blocks([self._pinned.pop(key)])
        at_ns, count = self._counted
        self._counted = (at_ns, max(count - 1, 0))

    def is_only_pinned(self, key: bytes) -> bool:
        """Return whether the pin is a block's only reference, so that `unpin` would free it."""
        return bool(self._pinned[key].ref_cnt == 1)

    def only_pinned(self, but: Collection[bytes] = ()) -> int:
        """Count the blocks that `unpin` would free, except those with keys in `but`. The count may be 0.2 s old."""
        now = self.now_ns()
        at_ns, count = self._counted
        if not at_ns or now - at_ns > (_FRESH_NS if count else _FRESH_NS // 10):
            count = sum(1 for block in self._pinned.values() if block.ref_cnt == 1)
            self._counted = (now, count)
        return count - sum(1 for key in but if key in self._pinned and self.is_only_pinned(key))
