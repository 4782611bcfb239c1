"""Which entries of the journal travel under which batch id: on disk before they are first sent.

A batch that its receiver refuses for what is in it is cut in halves, each under an id of its own; the file then
holds the first part and those that follow it.
"""

import logging
import os
from pathlib import Path

import msgspec

from backends.segments import Position

_log = logging.getLogger(__name__)


class Batch(msgspec.Struct, frozen=True):
    """A range of the journal and the id it is sent under. Places are (segment, offset)."""

    batch_id: str
    start: tuple[int, int]
    end: tuple[int, int]


class BatchPlan(Batch, frozen=True):
    """The batch under way. A part of a refused batch knows the parts after it, in order."""

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
        """Give what is to be sent after this, where it is known already."""
        if not self.following:
            return None
        first, *others = self.following
        return BatchPlan(first.batch_id, first.start, first.end, following=tuple(others), is_part=True)


class PlanFile:
    """The plan on disk, replaced whole."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def save(self, plan: BatchPlan | None) -> None:
        """Write the plan down; `None` where nothing is under way."""
        if plan is None:
            self._path.unlink(missing_ok=True)
            return
        draft = self._path.with_suffix(".draft")
        draft.write_bytes(msgspec.json.encode(plan))
        os.replace(draft, self._path)

    def load(self, cursor: Position, end: Position) -> BatchPlan | None:
        """Give what a crash or a failure left under way, without what had been acknowledged.

        `cursor` and `end` are the journal's. A plan that cannot be read, or is of another journal, is made anew.
        """
        plan: BatchPlan | None
        try:
            plan = msgspec.json.decode(self._path.read_bytes(), type=BatchPlan)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError:
            _log.error("the batch plan is damaged and is made anew; its batch may arrive twice")
            return None
        last = plan.following[-1] if plan.following else plan
        if Position(*last.end) > end:
            _log.error("the batch plan is of another journal and is made anew")
            return None
        while plan is not None and plan.end_at <= cursor:
            plan = plan.next()
        return plan
