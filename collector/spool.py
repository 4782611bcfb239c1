"""The spool: received batches on disk. They are acknowledged when written, and removed when the store has them."""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from backends.segment_log.segment_damage import Missing
from backends.segment_log.segments import DiskFull, Entry, LogFull, Position, SegmentLog
from contracts.errors import LimitExceeded, Unavailable
from contracts.recording.ids import bounded_id

_log = logging.getLogger(__name__)

Signal = Literal["logs", "traces", "metrics"]
_RETRY_SECONDS: Final = 5.0
_REFUSAL_SECONDS: Final = 10.0  # for so long after a write failed, the disk counts as full; senders retry sooner
MAX_READ_ENTRIES: Final = 256


class SpooledBatch(msgspec.Struct, frozen=True, array_like=True, tag="batch.1"):
    """One batch as received: `payload` is a serialised OTLP export request of its signal.

    `is_named`: its sender gave the id, and may send the batch to another collector with the same id.
    """

    batch_id: str
    signal: Signal
    received_at_ns: int
    payload: bytes
    is_named: bool = True


@dataclass(frozen=True, slots=True)
class SpoolEntry:
    """A batch and the spool position after it, up to which to release; `size` is its length in the spool in bytes.

    `batch` is `None` if it is unreadable; only then `unread` has its bytes.
    """

    end: Position
    batch: SpooledBatch | None
    size: int
    unread: bytes = b""

    @property
    def raw(self) -> bytes:
        """Return its bytes as stored in the spool."""
        return self.unread if self.batch is None else msgspec.msgpack.encode(self.batch)


class Spool:
    """A segment log of batches, and the ids of recent ones so that a sender's retry is not stored twice.

    The index has the last `recent_ids` ids; at start it is built from the existing segments. `put` must be called by
    one thread, `read` and `release` by another.
    """

    def __init__(self, log: SegmentLog, *, recent_ids: int = 100_000) -> None:
        self._log = log
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(SpooledBatch)
        self._recent: OrderedDict[str, None] = OrderedDict()
        self._recent_ids = recent_ids
        # Monotonic time of the last append, if the disk was full
        self._disk_refused_at: float | None = None
        self.arrived = threading.Event()  # set by `put`, cleared by the reader
        for entry in self._scan(log.start):
            if entry.batch is not None:
                self._remember(entry.batch.batch_id)

    def put(self, batches: Sequence[SpooledBatch]) -> int:
        """Write the batches whose ids are new and return their number; when this returns they survive a crash.

        Raises LimitExceeded (429, code spool_full) at the size limit, Unavailable if the disk fails.
        """
        fresh = {batch.batch_id: batch for batch in batches if bounded_id(batch.batch_id) not in self._recent}
        if not fresh:
            return 0
        try:
            self._log.append_many([self._encoder.encode(batch) for batch in fresh.values()])
        except DiskFull as error:
            self._disk_refused_at = time.monotonic()
            raise LimitExceeded(
                "the disk that holds the collector's spool (in TOLLKEEPER_DATA) is full; free some space. "
                "The collector then continues by itself",
                code="spool_full",
                retry_after_seconds=_RETRY_SECONDS,
            ) from error
        except LogFull as error:
            raise LimitExceeded(
                f"the collector's spool is full: {self._log.pending_bytes} of {self._log.max_bytes} bytes wait. It "
                "drains when the store answers; TOLLKEEPER_SPOOL_MAX_BYTES sets its bound",
                code="spool_full",
                retry_after_seconds=_RETRY_SECONDS,
            ) from error
        except OSError as error:
            raise Unavailable(
                f"the collector's spool cannot be written: {error.strerror}", retry_after_seconds=_RETRY_SECONDS
            ) from error
        self._disk_refused_at = None
        for batch_id in fresh:
            self._remember(batch_id)
        self.arrived.set()
        return len(fresh)

    def read(self, after: Position, *, max_bytes: int, until: Position | None = None) -> list[SpoolEntry]:
        """Read up to 256 batches in order, within `max_bytes` but at least one if there is any, up to `until`."""
        entries = self._log.read(after, max_entries=MAX_READ_ENTRIES, max_bytes=max_bytes, until=until)
        return [self._decoded(entry) for entry in entries]

    def release(self, upto: Position) -> None:
        """Release the batches before `upto`, after the store has them."""
        self._log.release(upto)

    @property
    def cursor(self) -> Position:
        """Return the position of the first batch that the store does not have."""
        return self._log.cursor

    @property
    def end(self) -> Position:
        """Return the position after the last batch."""
        return self._log.end

    @property
    def pending_bytes(self) -> int:
        """Return the number of bytes that the store does not have."""
        return self._log.pending_bytes

    @property
    def max_bytes(self) -> int:
        """Return the limit of `pending_bytes`."""
        return self._log.max_bytes

    @property
    def is_full(self) -> bool:
        """Return whether the spool is at its limit and refuses batches."""
        return self._log.is_full

    @property
    def is_disk_full(self) -> bool:
        """Return whether the last write failed within the last seconds because the disk was full."""
        at = self._disk_refused_at
        return at is not None and time.monotonic() - at < _REFUSAL_SECONDS

    @property
    def corrupt_entries(self) -> int:
        """Return the number of unreadable sections found since this process started."""
        return self._log.corrupt_entries

    @property
    def missing(self) -> Missing:
        """Return the batches lost to disk damage before they were stored; reset when `damaged/` is removed."""
        return self._log.missing

    def oldest_received_at_ns(self) -> int | None:
        """Return when the oldest queued batch was received (Unix ns); `None` if nothing is queued."""
        for entry in self.read(self.cursor, max_bytes=1)[:1]:
            return entry.batch.received_at_ns if entry.batch else None
        return None

    def close(self) -> None:
        """Close the log."""
        self._log.close()

    def _scan(self, after: Position) -> Iterator[SpoolEntry]:
        while entries := self.read(after, max_bytes=8 << 20):
            yield from entries
            after = entries[-1].end

    def _decoded(self, entry: Entry) -> SpoolEntry:
        size = len(entry.payload)
        try:
            return SpoolEntry(entry.end, self._decoder.decode(entry.payload), size)
        except msgspec.MsgspecError as error:
            _log.error("spool entry unreadable bytes=%d error=%s", size, error)
            return SpoolEntry(entry.end, None, size, entry.payload)

    def _remember(self, batch_id: str) -> None:
        self._recent[bounded_id(batch_id)] = None
        if len(self._recent) > self._recent_ids:
            self._recent.popitem(last=False)


def received_at_ns(payload: bytes) -> int | None:
    """Return when the batch of a spool entry was received (Unix ns); `None` if it is unreadable."""
    try:
        return msgspec.msgpack.decode(payload, type=SpooledBatch).received_at_ns
    except msgspec.MsgspecError:
        return None
