"""A second copy of the keys and values of decoding sequences, in a layout that attention reads in place.

On a CPU, gathering a batch's blocks from the pool costs more than attention itself. So each decoding sequence gets a
row here: its context is gathered once, then each step writes one token. Full blocks are copied back to the pool, where
the prefix cache finds them. Rows are in classes by capacity (128, 256, 512, ... tokens), so that short sequences need
little padding; a row that outgrows its class moves to the next.
"""

from collections.abc import Sequence as Rows
from dataclasses import dataclass, field
from typing import Final

import torch

from backends.engine.torch_engine.kv_pool import KvPool, KvShape

SMALLEST_CLASS: Final = 128
_FIRST_ROWS: Final = 4


@dataclass(slots=True)
class _Place:
    capacity: int
    row: int
    tokens: int  # in the row
    flushed: int  # how many of them are in the pool too


@dataclass(slots=True)
class RowClass:
    """Rows of one capacity as [2, layer, row, head, token, size]; the first `len(handles)` are in use."""

    capacity: int
    data: torch.Tensor
    handles: list[int] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Return the number of rows that are allocated."""
        return self.data.shape[2]


class DecodeBuffer:
    """Rows by sequence handle, in at most `max_bytes`. Sequences without a row decode from the pool."""

    def __init__(self, pool: KvPool, max_bytes: int) -> None:
        self._pool = pool
        self._max_bytes = max_bytes
        self.classes: dict[int, RowClass] = {}
        self._places: dict[int, _Place] = {}

    def __contains__(self, handle: int) -> bool:
        return handle in self._places

    def __len__(self) -> int:
        return len(self._places)

    @property
    def allocated_bytes(self) -> int:
        """Return the allocated memory."""
        return sum(one.data.numel() * one.data.element_size() for one in self.classes.values())

    def place(self, handle: int) -> tuple[int, int]:
        """Return a sequence's (capacity, row)."""
        place = self._places[handle]
        return place.capacity, place.row

    @torch.inference_mode()
    def join(self, handle: int, table: Rows[int], tokens: int) -> bool:
        """Make room in a row for the token after `tokens`, gathering or moving the context. Returns False if there is
        no memory.
        """
        place = self._places.get(handle)
        if place is not None and tokens < place.capacity:
            return True
        capacity = SMALLEST_CLASS
        while capacity <= tokens:
            capacity *= 2
        target = self._room(capacity)
        if target is None:
            if place is not None:
                self.flush(handle, table, tokens)
                self.leave(handle)
            return False
        row = len(target.handles)
        target.handles.append(handle)
        if place is None:
            found = self._pool.data.index_select(2, self._pool.slots(table, tokens)).transpose(2, 3)
            flushed = tokens
        else:
            found, flushed = self._row(place)[:, :, :, :tokens], place.flushed
        target.data[:, :, row, :, :tokens] = found
        if place is not None:
            self.leave(handle)
        self._places[handle] = _Place(capacity, row, tokens, flushed)
        return True

    def wrote(self, handle: int) -> None:
        """Record that a step wrote the sequence's next token."""
        self._places[handle].tokens += 1

    @torch.inference_mode()
    def flush(self, handle: int, table: Rows[int], tokens: int) -> None:
        """Copy to the pool what it lacks of a sequence's first `tokens`."""
        place = self._places[handle]
        if tokens <= place.flushed:
            return
        slots = self._pool.slots(table, tokens, place.flushed)
        self._pool.data[:, :, slots] = self._row(place)[:, :, :, place.flushed : tokens].transpose(2, 3)
        place.flushed = tokens

    @torch.inference_mode()
    def leave(self, handle: int) -> None:
        """Free a row without copying anything back; the class's last row moves there. An unknown handle is ignored."""
        place = self._places.pop(handle, None)
        if place is None:
            return
        here = self.classes[place.capacity]
        last = here.handles.pop()
        if last != handle:
            moved = self._places[last]
            here.data[:, :, place.row, :, : moved.tokens] = here.data[:, :, moved.row, :, : moved.tokens]
            here.handles[place.row] = last
            moved.row = place.row

    def _row(self, place: _Place) -> torch.Tensor:
        return self.classes[place.capacity].data[:, :, place.row]

    def _room(self, capacity: int) -> RowClass | None:
        """Return the class with a free row, growing it within the memory limit; `None` if there is no room."""
        here = self.classes.get(capacity)
        if here is not None and len(here.handles) < here.rows:
            return here
        rows = 2 * here.rows if here is not None else _FIRST_ROWS
        while not self._fits(capacity, rows):
            if self._drop_empty():
                continue
            rows -= 1
            if rows <= (here.rows if here is not None else 0):
                return None
        return self._grow(capacity, rows, here)

    def _fits(self, capacity: int, rows: int) -> bool:
        # While a class grows, both its old and its new tensor are allocated.
        return self.allocated_bytes + rows * capacity * self._pool.shape.token_bytes <= self._max_bytes

    def _drop_empty(self) -> bool:
        for capacity, one in list(self.classes.items()):
            if not one.handles:
                del self.classes[capacity]
                return True
        return False

    def _grow(self, capacity: int, rows: int, here: RowClass | None) -> RowClass:
        shape: KvShape = self._pool.shape
        data = torch.zeros(
            2, shape.layers, rows, shape.heads, capacity, shape.head_size,
            dtype=shape.dtype, device=self._pool.data.device,
        )  # fmt: skip
        if here is None:
            here = self.classes[capacity] = RowClass(capacity, data)
        else:
            data[:, :, : here.rows] = here.data
            here.data = data
        return here
