"""The number of a segment log's next entry, and of each segment's first, in a memory-mapped file.

With it the log detects missing entries even if the end of a segment or a whole segment is gone. An append costs one
8-byte store. The kernel keeps it if the process is killed; after a power failure it may be outdated, and the segments
themselves are used. The file has two copies of everything in different sectors. If the disk is full, numbers are kept
in memory until the next start.
"""

import logging
import mmap
import os
import struct
import time
from pathlib import Path
from typing import Final

from backends.segment_log.disk_room import DISK_FULL

_log = logging.getLogger(__name__)

_PAGE_BYTES: Final = 4096
_PAGE_WORDS: Final = _PAGE_BYTES // 8
_FILE_BYTES: Final = 2 * _PAGE_BYTES
_PAGE: Final = struct.Struct(f"<{_PAGE_WORDS}Q")
_MAGIC: Final = 0x31_534D554E_4B54  # "TKNUMS1"
_MARKER_BITS: Final = (1 << 62) - 1
# Words of a page.
_KIND, _MARKER, _CHECK, _NEXT, _CURSOR, _TABLE = 0, 1, 2, 3, 4, 8
_ROW_WORDS: Final = 3  # segment + 1, number of its first entry, time of its beginning
_ROWS: Final = (_PAGE_WORDS - _TABLE) // _ROW_WORDS
_NUMBER_BITS: Final = 48
_NUMBER_MASK: Final = (1 << _NUMBER_BITS) - 1


class SegmentNumbers:
    """The numbers of one log. `is_new`: nothing was known, because the file was missing or both copies are damaged.

    Raises OSError if the file cannot be opened, except if the disk is full.
    """

    def __init__(self, path: Path, make_marker: int = 0) -> None:
        self._descriptor = -1
        self._map: mmap.mmap | None = None
        pages = _sound_pages(path)
        self.is_new = not pages
        self.was_damaged = self.is_new and path.exists()
        page = list(pages[0] if pages else _PAGE.unpack(bytes(_PAGE_BYTES)))
        if self.is_new:
            marker = make_marker or int.from_bytes(os.urandom(8), "little") & _MARKER_BITS or 1
            page[_KIND], page[_MARKER], page[_CHECK] = _MAGIC, marker, marker ^ _MARKER_BITS
        for word in (_NEXT, _CURSOR):  # a single damaged word may be intact in the other copy
            page[word] = next((found[word] for found in pages if _opened(found[word])), 0)
        self.marker = page[_MARKER]
        self.next = _opened(page[_NEXT]) or 1
        page[_NEXT] = _sealed(self.next)
        self._words = self._mapped(path, _PAGE.pack(*page) * 2)

    @property
    def cursor(self) -> int:
        """Return the number of the first entry that is not released; 0 if unknown."""
        return _opened(self._words[_CURSOR])

    def note_next(self, number: int) -> None:
        """Store the number of the next entry."""
        self.next = number
        self._words[_NEXT] = number | (number * 40503 & 0x3FFF) << _NUMBER_BITS  # as `_sealed`, without its call

    def note_cursor(self, number: int) -> None:
        """Store the number of the first entry that is not released; 0: unknown."""
        self._words[_CURSOR] = self._words[_PAGE_WORDS + _CURSOR] = _sealed(number)
        self._words[_PAGE_WORDS + _NEXT] = self._words[_NEXT]

    def begin(self, segment: int) -> None:
        """Store that the next entry is a segment's first."""
        row = _TABLE + segment % _ROWS * _ROW_WORDS
        for word in (row, _PAGE_WORDS + row):
            self._words[word] = 0
            self._words[word + 1] = _sealed(self.next)
            self._words[word + 2] = time.time_ns()
            self._words[word] = segment + 1
        self._words[_PAGE_WORDS + _NEXT] = self._words[_NEXT]

    def segments(self) -> list[tuple[int, int, int]]:
        """Return the known segments, ascending: number, first entry's number, and when it was begun (Unix ns)."""
        found = {}
        for word in range(_TABLE, _TABLE + _ROWS * _ROW_WORDS, _ROW_WORDS):
            for at in (_PAGE_WORDS + word, word):
                segment, first, at_ns = self._words[at], _opened(self._words[at + 1]), self._words[at + 2]
                if segment and first and self._words[at] == segment:  # else another thread is writing it
                    found[segment - 1] = (first, at_ns)
        return [(segment, *found[segment]) for segment in sorted(found)]

    def range_of(self, segment: int) -> tuple[int, int, int, int]:
        """Return a segment's first number, the first after it, and when it was begun and ended (Unix ns);
        0: unknown.
        """
        low = high = begun_ns = ended_ns = 0
        for number, first, at_ns in self.segments():
            if number == segment:
                low, begun_ns = first, at_ns
            elif number > segment:
                high, ended_ns = first, at_ns
                break
        if low and high and high < low:
            return 0, 0, begun_ns, ended_ns
        return low, high, begun_ns, ended_ns

    def close(self) -> None:
        """Close the file. May be called repeatedly."""
        if self._map is not None:
            self._words[_PAGE_WORDS + _NEXT] = self._words[_NEXT]
            mapped, self._words = self._words, memoryview(bytearray(self._words)).cast("Q")  # for late readers
            mapped.release()
            self._map.close()
            self._map = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _mapped(self, path: Path, content: bytes) -> memoryview:
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            if os.pwrite(self._descriptor, content, 0) != len(content):
                raise OSError(28, os.strerror(28))
            self._map = mmap.mmap(self._descriptor, _FILE_BYTES)
        except OSError as error:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1
            if error.errno not in DISK_FULL:
                raise
            _log.warning(
                "numbers of entries cannot be stored: losses after a crash or damage may not be counted",
                extra={"path": str(path), "reason": error.strerror},
            )
            return memoryview(bytearray(content)).cast("Q")
        return memoryview(self._map).cast("Q")


def read_marker(path: Path) -> int:
    """Return the marker of a log that another process may be writing; 0 if unknown."""
    pages = _sound_pages(path)
    return pages[0][_MARKER] if pages else 0


def _sound_pages(path: Path) -> list[tuple[int, ...]]:
    """Return the intact copies, the one that is written first at the front."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return []
    pages = []
    try:
        for at in (0, _PAGE_BYTES):
            try:
                page = os.pread(descriptor, _PAGE_BYTES, at)
            except OSError:
                continue  # a sector that cannot be read
            if len(page) == _PAGE_BYTES:
                words = _PAGE.unpack(page)
                if words[_KIND] == _MAGIC and words[_MARKER] and words[_MARKER] ^ words[_CHECK] == _MARKER_BITS:
                    pages.append(words)
    finally:
        os.close(descriptor)
    return pages


def _sealed(number: int) -> int:
    """Return a number combined with a checksum in one word."""
    return number | (number * 40503 & 0x3FFF) << _NUMBER_BITS


def _opened(word: int) -> int:
    """Return the number in a word; 0 if it is empty or the checksum is wrong."""
    number = word & _NUMBER_MASK
    return number if word == _sealed(number) else 0
