"""From the spool to the store, in order, each batch exactly once."""

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Final

import msgspec

from collector.counters import Counters
from collector.dead_letters import DeadLetters
from collector.exporters.backoff import Backoff
from collector.exporters.inserts import ArrowBuilder, RejectedRow, RowStore, insert_rows
from collector.rows import Processed
from collector.spool import Spool, SpooledBatch, SpoolEntry
from contracts.errors import TollkeeperError

_log = logging.getLogger(__name__)

REJECTED_BY_STORE: Final = "rejected_by_store"
UNREADABLE_BATCH: Final = "unreadable_batch"
EXPORT_FAILED: Final = "export_failed"
_READ_BYTES: Final = 8 << 20
_IDLE_SECONDS: Final = 1.0
_DISK_RETRY_SECONDS: Final = 1.0
_MAX_FAILURES: Final = 5


class ClickHouseExporter:
    """Reads the spool in a thread of its own and inserts one batch after the other, one insert per table.

    A store that does not answer, or has not been migrated yet, is tried again for ever; data it will never take
    goes to the dead letters. A batch is released only when all of it is in one of the two places. The insert's
    deduplication token is the batch id: a batch whose release was lost in a crash is inserted again, stored once.
    """

    def __init__(
        self,
        spool: Spool,
        process: Callable[[SpooledBatch], Processed],
        store: RowStore,
        build: ArrowBuilder,
        dead_letters: DeadLetters,
        counters: Counters,
        source: random.Random,
    ) -> None:
        self._spool = spool
        self._process = process
        self._store = store
        self._build = build
        self._dead_letters = dead_letters
        self._counters = counters
        self._backoff = Backoff(source)
        self._stopping = threading.Event()
        self._deadline = 0.0
        self._store_reachable: bool | None = None
        self._thread = threading.Thread(target=self._run, name="exporter", daemon=True)

    @property
    def store_reachable(self) -> bool | None:
        """Whether the last try reached the store; `None` before the first."""
        return self._store_reachable

    def start(self) -> None:
        """Begin exporting."""
        self._thread.start()

    def stop(self, timeout_seconds: float) -> bool:
        """Export what can be exported in the time given, then end. Tells whether the thread has ended."""
        self._deadline = time.monotonic() + timeout_seconds
        self._stopping.set()
        self._spool.arrived.set()
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._is_over():
            try:
                entries = self._spool.read(self._spool.cursor, max_bytes=_READ_BYTES)
            except OSError as error:
                self._wait_for_disk(error)
                continue
            for entry in entries:
                if self._is_over() or not self._export_surely(entry) or not self._release_surely(entry):
                    return
            if not entries:
                if self._stopping.is_set():
                    return
                if not self._spool.arrived.wait(_IDLE_SECONDS):
                    self._note_reachable(self._store.ping())
                self._spool.arrived.clear()

    def _is_over(self) -> bool:
        return self._stopping.is_set() and time.monotonic() >= self._deadline

    def _export_surely(self, entry: SpoolEntry) -> bool:
        """Export an entry, trying again until it is done; False when the collector is told to stop meanwhile."""
        failures = 0
        while True:
            try:
                self._export(entry)
            except TollkeeperError as error:
                self._note_reachable(False)
                self._counters.noticed("export_retries")
                _log.warning("export waits code=%s reason=%s", error.error_code, error.message)
            except Exception as error:  # the thread's edge: one batch we cannot handle must not end all exporting
                failures += 1
                _log.error(
                    "export failed bytes=%d failures=%d error=%s", len(entry.raw), failures, type(error).__name__
                )
                if failures >= _MAX_FAILURES:
                    self._bury(entry, EXPORT_FAILED, f"{type(error).__name__} {failures} times")
                    return True
            else:
                self._backoff.reset()
                return True
            if self._stopping.is_set() or self._stopping.wait(self._backoff.next_seconds()):
                return False

    def _release_surely(self, entry: SpoolEntry) -> bool:
        """Release an exported entry, trying again while the spool's disk fails; False when told to stop meanwhile."""
        while True:
            try:
                self._spool.release(entry.end)
                return True
            except OSError as error:
                # Not raised: it would end this thread, and with it all exporting, for a disk that is full for a while.
                self._wait_for_disk(error)
                if self._stopping.is_set():
                    return False  # exported again at the next start, and known by its token

    def _wait_for_disk(self, error: OSError) -> None:
        self._counters.noticed("spool_failures")
        _log.error("spool fails, trying again reason=%s", error.strerror)
        self._stopping.wait(_DISK_RETRY_SECONDS)

    def _export(self, entry: SpoolEntry) -> None:
        if entry.batch is None:
            self._bury(entry, UNREADABLE_BATCH, "the spool entry is of an unknown kind or version")
            return
        batch_id = entry.batch.batch_id
        processed = self._process(entry.batch)
        rejected: list[RejectedRow] = []
        for rows in processed.tables.values():
            rejected += insert_rows(self._store, self._build, rows, batch_id)
            self._note_reachable(True)
        self._account(batch_id, processed, rejected)

    def _account(self, batch_id: str, processed: Processed, rejected: list[RejectedRow]) -> None:
        """Count, and write dead letters: after the inserts, because those may have to be repeated."""
        if rejected or processed.broken:
            _log.error(
                "records will not be stored batch_id=%s rejected=%d broken=%d first=%s",
                batch_id,
                len(rejected),
                len(processed.broken),
                rejected[0].reason if rejected else processed.broken[0].reason,
            )
        for table, rows in processed.tables.items():
            self._counters.exported(table, len(rows.rows) - sum(row.table == table for row in rejected))
        for name, times in processed.noticed.items():
            self._counters.noticed(name, times)
        for broken in processed.broken:
            self._dead_letters.write(
                broken.cause, broken.reason, batch_id=batch_id, index=broken.index, payload=broken.payload
            )
        for row in rejected:
            payload = msgspec.msgpack.encode(row.row)
            self._dead_letters.write(
                REJECTED_BY_STORE, f"{row.table}: {row.reason}", batch_id=batch_id, index=row.index, payload=payload
            )

    def _bury(self, entry: SpoolEntry, cause: str, reason: str) -> None:
        batch_id = entry.batch.batch_id if entry.batch else ""
        _log.error("batch will not be stored batch_id=%s cause=%s reason=%s", batch_id, cause, reason)
        self._dead_letters.write(cause, reason, batch_id=batch_id, index=0, payload=entry.raw)

    def _note_reachable(self, reachable: bool) -> None:
        if reachable is not self._store_reachable:
            _log.info("store reachable=%s", reachable)
        self._store_reachable = reachable
