"""A bounded log on disk: appended by one process, read in order, released when the reader is done.

The gateway's journal and the collector's spool are segment logs. An entry is a header
(`backends/segment_log/segment_frames.py`) and a payload, appended to a numbered segment file by one write. Written
entries survive `kill -9`, and with fsync="always" a power failure. Positions are never reused: every opening starts a
new segment. Reading and releasing need no free disk space, so that a full disk can be drained. The log does not
interpret payloads.

Entries are numbered without gaps. Damage loses only the entries whose bytes it overlaps; missing ones are detected by
their numbers, even at the end of a segment or for a whole segment (`backends/segment_log/segment_numbers.py`), and
recorded (`backends/segment_log/segment_damage.py`).
"""

import fcntl
import logging
import os
import struct
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeVar

from msgspec.structs import replace

from backends.segment_log.disk_room import DISK_FULL
from backends.segment_log.segment_damage import DamageBook, Loss, Missing, TimeOf, survey
from backends.segment_log.segment_file import SegmentFile
from backends.segment_log.segment_frames import HEADER_BYTES, frame, frames, is_torn, last_number, marker_of, number_at
from backends.segment_log.segment_numbers import SegmentNumbers
from backends.segment_log.slot_file import SlotFile
from contracts.errors import ConfigurationError

_log = logging.getLogger(__name__)

WhatT = TypeVar("WhatT")
Fsync = Literal["never", "always"]

_CURSOR: Final = struct.Struct("<QQ")  # segment, offset
_MAX_PAYLOAD_BYTES: Final = (1 << 31) - 1  # one write() moves at most this much on Linux
_SUFFIX: Final = ".segment"


class LogFull(Exception):
    """The log's limit or the disk is full; nothing of the refused append was written."""


class DiskFull(LogFull):
    """The log's disk is full; nothing of the refused append was written."""


