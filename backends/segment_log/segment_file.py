"""The segment file that a log is writing: created when first needed, with blocks reserved ahead."""

import errno
import os
from pathlib import Path
from typing import Final

from backends.segment_log.disk_room import reserve_blocks

_RESERVE_BYTES: Final = 1 << 20  # reserved in addition each time, so that one call serves many entries


class SegmentFile:
    """An append-only file. Every method may raise OSError; a failed write leaves no trace."""

    def __init__(self, path: Path, *, is_synced: bool) -> None:
        self.written = 0  # bytes in the file
        self._path = path
        self._is_synced = is_synced
        self._descriptor = -1
        self._reserved_upto = 0  # the offset up to which blocks are reserved

    @property
    def reserved_bytes(self) -> int:
        """Return how many bytes can be written even if the disk becomes full."""
        return self._reserved_upto - self.written

    def has_room_for(self, size: int) -> bool:
        """Return whether the file exists and has reserved blocks for `size` more bytes."""
        return self._descriptor >= 0 and self._reserved_upto - self.written >= size

    def take_room(self, wanted: int) -> None:
        """Create the file if needed, and reserve blocks for `wanted` more bytes."""
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
        """Append a block, all or nothing."""
        try:
            written = os.write(self._descriptor, block)
            if written != len(block):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if self._is_synced:
                os.fdatasync(self._descriptor)
        except OSError:
            os.ftruncate(self._descriptor, self.written)  # remove a partial entry
            self._reserved_upto = self.written
            raise
        self.written += written
        if self.written > self._reserved_upto:
            self._reserved_upto = self.written

    def close(self) -> None:
        """Close the file and release unused blocks. May be called repeatedly."""
        if self._descriptor < 0:
            return
        descriptor, self._descriptor = self._descriptor, -1
        try:
            os.ftruncate(descriptor, self.written)
        finally:
            self._reserved_upto = self.written
            os.close(descriptor)

    def discard(self) -> None:
        """Close and delete a file to which nothing was written."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self._path.unlink(missing_ok=True)


def sync_directory(directory: Path) -> None:
    """Flush a directory's entries to disk, so that they survive a power failure."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
