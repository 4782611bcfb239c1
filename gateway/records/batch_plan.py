"""The plan of which journal entries are sent under which batch id, stored before a batch is first sent.

If the receiver refuses a batch because of its content, the batch is split in halves, each with an id of its own. The
file then holds the first part and those after it.
"""

import logging
from pathlib import Path

import msgspec

from backends.segment_log.segments import Position
from backends.segment_log.slot_file import SlotFile

_log = logging.getLogger(__name__)


class Batch(msgspec.Struct, frozen=True):
    """A range of the journal and the id under which it is sent. A place is a pair (segment, offset)."""

    batch_id: str
    start: tuple[int, int]
    end: tuple[int, int]


class BatchPlan(Batch, frozen=True):
    """The batch in progress. A part of a refused batch knows the parts after it, in order."""

    following: tuple[Batch, ...] = ()
    is_part: bool = False

    @property
    def begin_at(self) -> Position:
        """Return the place where the batch begins."""
        return Position(*self.start)

    @property
    def end_at(self) -> Position:
        """Return the place after the batch."""
        return Position(*self.end)

    def split(self, middle: Position, ids: tuple[str, str]) -> "BatchPlan":
        """Cut the batch in two at a place between its entries."""
        cut = (middle.segment, middle.offset)
        second = Batch(ids[1], cut, self.end)
        return BatchPlan(ids[0], self.start, cut, following=(second, *self.following), is_part=True)

    def next(self) -> "BatchPlan | None":
        """Return the plan of the next part, if the batch was split; else `None`."""
        if not self.following:
            return None
        first, *others = self.following
        return BatchPlan(first.batch_id, first.start, first.end, following=tuple(others), is_part=True)


class PlanFile:
    """The plan on disk, overwritten in place, so that batches can still be sent if the disk is full.

    Halving a batch of n entries leaves at most log2(n) further parts, which fit into the file. Raise ConfigurationError
    if the file cannot be created.
    """

    def __init__(self, path: Path) -> None:
        self._file = SlotFile.of_installation(path)

    def save(self, plan: BatchPlan | None) -> None:
        """Store the plan; `None` if no batch is in progress."""
        self._file.write(b"" if plan is None else msgspec.json.encode(plan))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def load(self, cursor: Position, end: Position) -> BatchPlan | None:
        """Return the plan that a crash left in progress, without the part that was acknowledged; else a new plan.

        `cursor` and `end` are those of the journal. A plan that cannot be read, or that belongs to another journal, is
        replaced.
        """
        saved = self._file.value
        if not saved:
            return None
        plan: BatchPlan | None
        try:
            plan = msgspec.json.decode(saved, type=BatchPlan)
        except msgspec.MsgspecError:
            _log.error("the batch plan is damaged and was replaced; its batch may arrive twice")
            return None
        last = plan.following[-1] if plan.following else plan
        if Position(*last.end) > end:
            _log.error("the batch plan is of another journal and was replaced")
            return None
        while plan is not None and plan.end_at <= cursor:
            plan = plan.next()
        return plan
