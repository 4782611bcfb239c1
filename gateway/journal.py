"""The gateway's records on disk until the collector has them: written before a client gets its answer's end."""

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal

from backends.segments import Entry, LogFull, Position, SegmentLog

_log = logging.getLogger(__name__)

_TIME_BYTES: Final = 8

WhenFull = Literal["refuse", "drop"]


class Journal:
    """Packed records with their times, in a bounded log.

    `max_bytes` is where admission stops; the log itself holds half as much again, so that what was admitted
    before can always be written. With `when_full="drop"` nothing is refused and what does not fit is counted.
    """

    def __init__(self, directory: Path, *, max_bytes: int, when_full: WhenFull = "refuse") -> None:
        self._log = SegmentLog(directory, max_bytes=max_bytes + max_bytes // 2)
        self._max_bytes = max_bytes
        self._when_full = when_full
        self.is_broken = False  # the disk refused the last write
        self.dropped_records = 0

    def has_room(self, more_bytes: int) -> bool:
        """Say whether this much more may be admitted."""
        if self._when_full == "drop":
            return True
        return not self.is_broken and self._log.pending_bytes + more_bytes <= self._max_bytes

    @property
    def is_over_bound(self) -> bool:
        """Say whether the bound at which admission stops is reached."""
        return self._log.pending_bytes >= self._max_bytes

    def append(self, time_unix_ns: int, packed: bytes) -> bool:
        """Write one record; it survives the process's death. Gives False, and counts, where it cannot be kept."""
        try:
            self._log.append(time_unix_ns.to_bytes(_TIME_BYTES, "little") + packed)
        except (LogFull, OSError) as error:
            if not self.is_broken:
                _log.error("journal cannot be written", extra={"reason": str(error)})
            self.is_broken = True
            self.dropped_records += 1
            return False
        self.is_broken = False
        return True

    def append_all(self, entries: Iterable[tuple[int, bytes]]) -> bool:
        """Write records with their times, all or none, in one go. Gives False where they cannot be kept.

        Unlike `append` it counts no loss: the caller still has them and comes again.
        """
        try:
            self._log.append_many([time.to_bytes(_TIME_BYTES, "little") + packed for time, packed in entries])
        except (LogFull, OSError) as error:
            if not self.is_broken:
                _log.error("journal cannot be written", extra={"reason": str(error)})
            self.is_broken = True
            return False
        self.is_broken = False
        return True

    def read(self, after: Position, *, max_entries: int, max_bytes: int, until: Position | None = None) -> list[Entry]:
        """Read entries for shipping; see SegmentLog.read."""
        return self._log.read(after, max_entries=max_entries, max_bytes=max_bytes, until=until)

    def release(self, upto: Position) -> None:
        """Give up what the collector has acknowledged."""
        self._log.release(upto)
        self.is_broken = False

    @property
    def cursor(self) -> Position:
        """Where the unshipped records begin."""
        return self._log.cursor

    @property
    def end(self) -> Position:
        """The place after the last record."""
        return self._log.end

    @property
    def pending_bytes(self) -> int:
        """Bytes not yet acknowledged by the collector."""
        return self._log.pending_bytes

    @property
    def max_bytes(self) -> int:
        """The bound at which admission stops."""
        return self._max_bytes

    @property
    def corrupt_entries(self) -> int:
        """Entries whose checksum did not hold."""
        return self._log.corrupt_entries

    def close(self) -> None:
        """Close the log's files."""
        self._log.close()


def unpack_entry(entry: Entry) -> tuple[int, bytes]:
    """Give an entry's time (Unix nanoseconds) and packed record."""
    return int.from_bytes(entry.payload[:_TIME_BYTES], "little"), entry.payload[_TIME_BYTES:]
