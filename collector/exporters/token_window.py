"""Detects whether the store may have forgotten a deduplication token, because it remembers only so many inserts."""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from backends.segment_log.slot_file import SlotFile
from backends.store.tables import HISTORY, AskedStore, list_views
from contracts.errors import StoreRefused

_log = logging.getLogger(__name__)

REMEMBERED_INSERTS: Final = 10_000  # per table: `non_replicated_deduplication_window` in migrations/clickhouse
_MARGIN: Final = 1_000  # margin: others insert between check and insert, and an insert may take several numbers
_MARK_SECONDS: Final = 60.0
# A plain MergeTree numbers inserted parts per table, in the order in which it remembers their tokens.
_BLOCKS: Final = (
    "SELECT table, max(max_block_number) AS block FROM system.parts WHERE database = currentDatabase() GROUP BY table"
)


class TokenWindow:
    """Finds tables where ClickHouse may have forgotten an insert's deduplication token, by counting inserts since.

    ClickHouse remembers a limited number of tokens per table and rollup; an insert into a rollup uses one per day of
    its rows. Every table's block number before an insert is saved in a file. If the store's user may not read block
    numbers, tokens are assumed to be remembered. Not for a cluster, whose tokens are in Keeper and where each query may
    reach another server. Raises ConfigurationError if the file cannot be created, OSError if it cannot be written, and
    the errors of the store's client.
    """

    def __init__(
        self,
        store: AskedStore,
        path: Path,
        *,
        remembered: int = REMEMBERED_INSERTS - _MARGIN,
        is_synced: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._file = SlotFile.of_installation(path)
        self._remembered = remembered
        self._is_synced = is_synced
        self._clock = clock
        self._mark_at = 0.0

    def mark(self) -> None:
        """Save the tables' block numbers before an insert; numbers less than a minute old are reused."""
        if self._file.value is None or self._clock() >= self._mark_at:
            self._file.write(msgspec.msgpack.encode(self._blocks()), sync=self._is_synced)
            self._mark_at = self._clock() + _MARK_SECONDS

    def passed(self) -> frozenset[str]:
        """Return the tables that may have forgotten a token used after the last `mark`; empty if there is no mark.

        After a migration this includes all rollups, because a rollup filled from existing rows has no tokens for them.
        """
        if self._file.value is None:
            return frozenset()
        try:
            then = msgspec.msgpack.decode(self._file.value, type=dict[str, int])
        except msgspec.MsgspecError:
            return frozenset()
        if not then:
            return frozenset()
        # A number that fell means that the table's newest parts were deleted; it does not show new inserts.
        now = self._blocks()
        passed = {table for table, block in now.items() if block - then.get(table, 0) >= self._remembered}
        if now.get(HISTORY, 0) != then.get(HISTORY, 0):
            passed |= {view.target for view in list_views(self._store)}
        return frozenset(passed)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _blocks(self) -> dict[str, int]:
        try:
            return {str(row["table"]): int(row["block"]) for row in self._store.query(_BLOCKS)}
        except StoreRefused as error:  # a server whose writer user lacks this right
            _log.warning("tokens are assumed to be remembered code=%s reason=%s", error.error_code, error.message)
            return {}
