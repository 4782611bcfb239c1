"""Runs the model over one step's rows: packs their tokens, prepares attention, and returns logits."""

from collections.abc import Sequence as Items
from dataclasses import dataclass

import torch

from backends.engine.torch_engine.adapters import AdapterSet
from backends.engine.torch_engine.attention import DecodeGroup, Segment, StepLayout
from backends.engine.torch_engine.block_manager import BLOCK_SIZE, BlockManager
from backends.engine.torch_engine.decode_buffer import DecodeBuffer
from backends.engine.torch_engine.kv_pool import KvPool
from backends.engine.torch_engine.model_loader import LoadedModel
from backends.engine.torch_engine.sequence import Row, Sequence


@dataclass(slots=True)
class _Packed:
    """A step's tokens, concatenated in the order of computation."""

    rows: list[Row]
    ids: list[int]
    positions: list[int]
    last: list[int]  # per row: the index of its last token


class ModelRunner:
    """Owns the tensors of one model. Used by one thread only."""

    def __init__(
        self, loaded: LoadedModel, pool: KvPool, buffer: DecodeBuffer, blocks: BlockManager, adapters: AdapterSet
    ) -> None:
        self._loaded = loaded
        self._pool = pool
        self._buffer = buffer
        self._blocks = blocks
        self._adapters = adapters
        self._device = loaded.device
        self._counting = torch.arange(loaded.context_tokens + 1, device=self._device)

    @torch.inference_mode()
    def execute(self, rows: Items[Row]) -> tuple[list[Row], torch.Tensor]:
        """Compute a step. Return the rows that sample, and their logits [rows, vocabulary] in float32.

        Afterwards every block that these rows have filled is in the pool.
        """
        decoding, others = self._sort(rows)
        packed = _pack([*decoding, *others])
        layout = self._layout(decoding, others)
        self._adapters.select([(row.sequence.request.submit.adapter, row.count) for row in packed.rows])
        sampling = [place for place, row in enumerate(packed.rows) if row.samples]
        keep = [packed.last[place] for place in sampling] or [0]
        logits = self._loaded.module(
            input_ids=torch.tensor([packed.ids], device=self._device),
            position_ids=torch.tensor([packed.positions], device=self._device),
            use_cache=False,
            layout=layout,
            logits_to_keep=torch.tensor(keep, device=self._device),
        ).logits[0]
        for row in decoding:
            handle = row.sequence.handle
            self._buffer.wrote(handle)
            if not (row.start + 1) % BLOCK_SIZE:
                self._buffer.flush(handle, self._blocks.table(handle), row.start + 1)
        return [packed.rows[place] for place in sampling], logits[: len(sampling)].float()

    def settle(self, sequence: Sequence) -> None:
        """Copy all computed keys and values of a sequence to the pool, for a fork."""
        if sequence.handle in self._buffer:
            self._buffer.flush(sequence.handle, self._blocks.table(sequence.handle), sequence.computed)

    @torch.inference_mode()
    def copy_blocks(self, pairs: Items[tuple[int, int]]) -> None:
        """Copy blocks of the pool; `pairs` are (from, to)."""
        self._pool.copy_blocks(pairs)

    def release(self, handle: int) -> None:
        """Free the buffer row of a sequence that has lost its blocks."""
        self._buffer.leave(handle)

    def _sort(self, rows: Items[Row]) -> tuple[list[Row], list[Row]]:
        """Return the rows that use the decode buffer, in its order, and the rows that read the pool."""
        by_handle: dict[int, Row] = {}
        others = []
        for row in rows:
            handle = row.sequence.handle
            if row.is_decode and self._buffer.join(handle, self._blocks.table(handle), row.start):
                by_handle[handle] = row
            else:
                others.append(row)
        decoding = [by_handle[handle] for one in self._buffer.classes.values() for handle in one.handles]
        return decoding, others

    def _layout(self, decoding: list[Row], others: list[Row]) -> StepLayout:
        groups, start = [], 0
        for one in self._buffer.classes.values():
            if one.handles:
                count = len(one.handles)
                groups.append(self._group(one.data, start, decoding[start : start + count]))
                start += count
        segments, slots, begin = [], [], start
        for row in others:
            segment, written = self._segment(row, begin)
            segments.append(segment)
            slots.append(written)
            begin += row.count
        return StepLayout(groups, segments, self._pool.data, start, torch.cat(slots) if slots else None)

    def _group(self, data: torch.Tensor, start: int, rows: list[Row]) -> DecodeGroup:
        places = [row.start for row in rows]
        positions = torch.tensor(places, device=self._device)
        longest = max(places) + 1
        bias = None
        if min(places) + 1 < longest:
            padding = self._counting[:longest] > positions[:, None]
            bias = torch.zeros(padding.shape, dtype=data.dtype, device=self._device)
            bias = bias.masked_fill_(padding, -torch.inf).repeat_interleave(data.shape[3], 0).unsqueeze(1)
        return DecodeGroup(start, start + len(rows), data, self._counting[: len(rows)], positions, longest, bias)

    def _segment(self, row: Row, begin: int) -> tuple[Segment, torch.Tensor]:
        """Return a row's segment, and the slots for its new keys and values."""
        table = self._blocks.table(row.sequence.handle)
        end = begin + row.count
        context = row.start + row.count
        slots = self._pool.slots(table, context)
        written = slots[row.start :]
        if not row.start:
            return Segment(begin, end, None, None), written
        mask = None
        if row.count > 1:
            mask = self._counting[:context] <= self._counting[row.start : context, None]
        return Segment(begin, end, slots, mask), written


def _pack(rows: list[Row]) -> _Packed:
    ids: list[int] = []
    positions: list[int] = []
    last = []
    for row in rows:
        end = row.start + row.count
        if row.count == 1:
            ids.append(row.sequence.token_ids[row.start])
            positions.append(row.start)
        else:
            ids += row.sequence.token_ids[row.start : end]
            positions += range(row.start, end)
        last.append(len(ids) - 1)
    return _Packed(rows, ids, positions, last)