class Position(NamedTuple):
    """A position between entries: a segment's number and a byte offset in it."""

    segment: int
    offset: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One payload with the positions before and after it."""

    start: Position
    end: Position
    payload: bytes


class SegmentLog:
    """An append-only log in a directory of its own. Methods may be called from several threads of one process.

    `max_bytes` limits what is appended and not yet released, headers included. On disk there are also at most the
    released part of one segment, and `retain_bytes` of released segments, which can still be read from `start` on.
    Raises ConfigurationError if the directory cannot be written or another process uses it.
    """

    def __init__(
        self,
        directory: Path,
        *,
        max_bytes: int,
        segment_bytes: int = 16 << 20,
        fsync: Fsync = "never",
        retain_bytes: int = 0,
        time_of: TimeOf | None = None,
    ) -> None:
        """`time_of` returns an entry's time, which is used only to date missing entries."""
        self.directory = directory
        self.max_bytes = max_bytes
        self.corrupt_entries = 0  # unreadable parts, each of one or more entries
        self.truncated_bytes = 0  # of a torn last entry, cut off when the log was opened
        self._segment_bytes = segment_bytes
        self._fsync = fsync == "always"
        self._retain_bytes = retain_bytes
        self._lock = threading.Lock()
        self._take_lock, self._give_lock = self._lock.acquire, self._lock.release
        self._time_of = time_of
        self._counted_upto = Position(0, 0)
        self._looking = threading.Lock()
        self._looked_at: set[Position] = set()  # damage whose losses are recorded
        self._open_files = ExitStack()
        self._is_reserving = False
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._open_files.callback(os.close, _hold(directory))
            self._damage = DamageBook(directory)
            self._sizes = segment_sizes(directory)  # ascending; the last one is being written
            self._numbers = SegmentNumbers(directory / "numbers", self._written_marker())
            self._open_files.callback(self._numbers.close)
            self._marker = self._numbers.marker
            is_last_damaged = self._mend_last()
            self._cursor_file = SlotFile(directory / "cursor")
            self._open_files.callback(self._cursor_file.close)
            cursor = decode_cursor(self._cursor_file.value)
            written = [segment for segment, first, _ in self._numbers.segments() if first < self._numbers.next]
            self._number = max([*self._sizes, *written, cursor.segment]) + 1
            self._current = self._segment(self._number)
            self._open_files.callback(lambda: self._current.close())
            self._numbers.begin(self._number)
            self._cursor = cursor
            self._look_for_lost_segments()
            if is_last_damaged:
                self._look_at(max(self._sizes))
            self._cursor = self._settled(cursor)
            self._pending = self._bytes_from(self._cursor)
            self._drop_released(self._retain_bytes)
        except OSError as error:
            self.close()
            raise ConfigurationError(
                f"directory {directory} cannot be written ({error.strerror}); "
                "choose a writable data directory with --data or TOLLKEEPER_DATA"
            ) from error

    # --- writing ---

    def append(self, payload: bytes) -> Position:
        """Append one entry and return the position after it. Raises LogFull; see `append_many`."""
        return self.append_many((payload,))

    def put(self, payload: bytes) -> int:
        """Append one entry like `append`, but faster; return the number of its segment."""
        size = len(payload) + HEADER_BYTES
        self._take_lock()  # faster than `with`
        try:
            current, fits = self._current, self._pending + size <= self.max_bytes
            if fits and current.written + size <= self._segment_bytes and current.has_room_for(size):
                number = self._numbers.next
                try:
                    current.write(frame(payload, number, self._marker))
                except OSError as error:
                    if error.errno not in DISK_FULL:
                        raise
                else:
                    self._numbers.note_next(number + 1)
                    self._pending += size
                    return self._number
        finally:
            self._give_lock()
        return self.append_many((payload,)).segment

    def append_many(self, payloads: Sequence[bytes]) -> Position:
        """Append entries by one write, all or none, and return the position after the last.

        Raises LogFull if they would exceed `max_bytes` or the disk is full, OSError if the disk fails.
        """
        size = sum(map(len, payloads)) + HEADER_BYTES * len(payloads)
        with self._lock:
            if self._pending + size > self.max_bytes or size > _MAX_PAYLOAD_BYTES:
                raise LogFull(
                    f"log {self.directory} holds {self._pending} of {self.max_bytes} bytes not yet released; "
                    f"{size} more do not fit"
                )
            number, marker = self._numbers.next, self._marker
            block = b"".join([frame(payload, number + at, marker) for at, payload in enumerate(payloads)])
            try:
                self._paid_with_what_is_released(self._put, block)
            except OSError as error:
                if error.errno in DISK_FULL:
                    raise DiskFull(f"log {self.directory} cannot grow: {os.strerror(error.errno)}") from error
                raise
            self._numbers.note_next(number + len(payloads))
            self._pending += size
            return self._end

    def reserve(self, wanted: int) -> bool:
        """Reserve disk blocks so that `wanted` bytes, headers included, can be appended even if the disk becomes full.

        From the first call on, entries are written only into reserved blocks. Returns false if the disk has no space.
        """
        with self._lock:
            self._is_reserving = True
            try:
                self._paid_with_what_is_released(lambda size: self._current.take_room(size), wanted)
            except OSError:
                return False
            return True

    @property
    def reserved_bytes(self) -> int:
        """Return how many bytes can be appended even if the disk becomes full."""
        return self._current.reserved_bytes

    def _put(self, block: bytes) -> None:
        if self._current.written and self._current.written + len(block) > self._segment_bytes:
            self._rotate(len(block))
        self._current.take_room(len(block) if self._is_reserving else 0)
        self._current.write(block)

    def _paid_with_what_is_released(self, act: Callable[[WhatT], None], what: WhatT) -> None:
        """Call `act`; if the disk is full and released segments can be deleted, delete them and call it again."""
        try:
            act(what)
        except OSError as error:
            if error.errno not in DISK_FULL or not self._give_up_released():
                raise
            act(what)

    def _rotate(self, wanted: int) -> None:
        """Continue in a new segment with the same reservation; if the disk has no space, stay in the current one."""
        following = self._segment(self._number + 1)
        try:
            following.take_room(max(self._current.reserved_bytes, wanted) if self._is_reserving else 0)
        except OSError as error:
            following.discard()
            if error.errno in DISK_FULL:
                return  # a segment that is too long is better than a record that is lost
            raise
        self._enter(self._number + 1, following)

    def _give_up_released(self) -> bool:
        """If all entries are released, delete all segments, including retained ones, to free disk space."""
        if self._cursor != self._end or not any(self._sizes_now().values()):
            return False
        if self._current.written:
            number = self._number + 1
            self._save_cursor(Position(number, 0))
            self._enter(number, self._segment(number))
            self._numbers.note_cursor(self._numbers.next)
            self._cursor, self._pending = self._end, 0
        self._drop_released(retain_bytes=0)
        return True

    def _segment(self, number: int) -> SegmentFile:
        return SegmentFile(self._path(number), is_synced=self._fsync)

    def _enter(self, number: int, segment: SegmentFile) -> None:
        """Close the current segment, and write to another."""
        self._sizes_now()
        self._current.close()
        self._number, self._current = number, segment
        self._sizes[number] = 0
        self._numbers.begin(number)

    def _sizes_now(self) -> dict[int, int]:
        """Return each segment's size in bytes, that of the current one updated."""
        self._sizes[self._number] = self._current.written
        return self._sizes

    @property
    def _end(self) -> Position:
        return Position(self._number, self._current.written)

    # --- reading ---

    def read(self, after: Position, *, max_entries: int, max_bytes: int, until: Position | None = None) -> list[Entry]:
        """Return entries in order from position `after` on, none ending beyond `until`.

        Returns at least one entry if there is one, even if it alone exceeds `max_bytes` of payload. Unreadable entries
        are skipped, and missing ones recorded.
        """
        with self._lock:
            limit = self._end
            sizes = list(self._sizes_now().items())
            written, following = self._number, self._numbers.next
        if until is not None:
            limit = min(limit, until)
        found: list[Entry] = []
        for number, size in sizes:
            if not after.segment <= number <= limit.segment:
                continue
            start = after.offset if number == after.segment else 0
            bounds, beyond = (limit, max_entries, max_bytes), following if number == written else 0
            if start < size and not self._read_segment(number, start, size, beyond, bounds, found):
                break
        return found

    def _read_segment(
        self,
        number: int,
        start: int,
        size: int,
        beyond: int,
        bounds: tuple[Position, int, int],
        found: list[Entry],
    ) -> bool:
        """Read a segment's entries into `found`; return false if a limit was reached."""
        limit, max_entries, max_bytes = bounds
        try:
            file = open(self._path(number), "rb", buffering=0)
        except FileNotFoundError:
            return True  # released by another thread since the sizes were copied
        taken = sum(len(entry.payload) for entry in found)
        last = 0
        with file:
            for begin, end, payload, counted in frames(file.fileno(), start, size, (self._marker,)):
                if payload is None:
                    self._count_damage(Position(number, end))
                    self._look_at(number, begin, size, beyond)
                    last = 0
                    continue
                if last and counted and counted != last + 1:
                    self._look_at(number, begin, size, beyond)
                taken += len(payload)
                entry = Entry(Position(number, begin), Position(number, end), payload)
                if entry.end > limit or len(found) >= max_entries or (found and taken > max_bytes):
                    return False
                last = counted
                found.append(entry)
        if last and not beyond:
            high = self._numbers.range_of(number)[1]
            if high > last + 1:
                self._look_at(number, size, size, beyond)
        return True

    def _count_damage(self, place: Position) -> None:
        if place > self._counted_upto:  # do not count the same damage twice
            self._counted_upto = place
            self.corrupt_entries += 1

    # --- damage ---

    @property
    def missing(self) -> Missing:
        """Return what damage has destroyed before it was released, including earlier openings, as far as it was
        detected.
        """
        return self._damage.missing

    def look_for_damage(self) -> None:
        """Read everything that is not released, and record what is missing. Raises OSError."""
        with self._lock:
            sizes, cursor = dict(self._sizes_now()), self._cursor
            written, following = self._number, self._numbers.next
        for number, size in sizes.items():
            start = cursor.offset if number == cursor.segment else 0
            if number < cursor.segment or start >= size:
                continue
            with open(self._path(number), "rb", buffering=0) as file:
                last = last_number(file.fileno(), start, size, self._marker)
            beyond = following if number == written else 0
            high = beyond or self._numbers.range_of(number)[1]
            if not last or (high and last + 1 < high):
                self._look_at(number, -1, size, beyond)

    def _look_at(self, number: int, begin: int = -1, size: int = 0, beyond: int = 0) -> None:
        """Record what is missing of a segment, unless that was done before for the damage at `begin`.

        `size` and `beyond` are those of the time of reading: `beyond` is the number of the next entry then, if this was
        the current segment, otherwise 0.
        """
        with self._looking:
            place = Position(number, begin)
            if place not in self._looked_at and number >= self._cursor.segment:
                self._looked_at.add(place)
                self._write_down(number, size, beyond)

    def _write_down(self, number: int, size: int, beyond: int) -> None:
        cursor = self._cursor
        low, high, begun_ns, ended_ns = self._numbers.range_of(number)
        bounds = (low, beyond, begun_ns, 0) if beyond else (low, high, begun_ns, ended_ns)
        path = self._path(number)
        try:
            with open(path, "rb", buffering=0) as file:
                size = size or os.fstat(file.fileno()).st_size
                losses = survey(file.fileno(), number, size, (self._marker,), bounds, self._time_of)
        except FileNotFoundError:
            return  # released by another thread
        if number == cursor.segment:
            parts = [_not_released(loss, cursor, self._numbers.cursor) for loss in losses]
            losses = [loss for loss in parts if loss is not None]
        self._damage.add(losses, path)

    def _look_for_lost_segments(self) -> None:
        """Record the unreleased entries of segments whose files are gone or were truncated before these entries."""
        known = self._numbers.segments()
        for (number, first, begun_ns), (_, following, ended_ns) in pairwise(known):
            if number < self._cursor.segment or number >= self._number:
                continue
            start = 0
            if number == self._cursor.segment:
                start, first = self._cursor.offset, max(first, self._numbers.cursor or following)
            if self._sizes.get(number, 0) <= start and first < following:
                loss = Loss(number, 0, 0, time.time_ns(), following - first, first, following - 1, begun_ns, ended_ns)
                self._damage.add([loss], self._path(number))

    # --- releasing ---

    def release(self, upto: Position) -> None:
        """Release the entries before position `upto`; the position is on disk before old segments are deleted.

        A position before the cursor changes nothing. Raises ValueError for a position beyond the end.
        """
        with self._lock:
            if upto <= self._cursor:
                return
            if upto > self._end:
                raise ValueError(f"{upto} lies beyond the log's end, {self._end}")
            cursor = self._settled(upto)
            self._save_cursor(cursor)
            self._numbers.note_cursor(self._number_at(cursor))
            self._cursor = cursor
            self._pending = self._bytes_from(cursor)
            self._drop_released(self._retain_bytes)

    def _save_cursor(self, place: Position) -> None:
        self._cursor_file.write(_CURSOR.pack(place.segment, place.offset), sync=self._fsync)

    def _number_at(self, place: Position) -> int:
        """Return the number of the entry at a position; 0 if unknown."""
        if place == self._end:
            return self._numbers.next
        try:
            with open(self._path(place.segment), "rb", buffering=0) as file:
                return number_at(file.fileno(), place.offset, (self._marker,))
        except OSError:
            return 0

    def _drop_released(self, retain_bytes: int) -> None:
        released = [number for number in self._sizes if number < self._cursor.segment]
        spare = sum(self._sizes[number] for number in released) - retain_bytes
        for number in released:
            if spare <= 0:
                return
            spare -= self._sizes.pop(number)
            self._path(number).unlink(missing_ok=True)

    # --- figures ---

    @property
    def start(self) -> Position:
        """Return the oldest position that can still be read; before `cursor` if segments are retained."""
        with self._lock:
            return Position(next(iter(self._sizes)), 0)

    @property
    def cursor(self) -> Position:
        """Return the position of the first entry that is not released."""
        return self._cursor

    @property
    def end(self) -> Position:
        """Return the position after the last entry."""
        with self._lock:
            return self._end

    @property
    def pending_bytes(self) -> int:
        """Return the bytes that are appended and not released, headers included."""
        return self._pending

    @property
    def is_full(self) -> bool:
        """Return whether not even an empty entry fits."""
        return self._pending + HEADER_BYTES > self.max_bytes

    def close(self) -> None:
        """Close the files and unlock the directory. May be called repeatedly."""
        with self._lock:
            self._open_files.close()

    # --- opening ---

    def _path(self, number: int) -> Path:
        return segment_path(self.directory, number)

    def _written_marker(self) -> int:
        """Return the marker of the newest segment that has one, in case the file of numbers is lost."""
        for number, size in reversed(self._sizes.items()):
            with open(self._path(number), "rb", buffering=0) as file:
                if marker := marker_of(file.fileno(), size):
                    return marker
        return 0

    def _mend_last(self) -> bool:
        """Truncate a torn entry at the end of the last segment, left by the process that was writing it, and set the
        number of the next entry.

        Returns whether anything else is missing in it.
        """
        if self._numbers.is_new:
            self._count_on()
        if not self._sizes:
            return False
        number, size = next(reversed(self._sizes.items()))
        low = self._numbers.range_of(number)[0]
        sound, last, is_damaged = 0, max(low - 1, 0), False
        is_counted = low > 0
        with open(self._path(number), "r+b", buffering=0) as file:
            for begin, end, payload, counted in frames(file.fileno(), 0, size, (self._marker,), last):
                sound = end
                if counted:
                    last, is_counted = counted, True
                if payload is None:
                    # A torn entry is not missing: its append never returned.
                    is_missing = is_counted and self._numbers.next > last + 1
                    if end == size and not is_missing and is_torn(file.fileno(), begin, size):
                        sound = begin
                    else:
                        is_damaged = True
            os.ftruncate(file.fileno(), sound)  # also if nothing is torn, to release reserved blocks
        if self._numbers.next <= last:
            self._numbers.note_next(last + 1)
        self.truncated_bytes = size - sound
        self._sizes[number] = sound
        return is_damaged or (is_counted and self._numbers.next > last + 1)

    def _count_on(self) -> None:
        """Determine the number of the next entry from the segments, because the file of numbers is new."""
        last = 0
        for number, size in self._sizes.items():
            with open(self._path(number), "rb", buffering=0) as file:
                for found in frames(file.fileno(), 0, size, (self._marker,)):
                    last = max(last, found.number)
        if self._numbers.was_damaged:
            _log.error(
                "file of numbers damaged: entries missing at the ends of segments cannot be counted",
                extra={"directory": str(self.directory)},
            )
        self._numbers.note_next(last + 1)

    def _settled(self, place: Position) -> Position:
        """Move a position at the end of a finished segment, or in a lost one, to the start of the next segment."""
        for number, size in self._sizes_now().items():
            if number == place.segment and (place.offset < size or number == self._number):
                return place
            if number > place.segment:
                return Position(number, 0)
        return self._end

    def _bytes_from(self, place: Position) -> int:
        whole = sum(size for number, size in self._sizes_now().items() if number >= place.segment)
        return whole - (place.offset if place.segment in self._sizes else 0)


def _not_released(loss: Loss, cursor: Position, number: int) -> Loss | None:
    """Return the part of a loss that lies after the cursor; `number` is that of the entry at the cursor."""
    if loss.end <= cursor.offset and loss.end > loss.begin:
        return None
    if not number or loss.first is None or loss.last is None or loss.first >= number:
        return loss
    if loss.last < number:
        return None
    return replace(loss, first=number, entries=loss.last - number + 1)


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


def segment_path(directory: Path, number: int) -> Path:
    """Return the path of a segment."""
    return directory / f"{number:012d}{_SUFFIX}"


def segment_sizes(directory: Path) -> dict[int, int]:
    """Return the sizes in bytes of a directory's segments by number, ascending."""
    found = sorted(path for path in directory.glob(f"*{_SUFFIX}") if path.stem.isdigit())
    return {int(path.stem): path.stat().st_size for path in found}


def decode_cursor(saved: bytes | None) -> Position:
    """Return the stored position; the beginning if there is none, because repeated entries are better than
    lost ones.
    """
    return Position(0, 0) if saved is None or len(saved) != _CURSOR.size else Position(*_CURSOR.unpack(saved))
