"""Room on disk that is ours before it is needed: blocks reserved behind a file's end, without changing its size."""

import ctypes
import errno
import os
from collections.abc import Callable
from functools import cache
from typing import Final

DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_UNSUPPORTED: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS})
_KEEP_SIZE: Final = 1  # FALLOC_FL_KEEP_SIZE, linux/falloc.h; os.posix_fallocate would move the end of the file
_SPARE_BYTES: Final = 16 << 20  # left to others where nothing can be reserved

_Fallocate = Callable[[int, int, int, int], int]


def reserve_blocks(descriptor: int, offset: int, length: int) -> bool:
    """Reserve the blocks of a range, also beyond the file's end; a later write there cannot meet a full disk.

    Gives False on a file system that cannot reserve: there the free space was looked at instead, which others
    may take. Raises OSError where the room is not there.
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
