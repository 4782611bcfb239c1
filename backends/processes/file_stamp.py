"""Whether a file is still the one that was read."""

import os
from pathlib import Path


def file_stamp(path: Path) -> tuple[int, int, int] | None:
    """Return what changes when a file is written, or another is put in its place; `None` if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
