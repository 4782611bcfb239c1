"""A bounded log on disk: appended by one process, read in order, released when the reader is done.

The gateway's journal and the collector's spool are both this. An entry is a header
(`backends/segment_log/segment_frames.py`) and
the payload, appended to a numbered segment file by one write; what has been written survives `kill -9`, and with
fsync="always" also a power cut. Positions are never reused: every opening begins a new segment. Reading and releasing
need no free block, so that a full disk can be drained. What the entries mean is their owner's business.

Entries are numbered without a hole. Damage loses those whose bytes it overlaps; what is missing is known by its
numbers, also at the end of a segment and of a whole one (`backends/segment_log/segment_numbers.py`), and written down
(`backends/segment_log/segment_damage.py`).
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
    """The log's bound, or the disk's, is reached; nothing of the refused append was kept."""


class DiskFull(LogFull):
    """The disk under the log is full; nothing of the refused append was kept."""


class Position(NamedTuple):
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
    released part of one segment and `retain_bytes` of released segments, which can still be read from `start`. Raises
    ConfigurationError if the directory cannot be written or another process holds it.
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
        """`time_of` reads an entry's time, which is asked for only to say of when missing entries are."""
        self.directory = directory
        self.max_bytes = max_bytes
        self.corrupt_entries = 0  # stretches that could not be read, of one entry or of several
        self.truncated_bytes = 0  # of a torn last entry, cut off when the log was opened
        self._segment_bytes = segment_bytes
        self._fsync = fsync == "always"
        self._retain_bytes = retain_bytes
        self._lock = threading.Lock()
        self._take_lock, self._give_lock = self._lock.acquire, self._lock.release
        self._time_of = time_of
        self._counted_upto = Position(0, 0)
        self._looking = threading.Lock()
        self._looked_at: set[Position] = set()  # damage whose losses are written down
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
        """Append one entry and return the place after it. Raises LogFull; see `append_many`."""
        return self.append_many((payload,))

    def put(self, payload: bytes) -> int:
        """Append one entry as `append` does, for less; return the number of the segment that it stands in."""
        size = len(payload) + HEADER_BYTES
        self._take_lock()  # `with` looks up more
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
        """Append entries by one write and return the place after the last; all are kept or none.

        Raises LogFull when they would exceed `max_bytes` or the disk is full, OSError when the disk fails.
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
        """Make sure that this many bytes, headers included, can be appended even if others fill the disk.

        From the first call on nothing is written but into reserved blocks. Gives False if the disk has no room.
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
        """How much can be appended even if others fill the disk, as far as it was reserved."""
        return self._current.reserved_bytes

    def _put(self, block: bytes) -> None:
        if self._current.written and self._current.written + len(block) > self._segment_bytes:
            self._rotate(len(block))
        self._current.take_room(len(block) if self._is_reserving else 0)
        self._current.write(block)

    def _paid_with_what_is_released(self, act: Callable[[WhatT], None], what: WhatT) -> None:
        """Do what needs room on disk, a second time where the first meets a full one and something can be given up."""
        try:
            act(what)
        except OSError as error:
            if error.errno not in DISK_FULL or not self._give_up_released():
                raise
            act(what)

    def _rotate(self, wanted: int) -> None:
        """Go on in a new segment, with the same room reserved; where the disk has none, stay in this one."""
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
        """Where everything is released, leave all segments, retained ones too: their blocks may be the disk's last."""
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
        """Leave the segment that was written to, and write to another."""
        self._sizes_now()
        self._current.close()
        self._number, self._current = number, segment
        self._sizes[number] = 0
        self._numbers.begin(number)

    def _sizes_now(self) -> dict[int, int]:
        """Return each segment's size in bytes. That of the one being written is noted when someone asks."""
        self._sizes[self._number] = self._current.written
        return self._sizes

    @property
    def _end(self) -> Position:
        return Position(self._number, self._current.written)

    # --- reading ---

    def read(self, after: Position, *, max_entries: int, max_bytes: int, until: Position | None = None) -> list[Entry]:
        """Read entries in order, beginning at `after`, none of them ending beyond `until`.

        Gives at least one entry where there is one, even if it alone exceeds `max_bytes` of payload. What cannot be
        read is left out, and what is missing is written down.
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
        """Read a segment's entries; return whether none of them was one too many."""
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
        if place > self._counted_upto:  # a second reading of the same place is not a second loss
            self._counted_upto = place
            self.corrupt_entries += 1

    # --- damage ---

    @property
    def missing(self) -> Missing:
        """What damage has taken that was not released yet, also before this opening, as far as it was noticed."""
        return self._damage.missing

    def look_for_damage(self) -> None:
        """Read everything that is not released, and write down what is missing of it. Raises OSError."""
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
        """Write down what is missing of a segment, if that was not done for the damage at `begin` before.

        `size` and `beyond` are of the moment when it was read: `beyond` is the number that the next entry then had, if
        this segment was the one being written, else 0.
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
        """Write down the entries of segments that are not released and whose files are gone, or cut before them."""
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
        """Release the entries before `upto`, for good: the place is on disk before the old segments go.

        A place before the cursor changes nothing. Raises ValueError for a place beyond the end.
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
        """Return the number of the entry at a place; 0 if that is not known."""
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
            return self._end

    @property
    def pending_bytes(self) -> int:
        """Bytes appended and not released, headers included."""
        return self._pending

    @property
    def is_full(self) -> bool:
        """Return whether not even an empty entry fits any more."""
        return self._pending + HEADER_BYTES > self.max_bytes

    def close(self) -> None:
        """Close the files and let another process open the directory. Calling it again does nothing."""
        with self._lock:
            self._open_files.close()

    # --- opening ---

    def _path(self, number: int) -> Path:
        return segment_path(self.directory, number)

    def _written_marker(self) -> int:
        """Return the marker of the newest segment that says one, for a log whose file of numbers is lost."""
        for number, size in reversed(self._sizes.items()):
            with open(self._path(number), "rb", buffering=0) as file:
                if marker := marker_of(file.fileno(), size):
                    return marker
        return 0

    def _mend_last(self) -> bool:
        """Cut a torn entry off the last segment: the one that was being written when the process ended.

        Return whether something else than that is missing in it. The number of the next entry is that after the last.
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
                    # What was not written whole has no number that counts: its append never returned.
                    is_missing = is_counted and self._numbers.next > last + 1
                    if end == size and not is_missing and is_torn(file.fileno(), begin, size):
                        sound = begin
                    else:
                        is_damaged = True
            os.ftruncate(file.fileno(), sound)  # also if nothing is torn: it gives back what was reserved
        if self._numbers.next <= last:
            self._numbers.note_next(last + 1)
        self.truncated_bytes = size - sound
        self._sizes[number] = sound
        return is_damaged or (is_counted and self._numbers.next > last + 1)

    def _count_on(self) -> None:
        """Find the number of the next entry in the segments themselves: the file of numbers is new."""
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
        """Move a place at the end of a finished segment, or in a lost one, to the start of the next there is."""
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
    """Return what of a loss in the cursor's segment lies behind the cursor; `number` is that of the entry there."""
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
    """Return where a segment lies."""
    return directory / f"{number:012d}{_SUFFIX}"


def segment_sizes(directory: Path) -> dict[int, int]:
    """Return the segments in a directory, ascending, with their sizes in bytes."""
    found = sorted(path for path in directory.glob(f"*{_SUFFIX}") if path.stem.isdigit())
    return {int(path.stem): path.stat().st_size for path in found}


def decode_cursor(saved: bytes | None) -> Position:
    """Return the released place. Where none is known it is the beginning: repeated is better than lost."""
    return Position(0, 0) if saved is None or len(saved) != _CURSOR.size else Position(*_CURSOR.unpack(saved))
