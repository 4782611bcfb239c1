"""Converts batches to columns ahead of their insert, while the store is busy with the previous one."""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow

from backends.segment_log.segments import Position
from collector.exporters.inserts import ArrowBuilder
from collector.exporters.merged_batches import MergedBatches
from collector.rows import BrokenRecord, Processed
from collector.spool import MAX_READ_ENTRIES, Spool, SpooledBatch, SpoolEntry

_log = logging.getLogger(__name__)

Process = Callable[[SpooledBatch], Processed]

INSERT_BYTES: Final = 16 << 20  # as received: about 20,000 requests with 200 gaps
_BUILT_TOGETHER: Final = 1_000  # rows; columns take a third of the memory of row objects
_READ_BYTES: Final = 1 << 20
_LOOK_SECONDS: Final = 0.02
_NOWHERE: Final = Position(-1, -1)


class PreparedInsert:
    """Spool entries in order, and their rows as columns by table. Not thread-safe.

    If the store refuses rows, the entries are processed again to find them, because row objects are not retained.
    """

    def __init__(self, build: ArrowBuilder) -> None:
        self._build = build
        self.entries: list[SpoolEntry] = []
        self.unreadable: list[SpoolEntry] = []
        self.broken: list[tuple[str, BrokenRecord]] = []
        self.noticed: dict[str, int] = {}
        self.size = 0  # bytes, as received
        self._merged = MergedBatches()
        self._pieces: dict[str, list[pyarrow.Table]] = {}

    def add(self, entry: SpoolEntry, process: Process) -> None:
        """Add the next entry. Raises the errors of processing and building; the object is unusable afterwards."""
        self.entries.append(entry)
        self.size += entry.size
        if entry.batch is None:
            self.unreadable.append(entry)
            return
        self._merged.add(entry.batch.batch_id, process(entry.batch))
        if sum(len(rows.rows) for rows in self._merged.tables.values()) >= _BUILT_TOGETHER:
            self._build_merged()

    def tables(self) -> list[tuple[str, pyarrow.Table]]:
        """Return the tables to insert, each as one block. Raises the errors of building."""
        self._build_merged()
        for pieces in self._pieces.values():
            # One block, because a token covers one block; it replaces the pieces, so that memory does not double.
            pieces[:] = [pyarrow.concat_tables(pieces).combine_chunks()]
        return [(name, whole) for name, (whole,) in self._pieces.items()]

    def _build_merged(self) -> None:
        merged = self._merged
        built = {name: self._build(rows.table, rows.rows) for name, rows in merged.tables.items()}
        self._merged = MergedBatches()  # only now: if building fails, the rows are needed again
        for name, piece in built.items():
            self._pieces.setdefault(name, []).append(piece)
        self.broken += merged.broken
        for what, times in merged.noticed.items():
            self.noticed[what] = self.noticed.get(what, 0) + times


class ReadAhead:
    """Prepares the entries after the current insert in its own thread, up to a limit or until they are taken.

    Only one thread processes batches at a time. All methods must be called by the exporter's thread.
    """

    def __init__(self, spool: Spool, process: Process, build: ArrowBuilder, insert_bytes: int = INSERT_BYTES) -> None:
        self._spool = spool
        self._process = process
        self._build = build
        self._insert_bytes = insert_bytes
        self._work: _Work | None = None

    def begin(self, after: Position) -> None:
        """Start to prepare present and future entries after a spool position; continue if that was started already."""
        if self._work is not None and self._work.start == after:
            return
        self.drop()
        work = self._work = _Work(after)
        work.thread = threading.Thread(target=self._run, args=(work,), name="prepare", daemon=True)
        work.thread.start()

    def take(self, start: Position) -> PreparedInsert | None:
        """Return the entries prepared from a spool position on; `None` if there are none or preparing failed."""
        work, self._work = self._work, None
        if work is None or work.thread is None:
            return None
        work.is_wanted.set()
        work.thread.join()
        if work.start != start or work.prepared is None or not work.prepared.entries:
            return None
        return work.prepared

    def drop(self) -> None:
        """Stop preparing, and discard what was prepared."""
        if self._work is not None:
            self._work.is_dropped = True
            self.take(_NOWHERE)

    def prepare(self, entries: Sequence[SpoolEntry]) -> PreparedInsert:
        """Prepare entries in the calling thread. Raises the errors of processing."""
        self.drop()
        prepared = PreparedInsert(self._build)
        for entry in entries:
            prepared.add(entry, self._process)
        return prepared

    def _run(self, work: "_Work") -> None:
        prepared = PreparedInsert(self._build)
        after = work.start
        try:
            while prepared.size < self._insert_bytes and len(prepared.entries) < MAX_READ_ENTRIES:
                found = self._spool.read(after, max_bytes=min(_READ_BYTES, self._insert_bytes - prepared.size))
                if not found and work.is_wanted.wait(_LOOK_SECONDS):
                    break
                for entry in found[: MAX_READ_ENTRIES - len(prepared.entries)]:
                    if work.is_dropped:
                        return
                    prepared.add(entry, self._process)
                    after = entry.end
        except Exception as error:  # top of the thread: the exporter processes it again and reports the error
            _log.warning("batches cannot be prepared ahead error=%s", type(error).__name__)
            return
        work.prepared = prepared


@dataclass(slots=True)
class _Work:
    """The state of one preparing thread: start position, result, and whether to stop at the end of the spool or now."""

    start: Position
    is_dropped: bool = False
    is_wanted: threading.Event = field(default_factory=threading.Event)
    prepared: PreparedInsert | None = None
    thread: threading.Thread | None = None
