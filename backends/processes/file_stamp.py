"""Detects whether a file has changed since it was read."""

import os
from pathlib import Path


def file_stamp(path: Path) -> tuple[int, int, int] | None:
    """Return a value that changes when a file is written or replaced; `None` if it does not exist."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
