"""Plan which journal entries are sent under which batch id; stored before the first transmission.

A batch that its receiver refuses for what is in it is cut in halves, each under an id of its own; the file then
holds the first part and those that follow it.
"""

import logging
from pathlib import Path

import msgspec

from backends.segment_log.segments import Position
from backends.segment_log.slot_file import SlotFile

_log = logging.getLogger(__name__)


class Batch(msgspec.Struct, frozen=True):
    """A range of the journal and the id it is sent under. Places are (segment, offset)."""

    batch_id: str
    start: tuple[int, int]
    end: tuple[int, int]


class BatchPlan(Batch, frozen=True):
    """The batch in progress. A part of a refused batch knows the parts after it, in order."""

    following: tuple[Batch, ...] = ()
    is_part: bool = False

    @property
    def begin_at(self) -> Position:
        """Where the batch begins."""
        return Position(*self.start)

    @property
    def end_at(self) -> Position:
        """The place after the batch."""
        return Position(*self.end)

    def split(self, middle: Position, ids: tuple[str, str]) -> "BatchPlan":
        """Cut the batch in two at a place between its entries."""
        cut = (middle.segment, middle.offset)
        second = Batch(ids[1], cut, self.end)
        return BatchPlan(ids[0], self.start, cut, following=(second, *self.following), is_part=True)

    def next(self) -> "BatchPlan | None":
        """Return what is to be sent after this, where it is known already."""
        if not self.following:
            return None
        first, *others = self.following
        return BatchPlan(first.batch_id, first.start, first.end, following=tuple(others), is_part=True)


class PlanFile:
    """The plan on disk, replaced in place: a full disk must not keep batches from leaving it.

    Halving a batch of n entries leaves at most log2(n) parts to follow, which fit in a slot by far. Raises
    ConfigurationError where the file cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self._file = SlotFile.of_installation(path)

    def save(self, plan: BatchPlan | None) -> None:
        """Write the plan down; `None` if nothing is in progress."""
        self._file.write(b"" if plan is None else msgspec.json.encode(plan))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def load(self, cursor: Position, end: Position) -> BatchPlan | None:
        """Return what a crash or a failure left in progress, without what had been acknowledged.

        `cursor` and `end` are the journal's. A plan that cannot be read, or is of another journal, is made again.
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
