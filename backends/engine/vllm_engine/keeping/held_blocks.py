"""vLLM's pool of KV blocks as who keeps prefixes sees it. A pin is a reference, as a request's own are."""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

_FRESH_NS: Final = 200_000_000  # a count of blocks that nobody else holds is used for so long: others count down too


class Block(Protocol):
    """vLLM's KVCacheBlock."""

    ref_cnt: int
    block_hash: bytes | None  # with four bytes of its group's number at the end


class BlockPool(Protocol):
    """vLLM's BlockPool (vllm/v1/core/block_pool.py), as far as it is used."""

    num_gpu_blocks: int

    def get_cached_block(self, block_hash: Any, kv_cache_group_ids: list[int]) -> Sequence[Any] | None:
        """Return the block under a hash, `None`: it is not cached."""

    def touch(self, blocks: Sequence[Any]) -> None:
        """Add a reference."""

    def free_blocks(self, ordered_blocks: Any) -> None:
        """Remove a reference; what nobody holds may be evicted, the first given first."""

    def get_num_free_blocks(self) -> int:
        """Count what could be allocated."""


@dataclass(slots=True)
class HeldBlocks:
    """Pins by vLLM's own block hashes. One group of layers only."""

    pool: BlockPool
    block_size: int
    now_ns: Callable[[], int] = time.monotonic_ns
    _pinned: dict[bytes, Any] = field(default_factory=dict)
    _counted: tuple[int, int] = (0, 0)  # when, how many

    @property
    def total(self) -> int:
        """Return how many blocks there are; the one that vLLM never hands out is none."""
        return self.pool.num_gpu_blocks - 1

    @property
    def free(self) -> int:
        """Return how many blocks could be allocated now."""
        return self.pool.get_num_free_blocks()

    def pin(self, key: bytes) -> bool:
        """Keep a cached block from eviction until `unpin`; `False` when it is not cached."""
        found = self.pool.get_cached_block(key, [0])
        if not found:
            return False
        self.pool.touch(found)
        self._pinned[key] = found[0]
        self._counted = (0, 0)
        return True

    def unpin(self, key: bytes) -> None:
        """Undo one `pin`. Raises KeyError when the key is not pinned."""
        self.pool.free_blocks([self._pinned.pop(key)])
        at_ns, count = self._counted
        self._counted = (at_ns, max(count - 1, 0))

    def is_only_pinned(self, key: bytes) -> bool:
        """Return whether nobody but the pin holds a block, so that `unpin` would free it."""
        return bool(self._pinned[key].ref_cnt == 1)

    def only_pinned(self, but: Collection[bytes] = ()) -> int:
        """Count the blocks that `unpin` would free, other than those under the keys `but`; as of a moment ago."""
        now = self.now_ns()
        at_ns, count = self._counted
        if not at_ns or now - at_ns > (_FRESH_NS if count else _FRESH_NS // 10):
            count = sum(1 for block in self._pinned.values() if block.ref_cnt == 1)
            self._counted = (now, count)
        return count - sum(1 for key in but if key in self._pinned and self.is_only_pinned(key))
