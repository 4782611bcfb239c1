"""How far the store has gone on since an insert was planned: it remembers a token for the given number of inserts, not
for ever.
"""

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

REMEMBERED_INSERTS: Final = 10_000  # of each table: `non_replicated_deduplication_window` in migrations/clickhouse
_MARGIN: Final = 1_000  # others insert between the look and the insert; and an insert may take several numbers
_MARK_SECONDS: Final = 60.0
# A plain MergeTree gives every part that is inserted the table's next number, as it gives its token a place.
_BLOCKS: Final = (
    "SELECT table, max(max_block_number) AS block FROM system.parts WHERE database = currentDatabase() GROUP BY table"
)


class TokenWindow:
    """Where every table of the store was before an insert, on disk, and which have gone too far since.

    The window is each table's own, a rollup's as well: a late batch takes a place there for each day it touches. Where
    the store does not let its writer ask, nothing is known, and every token is taken to be remembered. Not for a
    cluster, whose windows are Keeper's, and where another server may answer each time. Raises ConfigurationError if the
    file cannot be made, OSError if it cannot be written, and what the store's client does.
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
        """Record where the tables are, before an insert is begun; an earlier mark of the last minute will do."""
        if self._file.value is None or self._clock() >= self._mark_at:
            self._file.write(msgspec.msgpack.encode(self._blocks()), sync=self._is_synced)
            self._mark_at = self._clock() + _MARK_SECONDS

    def passed(self) -> frozenset[str]:
        """Return the tables that may have forgotten a token used after the last mark; none if none was ever made.

        After a migration these are all rollups: one that it has filled from the rows has them under no token.
        """
        if self._file.value is None:
            return frozenset()
        try:
            then = msgspec.msgpack.decode(self._file.value, type=dict[str, int])
        except msgspec.MsgspecError:
            return frozenset()
        if not then:
            return frozenset()
        # A number that fell is of a table whose newest parts were deleted, which says nothing of what came in.
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
        except StoreRefused as error:  # a server whose writer has no such right
            _log.warning("tokens are assumed to be remembered code=%s reason=%s", error.error_code, error.message)
            return {}
