"""The gateway's records on disk until the collector has them. A record is written before its client gets the end of its
answer.
"""

import logging
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, Literal

from backends.segment_log.segment_damage import Missing
from backends.segment_log.segment_frames import HEADER_BYTES
from backends.segment_log.segments import Entry, LogFull, Position, SegmentLog

_log = logging.getLogger(__name__)

_TIME_BYTES: Final = 8
_pack_time: Final = struct.Struct("<Q").pack  # under its own name: every record's way leads through it
_FRAME_BYTES: Final = HEADER_BYTES
# What one request's records may need at most: 10,000 gaps of five bytes, and attempts.
RECORD_ROOM_BYTES: Final = 64 * 1024
_ASK_DISK_EVERY_SECONDS: Final = 0.1

WhenFull = Literal["refuse", "drop"]


class Journal:
    """Packed records with their times, in a bounded log.

    `max_bytes` is where admission stops; the log itself may hold half as much again. Space for the records of requests
    in progress is reserved on disk at admission, so that they can be written even if the disk fills up. With
    `when_full="drop"` nothing is refused or reserved, and what does not fit is counted.
    """

    def __init__(self, directory: Path, *, max_bytes: int, when_full: WhenFull = "refuse") -> None:
        self._log = SegmentLog(directory, max_bytes=max_bytes + max_bytes // 2, time_of=_time_of)
        self._log.look_for_damage()
        self._max_bytes = max_bytes
        self._when_full = when_full
        self._room_bytes = 0  # that was there when it was last looked for, less what was written since
        self._segment = self._log.end.segment  # that the last record stands in
        self._promised_bytes = 0  # to the requests in progress when the last one was admitted
        self._ask_disk_at = 0.0  # monotonic seconds; before, a disk that was full is taken to be so still
        self.is_broken = False  # the last write failed
        self._had_disk_no_room = False  # to reserve when it was last asked
        self.before_release: Callable[[], None] | None = None
        self.dropped_records = 0  # of requests that were admitted: usage that is lost

    def promise(self, bytes_under_way: int) -> bool:
        """Reserve this much space for the requests in progress, including the one to be admitted. Return `False` if
        there is none.
        """
        is_known = bytes_under_way <= self._room_bytes and bytes_under_way <= self._log.reserved_bytes
        if not is_known and not self.has_room(bytes_under_way):
            return False
        self._promised_bytes = bytes_under_way
        return True

    def has_room(self, more_bytes: int) -> bool:
        """Return whether requests that need this much more may be admitted."""
        if self._when_full == "drop":
            return True
        left = self._max_bytes - self._log.pending_bytes
        if self.is_broken or more_bytes > left or not self._reserve(more_bytes):
            self._room_bytes = 0
            return False
        self._room_bytes = min(left, self._log.reserved_bytes)
        return True

    @property
    def is_over_bound(self) -> bool:
        """Return whether the size at which admission stops is reached."""
        return self._log.pending_bytes >= self._max_bytes

    @property
    def is_disk_full(self) -> bool:
        """Return whether the reason for the lack of space is the disk, rather than the maximum size."""
        return self._had_disk_no_room and not self.is_over_bound

    def append(self, time_unix_ns: int, packed: bytes) -> bool:
        """Write one record of an admitted request, which then survives the death of the process.

        Return `False`, and count a loss, if it cannot be written.
        """
        try:
            segment = self._log.put(_pack_time(time_unix_ns) + packed)
        except (LogFull, OSError) as error:
            self._note_broken(error)
            self.dropped_records += 1
            return False
        self._note_written(segment, _FRAME_BYTES + _TIME_BYTES + len(packed))
        return True

    def append_each(self, entries: Sequence[tuple[int, bytes]]) -> int:
        """Write records of admitted requests, with one write if possible; return how many were written."""
        if len(entries) > 1 and self._append_together(entries):
            return len(entries)
        return sum(self.append(at, packed) for at, packed in entries)

    def append_all(self, entries: Iterable[tuple[int, bytes]]) -> bool:
        """Write records without usage, all or none, if they take no space from requests in progress.

        Return `False` if they were not written. No loss is counted: the caller decides about it.
        """
        wanted = list(entries)
        size = sum(_FRAME_BYTES + _TIME_BYTES + len(packed) for _, packed in wanted)
        needed = self._promised_bytes + RECORD_ROOM_BYTES + size  # one more request can be admitted besides
        if self.is_over_bound or (self._when_full == "refuse" and not self._reserve(needed)):
            return False
        return self._append_together(wanted)

    def _append_together(self, entries: Sequence[tuple[int, bytes]]) -> bool:
        payloads = [_pack_time(at) + packed for at, packed in entries]
        try:
            segment = self._log.append_many(payloads).segment
        except (LogFull, OSError) as error:
            self._note_broken(error)
            return False
        self._note_written(segment, sum(map(len, payloads)) + _FRAME_BYTES * len(payloads))
        return True

    def _note_written(self, segment: int, size: int) -> None:
        self.is_broken = False
        if segment == self._segment:
            self._room_bytes -= size
        else:  # a new file's blocks are not reserved yet
            self._segment, self._room_bytes = segment, 0

    def _note_broken(self, error: Exception) -> None:
        if not self.is_broken:
            _log.error("journal cannot be written", extra={"reason": str(error)})
        self.is_broken = True
        self._room_bytes = 0

    def _reserve(self, more_bytes: int) -> bool:
        if self._log.reserved_bytes >= more_bytes:
            return True
        now = time.monotonic()
        if now < self._ask_disk_at:
            return False
        is_full = not self._log.reserve(more_bytes)
        if is_full:
            self._ask_disk_at = now + _ASK_DISK_EVERY_SECONDS
            if not self._had_disk_no_room:
                _log.error("disk full, all requests are refused", extra={"directory": str(self._log.directory)})
        self._had_disk_no_room = is_full
        return not is_full

    def read(self, after: Position, *, max_entries: int, max_bytes: int, until: Position | None = None) -> list[Entry]:
        """Read entries for shipping; see SegmentLog.read."""
        return self._log.read(after, max_entries=max_entries, max_bytes=max_bytes, until=until)

    def release(self, upto: Position) -> None:
        """Free the space of records that the collector acknowledged. What is computed from them is reported first."""
        if self.before_release is not None:
            self.before_release()
        self._log.release(upto)
        self.is_broken = False
        self._ask_disk_at = 0.0

    @property
    def cursor(self) -> Position:
        """Return the place of the first record that was not shipped."""
        return self._log.cursor

    @property
    def end(self) -> Position:
        """Return the place after the last record."""
        return self._log.end

    @property
    def pending_bytes(self) -> int:
        """Return the size of the records that the collector has not acknowledged."""
        return self._log.pending_bytes

    @property
    def max_bytes(self) -> int:
        """Return the size at which admission stops."""
        return self._max_bytes

    @property
    def corrupt_entries(self) -> int:
        """Return the number of unreadable ranges found since this process started."""
        return self._log.corrupt_entries

    @property
    def missing(self) -> Missing:
        """Return what disk damage took of unshipped records; reported until `damaged/` is removed."""
        return self._log.missing

    def close(self) -> None:
        """Close the log's files."""
        self._log.close()


def _time_of(payload: bytes) -> int | None:
    return int.from_bytes(payload[:_TIME_BYTES], "little") if len(payload) >= _TIME_BYTES else None


def unpack_entry(entry: Entry) -> tuple[int, bytes]:
    """Return an entry's time (Unix nanoseconds) and packed record."""
    return int.from_bytes(entry.payload[:_TIME_BYTES], "little"), entry.payload[_TIME_BYTES:]
