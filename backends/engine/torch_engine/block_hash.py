"""The keys of one sequence's KV blocks, from `contracts.engine.block_keys`: equal keys mean equal tokens up
to there.
"""

from collections.abc import Sequence

import numpy as np

from contracts.engine.block_keys import KEY_BYTES, chain, public_hash, root_key

__all__ = ["KEY_BYTES", "BlockKeys", "public_hash", "root_key"]


class BlockKeys:
    """The keys of a sequence's full blocks, extended as tokens arrive."""

    __slots__ = ("_block_size", "_root", "keys")

    def __init__(self, root: bytes, block_size: int) -> None:
        self._root = root
        self._block_size = block_size
        self.keys: list[bytes] = []

    def extend(self, token_ids: Sequence[int]) -> None:
        """Add the keys of blocks that are full now. `token_ids` is the whole sequence; ids are below 2**32."""
        size = self._block_size
        first, last = len(self.keys), len(token_ids) // size
        if last <= first:
            return
        packed = np.asarray(token_ids[first * size : last * size], dtype="<u4").tobytes()
        parent = self.keys[-1] if self.keys else self._root
        self.keys += chain(parent, packed, 4 * size)

    def copy(self) -> "BlockKeys":
        """Return an independent copy for a fork."""
        copied = BlockKeys(self._root, self._block_size)
        copied.keys = list(self.keys)
        return copied
