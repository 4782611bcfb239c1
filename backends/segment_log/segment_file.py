"""The segment that a log is writing: its file, made at the first need, and the blocks reserved for it."""

import errno
import os
from pathlib import Path
from typing import Final

from backends.segment_log.disk_room import reserve_blocks

_RESERVE_BYTES: Final = 1 << 20  # reserved at a time, beyond what was asked for: one call serves many entries


class SegmentFile:
    """A file that grows at its end. Every method may raise OSError; after a failed write nothing of it is kept."""

    def __init__(self, path: Path, *, is_synced: bool) -> None:
        self.written = 0  # bytes in the file
        self._path = path
        self._is_synced = is_synced
        self._descriptor = -1
        self._reserved_upto = 0  # the offset up to which the file has its blocks

    @property
    def reserved_bytes(self) -> int:
        """How much more can be written even if others fill the disk."""
        return self._reserved_upto - self.written

    def has_room_for(self, size: int) -> bool:
        """Return whether the file is there, and has its blocks for this many bytes more."""
        return self._descriptor >= 0 and self._reserved_upto - self.written >= size

    def take_room(self, wanted: int) -> None:
        """Create the file if there is none yet, and reserve blocks for this many bytes more."""
        if self._descriptor < 0:
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            if self._is_synced:
                sync_directory(self._path.parent)
        if self.reserved_bytes >= wanted:
            return
        length = wanted + _RESERVE_BYTES
        try:
            is_reserved = reserve_blocks(self._descriptor, self.written, length)
        except OSError:
            length = wanted
            is_reserved = reserve_blocks(self._descriptor, self.written, length)
        if is_reserved:
            self._reserved_upto = self.written + length

    def write(self, block: bytes) -> None:
        """Append a block whole."""
        try:
            written = os.write(self._descriptor, block)
            if written != len(block):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if self._is_synced:
                os.fdatasync(self._descriptor)
        except OSError:
            os.ftruncate(self._descriptor, self.written)  # else a half entry would stand before the next one
            self._reserved_upto = self.written
            raise
        self.written += written
        if self.written > self._reserved_upto:
            self._reserved_upto = self.written

    def close(self) -> None:
        """Close the file and give back what was reserved and not used. Calling it again does nothing."""
        if self._descriptor < 0:
            return
        descriptor, self._descriptor = self._descriptor, -1
        try:
            os.ftruncate(descriptor, self.written)
        finally:
            self._reserved_upto = self.written
            os.close(descriptor)

    def discard(self) -> None:
        """Close and remove a file that nothing was written to."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self._path.unlink(missing_ok=True)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
