"""Write the records of engine hosts to the journal: step records always, KV cache events while there is space."""

import time
from collections.abc import Sequence

from gateway.records.journal import Journal


class JournalledEngineRecords:
    """Writes packed step and KV records to the journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.step_records = 0
        self.kv_records = 0
        self.dropped_kv_records = 0

    def take_steps(self, packed: Sequence[bytes]) -> bool:
        """Write all step records, or none if there is no room: the engine host then keeps the records."""
        now = time.time_ns()
        if not self._journal.append_all((now, record) for record in packed):
            return False
        self.step_records += len(packed)
        return True

    def take_kv(self, packed: Sequence[bytes]) -> None:
        """Write KV events while the journal is less than half full; the rest of its space is for records that are
        billed.
        """
        now = time.time_ns()
        has_room = self._journal.pending_bytes < self._journal.max_bytes // 2
        if has_room and self._journal.append_all((now, record) for record in packed):
            self.kv_records += len(packed)
        else:
            self.dropped_kv_records += len(packed)
