"""Plan which batches are inserted together; stored before the first attempt, identical after a crash."""

import logging
from pathlib import Path

import msgspec

from backends.segment_log.segments import Position
from backends.segment_log.slot_file import SlotFile

_log = logging.getLogger(__name__)


class InsertPlan(msgspec.Struct, frozen=True, array_like=True):
    """From the spool's cursor to `end` under one token, but for the entries that end at `left_out`.

    Those belong to another collector. `first_received_at_ns` is the first readable batch's, and 0 without one.
    """

    token: str
    end: tuple[int, int]
    first_received_at_ns: int
    left_out: tuple[tuple[int, int], ...] = ()

    @property
    def end_at(self) -> Position:
        """The place after the last of its batches."""
        return Position(*self.end)


class PlanFile:
    """The plan on disk, replaced in place: a full disk must not keep batches from leaving it.

    `is_synced`: it survives a power cut too, as the spool does that it is of. Without it the batches would be planned
    again after one, and stored a second time under another token. Raises ConfigurationError if the file cannot be made,
    and OSError if it cannot be written.
    """

    def __init__(self, path: Path, *, is_synced: bool = False) -> None:
        self._is_synced = is_synced
        self._file = SlotFile.of_installation(path)

    @property
    def is_empty(self) -> bool:
        """Return whether no plan was ever written."""
        return self._file.value is None

    def save(self, plan: InsertPlan) -> None:
        """Write the plan down."""
        self._file.write(msgspec.msgpack.encode(plan), sync=self._is_synced)

    def load(self, cursor: Position, end: Position) -> InsertPlan | None:
        """Return the plan that a crash or a stop left unfinished; `cursor` and `end` are the spool's."""
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
