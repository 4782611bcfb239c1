"""The paged keys and values of all layers: one tensor, addressed by slot (block number times block size
plus offset).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from backends.engine.torch_engine.block_manager import BLOCK_SIZE


@dataclass(frozen=True, slots=True)
class KvShape:
    """The shape of one token's keys and values: layers, KV heads and head size."""

    layers: int
    heads: int
    head_size: int
    dtype: torch.dtype

    @property
    def token_bytes(self) -> int:
        """Return the bytes of one token: keys and values of all layers."""
        return 2 * self.layers * self.heads * self.head_size * self.dtype.itemsize


class KvPool:
    """Keys and values as [2, layer, slot, head, size]; a slot is contiguous within a layer."""

    def __init__(self, shape: KvShape, blocks: int, device: torch.device) -> None:
        self.shape = shape
        self.blocks = blocks
        self.data = torch.zeros(
            2, shape.layers, blocks * BLOCK_SIZE, shape.heads, shape.head_size, dtype=shape.dtype, device=device
        )
        self._offsets = torch.arange(BLOCK_SIZE, device=device)

    def slots(self, table: Sequence[int], end: int, start: int = 0) -> torch.Tensor:
        """Return the slots of positions `start` to `end` of a sequence with the block table `table`."""
        first = start // BLOCK_SIZE
        blocks = torch.tensor(table[first : -(-end // BLOCK_SIZE)], dtype=torch.long, device=self.data.device)
        slots = (blocks[:, None] * BLOCK_SIZE + self._offsets).view(-1)
        return slots[start - first * BLOCK_SIZE : end - first * BLOCK_SIZE]

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy whole blocks; `pairs` are (from, to)."""
        paged = self.data.view(2, self.shape.layers, self.blocks, BLOCK_SIZE, self.shape.heads, self.shape.head_size)
        for source, target in pairs:
            paged[:, :, target] = paged[:, :, source]
