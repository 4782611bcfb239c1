"""Where the files of tests lie: in memory if there is room.

The store creates a hundred files for an insert, and PostgreSQL three hundred for a database. Creating them on ext4 took
a third of the store's CPU time and nine tenths of PostgreSQL's.
"""

import functools
import os
import re
from pathlib import Path
from typing import Final

_MEMORY: Final = Path("/dev/shm")
_ROOM_BYTES: Final = 4 << 30  # a run of the suite on two workers uses a quarter of it


@functools.cache
def memory_directory() -> Path | None:
    """Return a directory whose files lie in memory; `None` if none has room, or programs cannot be run from it."""
    try:
        found = os.statvfs(_MEMORY)
        (available_kib,) = re.findall(r"^MemAvailable: +(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except (OSError, ValueError):
        return None
    room = min(found.f_bavail * found.f_frsize, int(available_kib) << 10)
    return _MEMORY if room >= _ROOM_BYTES and not found.f_flag & os.ST_NOEXEC else None
