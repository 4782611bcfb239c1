"""A bounded log on disk: appended by one process, read in order, released when the reader is done.

The gateway's journal and the collector's spool are both this. An entry is a little-endian header (length and
CRC-32 of length and payload, 4 bytes each) and the payload, appended to a numbered segment file by one write;
what has been written survives `kill -9`, and with fsync="always" also a power cut. Positions are never reused:
every opening begins a new segment. What the entries mean is their owner's business.
"""

import errno
import fcntl
import os
import struct
import threading
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from contracts.errors import ConfigurationError

Fsync = Literal["never", "always"]

_HEADER: Final = struct.Struct("<II")  # payload length, CRC-32
_LENGTH: Final = struct.Struct("<I")
_CURSOR: Final = struct.Struct("<QQI")  # segment, offset, CRC-32 of the two
_CHUNK_BYTES: Final = 1 << 20
_MAX_PAYLOAD_BYTES: Final = (1 << 31) - 1  # one write() moves at most this much on Linux
_SUFFIX: Final = ".segment"


class LogFull(Exception):
    """The log's bound, or the disk's, is reached; nothing of the refused append was kept."""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place between entries: the segment's number and a byte offset in it."""

    segment: int
    offset: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One payload and the places before and after it."""

    start: Position
    end: Position
    payload: bytes


class SegmentLog:
    """An append-only log in a directory of its own. Methods may be called from several threads of one process.

    `max_bytes` bounds what is appended and not yet released, headers included; on disk stand besides at most the
    released part of one segment and `retain_bytes` of released segments, which can still be read from `start`.
    Raises ConfigurationError where the directory cannot be written or another process holds it.
    """

    def __init__(
        self,
        directory: Path,
        *,
        max_bytes: int,
        segment_bytes: int = 16 << 20,
        fsync: Fsync = "never",
        retain_bytes: int = 0,
    ) -> None:
        self.directory = directory
        self.max_bytes = max_bytes
        self.corrupt_entries = 0  # entries, or rests of segments, whose checksum did not hold
        self.truncated_bytes = 0  # of a torn last entry, cut off when the log was opened
        self._segment_bytes = segment_bytes
        self._fsync = fsync == "always"
        self._retain_bytes = retain_bytes
        self._lock = threading.Lock()
        self._counted_upto = Position(0, 0)
        self._descriptor = -1
        self._lock_descriptor = -1
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock_descriptor = _hold(directory)
            self._sizes = _segment_sizes(directory)  # ascending; the last one is being written
            self._mend_last()
            cursor = _load_cursor(directory)
            self._begin_segment(max([*self._sizes, cursor.segment]) + 1)
            self._cursor = self._settled(cursor)
            self._pending = self._bytes_from(self._cursor)
            self._drop_released()
        except OSError as error:
            self.close()
            raise ConfigurationError(
                f"directory {directory} cannot be written ({error.strerror}); "
                "choose a writable data directory with --data or TOLLKEEPER_DATA"
            ) from error

    # --- writing ---

    def append(self, payload: bytes) -> Position:
        """Append one entry and give the place after it. Raises LogFull; see `append_many`."""
        return self.append_many((payload,))

    def append_many(self, payloads: Sequence[bytes]) -> Position:
        """Append entries by one write and give the place after the last; all are kept or none.

        Raises LogFull when they would exceed `max_bytes` or the disk is full, OSError when the disk fails.
        """
        parts: list[bytes] = []
        for payload in payloads:
            length = _LENGTH.pack(len(payload))
            parts += (length, _LENGTH.pack(zlib.crc32(payload, zlib.crc32(length))), payload)
        block = b"".join(parts)
        with self._lock:
            if self._pending + len(block) > self.max_bytes or len(block) > _MAX_PAYLOAD_BYTES:
                raise LogFull(
                    f"log {self.directory} holds {self._pending} of {self.max_bytes} bytes not yet released; "
                    f"{len(block)} more do not fit"
                )
            if self._written and self._written + len(block) > self._segment_bytes:
                self._begin_segment(self._number + 1)
            self._write(block)
            return Position(self._number, self._written)

    def _write(self, block: bytes) -> None:
        try:
            written = os.write(self._descriptor, block)
            if written != len(block):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if self._fsync:
                os.fdatasync(self._descriptor)
        except OSError as error:
            os.ftruncate(self._descriptor, self._written)  # else a half entry would stand before the next one
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise LogFull(f"log {self.directory} cannot grow: {os.strerror(error.errno)}") from error
            raise
        self._written += written
        self._sizes[self._number] = self._written
        self._pending += written

    def _begin_segment(self, number: int) -> None:
        descriptor = os.open(self._path(number), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._number, self._written = descriptor, number, 0
        self._sizes[number] = 0
        if self._fsync:
            _sync_directory(self.directory)

    # --- reading ---

    def read(self, after: Position, *, max_entries: int, max_bytes: int, until: Position | None = None) -> list[Entry]:
        """Read entries in order, beginning at `after`, none of them ending beyond `until`.

        Gives at least one entry where there is one, even if it alone exceeds `max_bytes` of payload. Damaged
        entries are left out and counted: alone where their neighbour is sound, else with the rest of the segment.
        """
        with self._lock:
            limit = Position(self._number, self._written)
            sizes = list(self._sizes.items())
        if until is not None:
            limit = min(limit, until)
        found: list[Entry] = []
        taken = 0
        for number, size in sizes:
            if not after.segment <= number <= limit.segment:
                continue
            for entry in self._entries(number, after.offset if number == after.segment else 0, size):
                taken += len(entry.payload)
                if entry.end > limit or len(found) >= max_entries or (found and taken > max_bytes):
                    return found
                found.append(entry)
        return found

    def _entries(self, number: int, start: int, size: int) -> Iterator[Entry]:
        if start >= size:
            return
        try:
            file = open(self._path(number), "rb", buffering=0)
        except FileNotFoundError:
            return  # released by another thread since the sizes were copied
        with file:
            for begin, end, payload in _frames(file.fileno(), start, size):
                if payload is None:
                    self._count_damage(Position(number, end))
                else:
                    yield Entry(Position(number, begin), Position(number, end), payload)

    def _count_damage(self, place: Position) -> None:
        if place > self._counted_upto:  # a second reading of the same place is not a second loss
            self._counted_upto = place
            self.corrupt_entries += 1

    # --- releasing ---

    def release(self, upto: Position) -> None:
        """Give up the entries before `upto`, for good: the place is on disk before the old segments go.

        A place before the cursor changes nothing. Raises ValueError for a place beyond the end.
        """
        with self._lock:
            if upto <= self._cursor:
                return
            if upto > Position(self._number, self._written):
                raise ValueError(f"{upto} lies beyond the log's end, {Position(self._number, self._written)}")
            cursor = self._settled(upto)
            _save_cursor(self.directory, cursor, sync=self._fsync)
            self._cursor = cursor
            self._pending = self._bytes_from(cursor)
            self._drop_released()

    def _drop_released(self) -> None:
        released = [number for number in self._sizes if number < self._cursor.segment]
        spare = sum(self._sizes[number] for number in released) - self._retain_bytes
        for number in released:
            if spare <= 0:
                return
            spare -= self._sizes.pop(number)
            self._path(number).unlink(missing_ok=True)

    # --- figures ---

    @property
    def start(self) -> Position:
        """The oldest place that can still be read; before `cursor` where segments are retained."""
        with self._lock:
            return Position(next(iter(self._sizes)), 0)

    @property
    def cursor(self) -> Position:
        """Where the entries begin that are not released."""
        return self._cursor

    @property
    def end(self) -> Position:
        """The place after the last entry."""
        with self._lock:
            return Position(self._number, self._written)

    @property
    def pending_bytes(self) -> int:
        """Bytes appended and not released, headers included."""
        return self._pending

    @property
    def is_full(self) -> bool:
        """Whether not even an empty entry fits any more."""
        return self._pending + _HEADER.size > self.max_bytes

    def close(self) -> None:
        """Close the files and let another process open the directory. Calling it again does nothing."""
        with self._lock:
            for descriptor in (self._descriptor, self._lock_descriptor):
                if descriptor >= 0:
                    os.close(descriptor)
            self._descriptor = self._lock_descriptor = -1

    # --- opening ---

    def _path(self, number: int) -> Path:
        return self.directory / f"{number:012d}{_SUFFIX}"

    def _mend_last(self) -> None:
        """Cut a torn entry off the last segment: the one that was being written when the process ended."""
        if not self._sizes:
            return
        number, size = next(reversed(self._sizes.items()))
        sound = 0
        with open(self._path(number), "r+b", buffering=0) as file:
            for begin, end, payload in _frames(file.fileno(), 0, size):
                sound = end
                if payload is None and _is_torn(file.fileno(), begin, size):
                    sound = begin
            if sound < size:
                os.ftruncate(file.fileno(), sound)
        self.truncated_bytes = size - sound
        self._sizes[number] = sound

    def _settled(self, place: Position) -> Position:
        """Move a place at the end of a finished segment, or in a lost one, to the start of the next there is."""
        for number, size in self._sizes.items():
            if number == place.segment and (place.offset < size or number == self._number):
                return place
            if number > place.segment:
                return Position(number, 0)
        return Position(self._number, self._written)

    def _bytes_from(self, place: Position) -> int:
        whole = sum(size for number, size in self._sizes.items() if number >= place.segment)
        return whole - (place.offset if place.segment in self._sizes else 0)


def _frames(descriptor: int, start: int, size: int) -> Iterator[tuple[int, int, bytes | None]]:
    """Walk a segment: (start, end, payload) of each entry, with payload `None` for a damaged stretch."""
    offset, base, chunk = start, start, b""
    while offset < size:
        head = chunk[offset - base : offset - base + _HEADER.size]
        length, checksum = _HEADER.unpack(head) if len(head) == _HEADER.size else (0, 0)
        end = offset + _HEADER.size + length
        if base + len(chunk) < min(end, size):
            wanted = min(max(_CHUNK_BYTES, end - offset), size - offset)
            base, chunk = offset, os.pread(descriptor, wanted, offset)
            if len(chunk) < wanted:
                size = offset + len(chunk)  # someone cut the file: judge what is left of it
            continue
        payload = chunk[offset - base + _HEADER.size : end - base]
        if end <= size and len(head) == _HEADER.size and checksum == zlib.crc32(payload, zlib.crc32(head[:4])):
            yield offset, end, payload
        else:
            end = end if end < size and _is_sound(descriptor, end, size) else size
            yield offset, end, None
        offset = end


def _is_sound(descriptor: int, offset: int, size: int) -> bool:
    head = os.pread(descriptor, _HEADER.size, offset)
    if len(head) < _HEADER.size or offset + _HEADER.size + _LENGTH.unpack(head[:4])[0] > size:
        return False
    length, checksum = _HEADER.unpack(head)
    payload = os.pread(descriptor, length, offset + _HEADER.size)
    return bool(checksum == zlib.crc32(payload, zlib.crc32(head[:4])))


def _is_torn(descriptor: int, offset: int, size: int) -> bool:
    """Whether the entry at `offset` is cut short, as opposed to complete and damaged."""
    head = os.pread(descriptor, min(_HEADER.size, size - offset), offset)
    return len(head) < _HEADER.size or bool(offset + _HEADER.size + _LENGTH.unpack(head[:4])[0] > size)


def _hold(directory: Path) -> int:
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise ConfigurationError(
            f"directory {directory} is in use by another process; stop it or choose another data directory "
            "with --data or TOLLKEEPER_DATA"
        ) from error
    return descriptor


def _segment_sizes(directory: Path) -> dict[int, int]:
    found = sorted(path for path in directory.glob(f"*{_SUFFIX}") if path.stem.isdigit())
    return {int(path.stem): path.stat().st_size for path in found}


def _load_cursor(directory: Path) -> Position:
    """Read the released place. A missing or damaged file means the beginning: repeated is better than lost."""
    try:
        segment, offset, checksum = _CURSOR.unpack((directory / "cursor").read_bytes())
    except (FileNotFoundError, struct.error):
        return Position(0, 0)
    return Position(segment, offset) if checksum == _cursor_checksum(segment, offset) else Position(0, 0)


def _save_cursor(directory: Path, place: Position, *, sync: bool) -> None:
    draft = directory / "cursor.draft"
    with open(draft, "wb") as file:
        file.write(_CURSOR.pack(place.segment, place.offset, _cursor_checksum(place.segment, place.offset)))
        if sync:
            file.flush()
            os.fsync(file.fileno())
    os.replace(draft, directory / "cursor")
    if sync:
        _sync_directory(directory)


def _cursor_checksum(segment: int, offset: int) -> int:
    return zlib.crc32(f"{segment}:{offset}".encode())


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
