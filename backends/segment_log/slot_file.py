"""A small value in a file that is replaced in place, without needing further disk space.

Writes alternate between two slots, so that an interrupted write leaves the previous value. Since a write needs no free
block, it works on a full disk. Each slot has a copy, written after it, so that a damaged sector does not bring an older
value back. Earlier releases read the slots without the copies.
"""

import errno
import os
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from backends.segment_log.disk_room import DISK_FULL
from backends.segment_log.segment_frames import read_at
from contracts.errors import ConfigurationError

SLOT_BYTES: Final = 4096  # a page, so that a power failure during a write cannot affect the other slot
_SLOTS: Final = 2
_PAGES: Final = 2 * _SLOTS  # the slots, and their copies in the same order
_HEADER: Final = struct.Struct("<QII")  # sequence, length of the value, CRC-32 of the three


class SlotFile:
    """One value of at most `MAX_BYTES` in a file of two slots. Raises OSError if the file cannot be created."""

    MAX_BYTES: Final = SLOT_BYTES - _HEADER.size

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            self._has_copies = self._fill_up()
            found = [_decode(read_at(self._descriptor, SLOT_BYTES, page * SLOT_BYTES)) for page in range(_PAGES)]
        except OSError:
            self.close()
            raise
        newest = max(range(_PAGES), key=lambda page: found[page][0])
        self._sequence, self._value = found[newest]
        self._next_slot = 1 - newest % _SLOTS

    @classmethod
    def of_installation(cls, path: Path) -> Self:
        """Open a slot file in the data directory. Raises ConfigurationError, with what to do, if it cannot
        be created.
        """
        try:
            return cls(path)
        except OSError as error:
            raise ConfigurationError(
                f"{path} cannot be written ({error.strerror}); "
                "make room there, or choose another data directory with --data or TOLLKEEPER_DATA"
            ) from error

    @property
    def value(self) -> bytes | None:
        """Return the value written last; `None` if there is none or none is intact."""
        return self._value

    def write(self, value: bytes, *, sync: bool = False) -> None:
        """Replace the value. Raises OSError, keeping the previous value, or ValueError beyond `MAX_BYTES`."""
        if len(value) > self.MAX_BYTES:
            raise ValueError(f"a value of {len(value)} bytes does not fit in a slot of {self.MAX_BYTES}")
        sequence = self._sequence + 1
        slot = _HEADER.pack(sequence, len(value), _checksum(sequence, value)) + value
        if os.pwrite(self._descriptor, slot, self._next_slot * SLOT_BYTES) != len(slot):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self._has_copies:
            with suppress(OSError):  # the value is written, only its copy is missing
                os.pwrite(self._descriptor, slot, (_SLOTS + self._next_slot) * SLOT_BYTES)
        if sync:
            os.fdatasync(self._descriptor)
        self._sequence, self._value = sequence, value
        self._next_slot = 1 - self._next_slot

    def close(self) -> None:
        """Close the file. May be called repeatedly."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _fill_up(self) -> bool:
        """Write the file's full length once, so that later writes need no blocks; return whether there is room for
        copies.

        On a full disk, a file of an earlier release, which has no copies, is used without them.
        """
        size = os.fstat(self._descriptor).st_size
        for pages in (_SLOTS, _PAGES):
            missing = pages * SLOT_BYTES - size
            if missing <= 0:
                continue
            try:
                if os.pwrite(self._descriptor, bytes(missing), size) != missing:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError as error:
                if pages == _SLOTS or error.errno not in DISK_FULL:
                    raise
                os.ftruncate(self._descriptor, size)
                return False
            os.fsync(self._descriptor)
            size = pages * SLOT_BYTES
        return True


def read_slots(path: Path) -> bytes | None:
    """Return the value of a slot file that another process may be writing; `None` if there is none."""
    try:
        whole = path.read_bytes()
    except FileNotFoundError:
        return None
    return max((_decode(whole[page * SLOT_BYTES :][:SLOT_BYTES]) for page in range(_PAGES)), key=lambda one: one[0])[1]


def _decode(slot: bytes) -> tuple[int, bytes | None]:
    """Return a slot's sequence and value; sequence 0 if it was never written or is damaged."""
    if len(slot) < _HEADER.size:
        return 0, None
    sequence, length, checksum = _HEADER.unpack_from(slot)
    value = slot[_HEADER.size : _HEADER.size + length]
    if not sequence or len(value) != length or checksum != _checksum(sequence, value):
        return 0, None
    return sequence, value


def _checksum(sequence: int, value: bytes) -> int:
    return zlib.crc32(value, zlib.crc32(struct.pack("<QI", sequence, len(value))))
