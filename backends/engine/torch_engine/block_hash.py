"""Names of KV blocks: a chained digest over token ids, so that equal prefixes of one tenant share blocks.

The first block's key mixes in the tenant's salt, the adapter and the images' digests; each later one chains on its
parent, so equal keys mean equal content from the first token on. Keys never leave the engine; what KV events carry
are their low 64 bits.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import numpy as np

KEY_BYTES: Final = 16  # wide enough that tenants cannot search for each other's keys


def root_key(salt: str = "", adapter: str = "", images: Sequence[bytes] = ()) -> bytes:
    """Give the parent of a first block. Every part is preceded by its length, so that no two lists run together."""
    digest = blake2b(digest_size=KEY_BYTES)
    for part in (salt.encode(), adapter.encode(), *images):
        digest.update(len(part).to_bytes(4, "little"))
        digest.update(part)
    return digest.digest()


def public_hash(key: bytes) -> int:
    """Give the unsigned 64-bit hash by which events and routers know a block."""
    return int.from_bytes(key[:8], "little")


class BlockKeys:
    """The keys of one sequence's full blocks, extended as tokens arrive."""

    __slots__ = ("_block_size", "_root", "keys")

    def __init__(self, root: bytes, block_size: int) -> None:
        self._root = root
        self._block_size = block_size
        self.keys: list[bytes] = []

    def extend(self, token_ids: Sequence[int]) -> None:
        """Add the keys of blocks that `token_ids` (the whole sequence) now fills. Ids are below 2**32."""
        size = self._block_size
        first, last = len(self.keys), len(token_ids) // size
        if last <= first:
            return
        packed = np.asarray(token_ids[first * size : last * size], dtype="<u4").tobytes()
        parent = self.keys[-1] if self.keys else self._root
        for start in range(0, len(packed), 4 * size):
            parent = blake2b(packed[start : start + 4 * size], digest_size=KEY_BYTES, key=parent).digest()
            self.keys.append(parent)

    def copy(self) -> "BlockKeys":
        """Give an independent copy for a fork."""
        copied = BlockKeys(self._root, self._block_size)
        copied.keys = list(self.keys)
        return copied
