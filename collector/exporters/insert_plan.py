"""The plan of one insert: its batches and token. Saved before the first attempt, and reused after a crash."""

import logging
from pathlib import Path

import msgspec

from backends.segment_log.segments import Position
from backends.segment_log.slot_file import SlotFile

_log = logging.getLogger(__name__)


class InsertPlan(msgspec.Struct, frozen=True, array_like=True):
    """Insert the entries from the spool's cursor to `end` under one token, except those that end at `left_out`.

    The excluded entries belong to another collector. `first_received_at_ns` is that of the first readable batch, or 0.
    """

    token: str
    end: tuple[int, int]
    first_received_at_ns: int
    left_out: tuple[tuple[int, int], ...] = ()

    @property
    def end_at(self) -> Position:
        """Return the spool position after its last batch."""
        return Position(*self.end)


class PlanFile:
    """The file of the current plan. It has a fixed size and is overwritten in place, so a full disk does not stop
    exports.

    `is_synced`: write with fsync, needed if the spool survives power cuts. Otherwise batches could be planned again
    after a power cut, and stored twice under another token. Raises ConfigurationError if the file cannot be created,
    OSError if it cannot be written.
    """

    def __init__(self, path: Path, *, is_synced: bool = False) -> None:
        self._is_synced = is_synced
        self._file = SlotFile.of_installation(path)

    @property
    def is_empty(self) -> bool:
        """Return whether no plan was ever saved."""
        return self._file.value is None

    def save(self, plan: InsertPlan) -> None:
        """Save the plan."""
        self._file.write(msgspec.msgpack.encode(plan), sync=self._is_synced)

    def load(self, cursor: Position, end: Position) -> InsertPlan | None:
        """Return the unfinished plan that a crash or stop left, or `None`; `cursor` and `end` are the spool's."""
        saved = self._file.value
        if saved is None:
            return None
        try:
            plan = msgspec.msgpack.decode(saved, type=InsertPlan)
        except msgspec.MsgspecError:
            _log.error("the insert plan is damaged and was replaced; its batches may be stored twice")
            return None
        return plan if cursor < plan.end_at <= end else None

    def close(self) -> None:
        """Close the file."""
        self._file.close()
