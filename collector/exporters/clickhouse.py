"""Exports batches from the spool to ClickHouse: in order, each exactly once, several per insert."""

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Final, Protocol

import msgspec

from backends.store.unstored_rows import UnstoredRows
from collector.counters import Counters
from collector.dead_letters import DeadLetters
from collector.exporters.backoff import Backoff
from collector.exporters.inserts import FORBIDDEN, ArrowBuilder, RejectedRow, RowStore, insert_rows
from collector.exporters.merged_batches import MergedBatches
from collector.exporters.planner import InsertPlanner, PlannedInsert
from collector.exporters.prepared import PreparedInsert, ReadAhead
from collector.rows import Processed
from collector.spool import Spool, SpooledBatch, SpoolEntry
from contracts.errors import ConfigurationError, InvalidRecord, StoreRefused, TollkeeperError

_log = logging.getLogger(__name__)

REJECTED_BY_STORE: Final = "rejected_by_store"
UNREADABLE_BATCH: Final = "unreadable_batch"
EXPORT_FAILED: Final = "export_failed"
COMPARED: Final = "rows_stored_before"
PAST_RETENTION: Final = "rows_past_retention"
_UNREADABLE: Final = "the spool entry is of an unknown kind or version"
_IDLE_SECONDS: Final = 5.0  # between two pings of an available store while nothing is queued
_AWAY_SECONDS: Final = 1.0  # between two pings of an unavailable store
_DISK_RETRY_SECONDS: Final = 1.0
_MAX_FAILURES: Final = 5
# An insert costs the store as much for one row as for thousands, so small batches are collected for a moment.
_GATHER_SECONDS: Final = 0.25
_ENOUGH_BYTES: Final = 1 << 20


class InsertLock(Protocol):
    """A lock on writing to the store, shared with commands that need a moment without an insert in progress."""

    def turn(self) -> AbstractContextManager[Callable[[], None]]:
        """Hold the lock for one insert; the yielded function is to be called when the insert's outcome is known."""


class NoInsertLock:
    """A lock that is always free, for a collector that is the only writer."""

    @contextmanager
    def turn(self) -> Iterator[Callable[[], None]]:
        """Yield immediately."""
        yield lambda: None


