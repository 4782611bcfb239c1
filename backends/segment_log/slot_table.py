"""Values in slots of a memory-mapped file, which survive the process that wrote them without a system call per write.

The kernel keeps the pages if the process is killed, but not after a power failure or reboot: pages on disk may then be
of any age, so a table of another boot is opened empty. A value exists once its length is stored, by one 8-byte store.
Values with a wrong checksum are dropped and counted, as are those that damage has made look free, which is detected by
marks in another sector. The head is stored twice. All blocks are written when the file grows, so that a full disk
cannot cause a page fault error (on file systems that write in place; copy-on-write ones such as btrfs and zfs do not
guarantee that).
"""

import mmap
import os
import struct
import time
import zlib
from pathlib import Path
from typing import Final

from backends.processes.native import mypyc_attr
from backends.segment_log.disk_room import reserve_blocks

NO_SLOT: Final = -1
SLOT_BYTES: Final = 16_384
# Length of the value (0: free), first number + 1 (0: none), second number, checksum (0: written by an earlier release).
_HEAD_BYTES: Final = 32
_pack_rest: Final = struct.Struct("=QQQ").pack  # of the head, without the length
_adler32: Final = zlib.adler32
MAX_BYTES: Final = SLOT_BYTES - _HEAD_BYTES
_PART_SLOTS: Final = 32
_PART_BYTES: Final = _PART_SLOTS * SLOT_BYTES
_SLOT_WORDS: Final = SLOT_BYTES // 8
_MAGIC: Final = 0x31_53544F4C53_4B54  # "TKSLOTS1"
_ALIVE_WORD: Final = 1  # in the first slot, which contains the file's head instead of a value
_HAS_CHECK: Final = 1 << 32  # in the checksum's word
# The first slot: the head; a sector later the marks of used slots; then the head's copy.
_MARKS_AT: Final = 4096
_FIRST_MARK_AT: Final = _MARKS_AT + 8
_MARKED_SLOTS: Final = 4088
_MARKS_MAGIC: Final = 0x534B52414D_4B54  # "TKMARKS"
_MARK: Final = 1
_COPY_AT: Final = 8192
_COPY_WORD: Final = _COPY_AT // 8
_BOOT_AT: Final = 16
_BOOT_BYTES: Final = 36
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_GROW_AGAIN_SECONDS: Final = 1.0


class KeptValue:
    """A value that was in a table when it was opened, with its two numbers."""

    __slots__ = ("slot", "value", "amount", "count")

    def __init__(self, slot: int, value: bytes, amount: int | None, count: int) -> None:
        self.slot = slot
        self.value = value
        self.amount = amount
        self.count = count


