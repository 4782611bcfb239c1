"""Disk space: blocks reserved before they are needed, and detection of full disks."""

import ctypes
import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Literal

DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_UNSUPPORTED: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS})
_KEEP_SIZE: Final = 1  # FALLOC_FL_KEEP_SIZE, linux/falloc.h; os.posix_fallocate would move the end of the file
_SPARE_BYTES: Final = 16 << 20  # left free if blocks cannot be reserved

FULL_BYTES: Final = 4 << 20  # with less free space, the next write is about to fail
LOW_BYTES: Final = 256 << 20

_Fallocate = Callable[[int, int, int, int], int]
DiskState = Literal["ok", "low", "full", "unknown"]


def disk_state(free_bytes: int) -> DiskState:
    """Return a disk's state by its free bytes."""
    return "full" if free_bytes < FULL_BYTES else "low" if free_bytes < LOW_BYTES else "ok"


@dataclass(frozen=True, slots=True)
class WatchedDisk:
    """The disk of a directory: what is stored there, and the setting of its path. The path itself is not shown."""

    holds: str
    setting: str
    directory: Path

    @property
    def state(self) -> DiskState:
        """Return the disk's state now; "unknown" if the system does not report it."""
        try:
            disk = os.statvfs(self.directory)
        except OSError:
            return "unknown"
        return disk_state(disk.f_bavail * disk.f_frsize)

    def shown(self) -> dict[str, str]:
        """Return its entry in `GET /ready`."""
        return {"holds": self.holds, "setting": self.setting, "state": self.state}


def shown_disks(disks: Sequence[WatchedDisk]) -> list[dict[str, str]]:
    """Return the entries of all disks in `GET /ready`."""
    return [disk.shown() for disk in disks]


def reserve_blocks(descriptor: int, offset: int, length: int) -> bool:
    """Reserve disk blocks for a range, also beyond the file's end, so that a later write there cannot fail on a full
    disk.

    Returns false if the file system cannot reserve; then only the free space was checked. Raises OSError if there is
    not enough space.
    """
    fallocate = _fallocate()
    if fallocate is not None:
        if fallocate(descriptor, _KEEP_SIZE, offset, length) == 0:
            return True
        failed = ctypes.get_errno()
        if failed not in _UNSUPPORTED:
            raise OSError(failed, os.strerror(failed))
    disk = os.fstatvfs(descriptor)
    if disk.f_bavail * disk.f_frsize < length + _SPARE_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return False


@cache
def _fallocate() -> _Fallocate | None:
    try:
        function = ctypes.CDLL(None, use_errno=True).fallocate
    except (OSError, AttributeError):
        return None  # another operating system's C library
    function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    function.restype = ctypes.c_int
    found: _Fallocate = function
    return found