class ClickHouseExporter:
    """Inserts spooled batches into ClickHouse, in its own thread, with one insert per table.

    Retries forever if the store does not answer or has not been migrated yet; rows that it permanently refuses go to
    the dead letters. A batch is released from the spool only when all its rows are in one of the two. The plan of an
    insert (its batches and deduplication token) is saved first, so that after a crash the same insert is repeated and
    stored once.
    """

    def __init__(
        self,
        spool: Spool,
        planner: InsertPlanner,
        process: Callable[[SpooledBatch], Processed],
        store: RowStore,
        build: ArrowBuilder,
        dead_letters: DeadLetters,
        counters: Counters,
        source: random.Random,
        turns: InsertLock | None = None,
    ) -> None:
        self._spool = spool
        self._planner = planner
        self._process = process
        self._store = store
        self._build = build
        self._dead_letters = dead_letters
        self._counters = counters
        self._turns = turns or NoInsertLock()
        self._ahead = ReadAhead(spool, lambda batch: self._process(batch), build)
        self._backoff = Backoff(source)
        self._stopping = threading.Event()
        self._deadline = 0.0
        self._gather_until = 0.0
        self._store_reachable: bool | None = None
        self.failure_code = ""  # consecutive failures with that error
        self.failure = ""  # error message of the last attempt; empty if it succeeded
        self.lag_seconds: float | None = None  # from receipt to insert, for the oldest batch of the last insert
        self._thread = threading.Thread(target=self._run, name="exporter", daemon=True)

    @property
    def store_reachable(self) -> bool | None:
        """Return whether the last attempt reached the store; `None` before the first."""
        return self._store_reachable

    def start(self) -> None:
        """Start the export thread."""
        self._thread.start()

    def stop(self, timeout_seconds: float) -> bool:
        """Export for at most `timeout_seconds`, then stop. Return whether the thread has ended."""
        self._deadline = time.monotonic() + timeout_seconds
        self._stopping.set()
        self._spool.arrived.set()
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def settle(self, timeout_seconds: float) -> bool:
        """Complete the insert that an earlier collector may have left unfinished, in the calling thread.

        Returns whether no unfinished insert is left. Must not be called after `start`.
        """
        timer = threading.Timer(timeout_seconds, self._stopping.set)
        timer.daemon = True
        timer.start()
        while self._planner.is_in_doubt() and self._insert_next():
            pass
        timer.cancel()
        self._ahead.drop()
        if self._planner.is_in_doubt():
            return False
        with self._turns.turn() as settle:
            settle()  # left by a collector that ended after releasing its batches
        return True

    def _run(self) -> None:
        while not self._is_over():
            if self._spool.pending_bytes:
                self._gather()
                if not self._insert_next():
                    return
                continue
            if self._stopping.is_set():
                return
            if not self._spool.arrived.wait(_IDLE_SECONDS if self._store_reachable else _AWAY_SECONDS):
                self._note_reachable(self._store.ping())
            self._spool.arrived.clear()

    def _is_over(self) -> bool:
        return self._stopping.is_set() and time.monotonic() >= self._deadline

    def _gather(self) -> None:
        """Wait briefly for more batches if few are queued and the last insert was recent."""
        while (
            (left := self._gather_until - time.monotonic()) > 0
            and self._spool.pending_bytes < _ENOUGH_BYTES
            and not self._stopping.is_set()
        ):
            self._spool.arrived.clear()
            self._spool.arrived.wait(left)

    def _insert_next(self) -> bool:
        """Insert the next queued batches and release them; return False if the exporter was stopped before."""
        began = time.monotonic()
        is_done = False
        prepared = self._ahead.take(self._spool.cursor)
        try:
            with self._turns.turn() as settle:
                planned = self._export_surely(prepared)
                is_done = planned is not None and self._release_surely(planned)
                if planned is not None and is_done:
                    settle()
                    self._note_lag(planned)
        except ConfigurationError as error:
            _log.error("export waits code=%s reason=%s", error.error_code, error.message)
            self._stopping.wait(_DISK_RETRY_SECONDS)
        except OSError as error:  # from the lock's files: a full disk must not end this thread
            self._wait_for_disk(error)
        finally:
            if not (is_done and self._spool.pending_bytes):
                self._ahead.drop()
        if not self._spool.pending_bytes:
            self._gather_until = began + _GATHER_SECONDS
        return is_done or not self._stopping.is_set()

    def _export_surely(self, prepared: PreparedInsert | None) -> PlannedInsert | None:
        """Insert the next batches, with retries until it succeeds.

        Returns `None` if the exporter was stopped, or if nothing is queued.
        """
        failures = 0
        planned: PlannedInsert | None = None
        is_tried = False
        while True:
            try:
                planned = planned or self._planner.next(prepared.entries if prepared else ())
                if planned is None:
                    return None
                if prepared is None or prepared.entries != planned.entries:
                    prepared = self._prepared(planned)
                if self._planner.merges:
                    self._ahead.begin(planned.end)
                is_tried = is_tried or not planned.is_new
                store = self._store_for(planned) if is_tried else self._store
                is_tried = True
                self._export(planned, prepared, store, is_last_try=failures == _MAX_FAILURES - 1)
            except TollkeeperError as error:
                self._note_reachable(False)
                self.failure, self.failure_code = error.message, error.error_code
                self._planner.forget_store()
                self._counters.noticed("export_retries")
                _log.warning("export waits code=%s reason=%s", error.error_code, error.message)
            except OSError as error:
                self._wait_for_disk(error)
            except Exception as error:  # top of the thread: an unexpected error must not end exporting
                failures += 1
                _log.error("export failed failures=%d error=%s", failures, type(error).__name__)
                if failures >= _MAX_FAILURES and planned is not None:
                    for entry in planned.entries:
                        self._bury(entry, EXPORT_FAILED, f"{type(error).__name__} {failures} times")
                    return planned
            else:
                self._backoff.reset()
                self.failure = self.failure_code = ""
                return planned
            if self._stopping.is_set() or self._stopping.wait(self._backoff.next_seconds()):
                return None

    def _release_surely(self, planned: PlannedInsert) -> bool:
        """Release the inserted batches, with retries while the spool's disk fails; return False if stopped."""
        while True:
            try:
                self._spool.release(planned.end)
                return True
            except OSError as error:
                # Not raised: a temporarily full disk would end this thread, and with it all exporting.
                self._wait_for_disk(error)
                if self._stopping.is_set():
                    return False  # inserted again at the next start, and deduplicated by its token

    def _wait_for_disk(self, error: OSError) -> None:
        self._counters.noticed("spool_failures")
        _log.error("spool fails, trying again reason=%s", error.strerror)
        self._stopping.wait(_DISK_RETRY_SECONDS)

    def _prepared(self, planned: PlannedInsert) -> PreparedInsert | None:
        """Convert a plan's batches to columns together; `None` if that fails and they must be converted one by one."""
        try:
            return self._ahead.prepare(planned.entries)
        except Exception as error:  # the error and its batch are found when they are converted one by one
            _log.warning("batches cannot be prepared together error=%s", type(error).__name__)
            return None

    def _store_for(self, planned: PlannedInsert) -> RowStore:
        """Return the store; for a repeated insert whose token may be forgotten, one that skips rows already stored."""
        forgetful = self._planner.forgetful_tables()
        if not forgetful:
            return self._store
        _log.warning("insert is compared with what is stored, its token is too old token=%s", planned.token)
        received = [entry.batch.received_at_ns for entry in planned.entries if entry.batch]
        return UnstoredRows(self._store, forgetful, min(received, default=0))

    def _export(
        self, planned: PlannedInsert, prepared: PreparedInsert | None, store: RowStore, *, is_last_try: bool
    ) -> None:
        if prepared is None or not self._insert_whole(planned, prepared, store):
            self._ahead.drop()  # only one thread may process batches
            self._insert_by_rows(planned, store, is_last_try=is_last_try)
        if isinstance(store, UnstoredRows):
            self._counters.noticed(COMPARED, store.left_out)
            self._counters.noticed(PAST_RETENTION, store.past_retention.total())
            for table, rows in store.past_retention.items():
                _log.warning(
                    "rows are not stored, they may have been and are past retention token=%s table=%s rows=%d",
                    planned.token,
                    table,
                    rows,
                )

    def _insert_whole(self, planned: PlannedInsert, prepared: PreparedInsert, store: RowStore) -> bool:
        """Insert the prepared columns; return False if the store refuses rows or a value does not fit its column."""
        inserted: dict[str, int] = {}
        try:
            for table, data in prepared.tables():
                store.insert_arrow(table, data, deduplication_token=planned.token)
                self._note_reachable(True)
                inserted[table] = data.num_rows
        except (StoreRefused, InvalidRecord) as error:
            if error.error_code == FORBIDDEN:
                raise
            return False
        self._account(planned.token, inserted, prepared)
        for entry in prepared.unreadable:
            self._bury(entry, UNREADABLE_BATCH, _UNREADABLE)
        return True

    def _insert_by_rows(self, planned: PlannedInsert, store: RowStore, *, is_last_try: bool) -> None:
        """Process batches one by one and insert their rows by bisection, with the same token, to find bad rows."""
        merged = MergedBatches()
        lost: list[tuple[SpoolEntry, str, str]] = []
        for entry in planned.entries:
            if entry.batch is None:
                lost.append((entry, UNREADABLE_BATCH, _UNREADABLE))
                continue
            try:
                processed = self._process(entry.batch)
            except TollkeeperError as error:  # its bytes are not a valid request, and never will be
                lost.append((entry, UNREADABLE_BATCH, error.message))
            except Exception as error:  # a batch that causes an unexpected error must not block the others
                if not is_last_try:
                    raise
                lost.append((entry, EXPORT_FAILED, f"{type(error).__name__} {_MAX_FAILURES} times"))
            else:
                merged.add(entry.batch.batch_id, processed)
        rejected: list[RejectedRow] = []
        for rows in merged.tables.values():
            rejected += insert_rows(store, self._build, rows, planned.token)
            self._note_reachable(True)
        stored = {
            table: len(rows.rows) - sum(row.table == table for row in rejected) for table, rows in merged.tables.items()
        }
        self._account(planned.token, stored, merged)
        self._refuse(planned.token, merged, rejected)
        for entry, cause, reason in lost:
            self._bury(entry, cause, reason)

    def _account(self, token: str, stored: Mapping[str, int], found: MergedBatches | PreparedInsert) -> None:
        """Update the counters and write dead letters; after the inserts, because these may be repeated."""
        if found.broken:
            _log.error(
                "records cannot be read token=%s broken=%d first=%s",
                token,
                len(found.broken),
                found.broken[0][1].reason,
            )
        for table, rows in stored.items():
            self._counters.exported(table, rows)
        for name, times in found.noticed.items():
            self._counters.noticed(name, times)
        for batch_id, broken in found.broken:
            self._dead_letters.write(
                broken.cause, broken.reason, batch_id=batch_id, index=broken.index, payload=broken.payload
            )

    def _refuse(self, token: str, merged: MergedBatches, rejected: list[RejectedRow]) -> None:
        if rejected:
            _log.error(
                "rows will not be stored token=%s rejected=%d first=%s", token, len(rejected), rejected[0].reason
            )
        for row in rejected:
            batch_id, index = merged.origin(row.table, row.index)
            payload = msgspec.msgpack.encode(row.row)
            self._dead_letters.write(
                REJECTED_BY_STORE, f"{row.table}: {row.reason}", batch_id=batch_id, index=index, payload=payload
            )

    def _bury(self, entry: SpoolEntry, cause: str, reason: str) -> None:
        batch_id = entry.batch.batch_id if entry.batch else ""
        _log.error("batch will not be stored batch_id=%s cause=%s reason=%s", batch_id[:80], cause, reason)
        self._dead_letters.write(cause, reason, batch_id=batch_id, index=0, payload=entry.raw)

    def _note_lag(self, planned: PlannedInsert) -> None:
        received = [entry.batch.received_at_ns for entry in planned.entries if entry.batch]
        if received:
            self.lag_seconds = max(time.time_ns() - min(received), 0) / 1e9

    def _note_reachable(self, reachable: bool) -> None:
        if reachable is not self._store_reachable:
            _log.info("store reachable=%s", reachable)
        self._store_reachable = reachable