@mypyc_attr(acyclic=True)  # holds no references that could form a cycle
class SlotTable:
    """Values of at most `MAX_BYTES` by slot, for one process at a time. Raises OSError if the file cannot be opened."""

    __slots__ = ("_descriptor", "_free", "_grow_at", "_maps", "_words", "damaged", "found", "last_alive_ns")

    def __init__(self, path: Path) -> None:
        self._maps: list[mmap.mmap] = []
        self._words: list[memoryview] = []
        self._free: list[int] = []
        self._grow_at = 0.0
        self.found: list[KeptValue] = []  # values left by the previous process
        self.damaged = 0  # values left by it that cannot be read
        self.last_alive_ns = 0  # when that process last reported to be running
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            self._open()
        except OSError:
            self.close()
            raise

    def _open(self) -> None:
        parts = os.fstat(self._descriptor).st_size // _PART_BYTES
        if parts:
            reserve_blocks(self._descriptor, 0, parts * _PART_BYTES)  # in case the file was copied with holes
        for part in range(parts):
            self._map(part)
        if not parts:
            self._add_part()
        words, boot = self._words[0], _boot_id()
        heads = [at for at in (0, _COPY_WORD) if words[at] == _MAGIC and boot and self._boot_at(at * 8) == boot]
        if heads:
            self.last_alive_ns = words[heads[0] + _ALIVE_WORD]
            # If the two differ, an earlier release without copies has run since, and did not update the marks.
            is_marked = words[heads[-1] + _ALIVE_WORD] == self.last_alive_ns
            self._find(is_marked and words[_MARKS_AT // 8] == _MARKS_MAGIC)
        else:
            words[0] = 0
            for slot in range(1, len(self._maps) * _PART_SLOTS):
                self._words[slot // _PART_SLOTS][slot % _PART_SLOTS * _SLOT_WORDS] = 0
            self._find(False)
        self._write_heads(boot)

    def _boot_at(self, at: int) -> bytes:
        return bytes(self._maps[0][at + _BOOT_AT : at + _BOOT_AT + _BOOT_BYTES])

    def _write_heads(self, boot: bytes) -> None:
        words, marks = self._words[0], bytearray(_MARKED_SLOTS)
        for kept in self.found:
            if kept.slot < _MARKED_SLOTS:
                marks[kept.slot] = _MARK
        self._maps[0][_FIRST_MARK_AT : _FIRST_MARK_AT + _MARKED_SLOTS] = bytes(marks)
        words[_MARKS_AT // 8] = _MARKS_MAGIC
        for at in (_COPY_WORD, 0):
            self._maps[0][at * 8 + _BOOT_AT : at * 8 + _BOOT_AT + _BOOT_BYTES] = boot.ljust(_BOOT_BYTES, b"\0")
            words[at + _ALIVE_WORD] = self.last_alive_ns
            words[at] = _MAGIC

    def _find(self, is_marked: bool) -> None:
        self._free.clear()
        for slot in range(len(self._maps) * _PART_SLOTS - 1, 0, -1):
            part, first = slot // _PART_SLOTS, slot % _PART_SLOTS * _SLOT_WORDS
            words = self._words[part]
            length = words[first]
            start = first * 8 + _HEAD_BYTES
            value = bytes(self._maps[part][start : start + length]) if 0 < length <= MAX_BYTES else b""
            check = words[first + 3]
            if not value or (check and check != _adler32(value) | _HAS_CHECK):
                was_in_use = length != 0
                if is_marked and slot < _MARKED_SLOTS:
                    was_in_use = self._maps[0][_FIRST_MARK_AT + slot] == _MARK
                self.damaged += was_in_use
                words[first] = 0
                self._free.append(slot)
                continue
            amount: int = words[first + 1]
            self.found.append(KeptValue(slot, value, amount - 1 if amount else None, words[first + 2]))

    def take(self) -> int:
        """Return a free slot for `put`; `NO_SLOT` if the disk has no space for another."""
        free = self._free
        if not free and not self._grow():
            return NO_SLOT
        return free.pop()

    def put(self, slot: int, amount: int | None, value: bytes) -> None:
        """Write a value of at most `MAX_BYTES` and its first number into a free slot."""
        part, first = slot // _PART_SLOTS, slot % _PART_SLOTS * _SLOT_WORDS
        written = _pack_rest(0 if amount is None else amount + 1, 0, _adler32(value) | _HAS_CHECK) + value
        start = (first + 1) * 8
        self._maps[part][start : start + len(written)] = written
        self._words[part][first] = len(value)  # last: from here on the value exists
        if slot < _MARKED_SLOTS:
            self._maps[0][_FIRST_MARK_AT + slot] = _MARK

    def note(self, slot: int, amount: int | None, count: int) -> None:
        """Replace the two numbers of a value."""
        words, first = self._words[slot // _PART_SLOTS], slot % _PART_SLOTS * _SLOT_WORDS
        words[first + 1] = 0 if amount is None else amount + 1
        words[first + 2] = count

    def clear(self, slot: int) -> None:
        """Free a slot."""
        if slot < _MARKED_SLOTS:  # first, so that a process killed in between leaves a value without a mark
            self._maps[0][_FIRST_MARK_AT + slot] = 0
        self._words[slot // _PART_SLOTS][slot % _PART_SLOTS * _SLOT_WORDS] = 0
        self._free.append(slot)

    def note_alive(self, now_ns: int) -> None:
        """Store the time as proof that this process runs."""
        words = self._words[0]
        words[_ALIVE_WORD] = now_ns
        words[_COPY_WORD + _ALIVE_WORD] = now_ns

    @property
    def used(self) -> int:
        """Return how many slots have a value."""
        return len(self._maps) * _PART_SLOTS - 1 - len(self._free)

    def close(self) -> None:
        """Unmap and close the file. May be called repeatedly."""
        for words in self._words:
            words.release()
        for mapped in self._maps:
            mapped.close()
        self._words.clear()
        self._maps.clear()
        self._free.clear()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _grow(self) -> bool:
        now = time.monotonic()
        if now < self._grow_at or self._descriptor < 0:
            return False
        try:
            self._add_part()
        except OSError:
            self._grow_at = now + _GROW_AGAIN_SECONDS
            return False
        return True

    def _add_part(self) -> None:
        part = len(self._maps)
        start = part * _PART_BYTES
        written = 0
        try:
            while written < _PART_BYTES:
                written += os.pwrite(self._descriptor, bytes(_PART_BYTES - written), start + written)
        except OSError:
            os.ftruncate(self._descriptor, start)
            raise
        self._map(part)
        last, first = (part + 1) * _PART_SLOTS - 1, max(part * _PART_SLOTS, 1)
        self._free += range(last, first - 1, -1)

    def _map(self, part: int) -> None:
        mapped = mmap.mmap(self._descriptor, _PART_BYTES, offset=part * _PART_BYTES)
        self._maps.append(mapped)
        self._words.append(memoryview(mapped).cast("Q"))


def _boot_id() -> bytes:
    """Return the id of the machine's current boot; empty if unknown, in which case tables are opened empty."""
    try:
        return _BOOT_ID.read_bytes().strip()[:_BOOT_BYTES]
    except OSError:
        return b""
