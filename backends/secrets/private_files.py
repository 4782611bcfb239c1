"""Restrict files in the data directory to their owner: mode 0600, directories 0700.

Every process calls `keep_private` before it writes. It sets the umask, and corrects the modes of existing files.
"""

import contextlib
import os
import stat
from pathlib import Path
from typing import Final

_UMASK: Final = 0o077
_OTHERS: Final = 0o077
# What an installation keeps in its data directory, by how the names begin. Anything else there is not ours to change.
_OURS: Final = (
    *("control.db", "objects.db", "store", "journal", "sent-requests", "budgets", "spool", "audit", "run", "secrets"),
    *("rollouts.json", "windows.msgpack", "exports", "backups", "pieces", "snapshot"),
)


def keep_private(data: Path) -> None:
    """Make what this process writes from now on private, and mend what lies in the data directory.

    The directory itself is mended only if nothing else is likely to need it: it is ours, not shared (sticky), and
    neither the root, the home nor the current directory.
    """
    os.umask(_UMASK)
    if not data.is_dir():
        return
    with contextlib.suppress(OSError):
        found = data.stat()
        place = data.resolve()
        is_dedicated = not found.st_mode & stat.S_ISVTX and place not in (Path("/"), _home(), Path.cwd())
        if is_dedicated:
            _close(place, found)
        for entry in os.scandir(place):
            if entry.name.startswith(_OURS):
                _mend(entry)


def write_private(path: Path, content: bytes) -> None:
    """Write a file for its owner alone, whole or not at all: what was there is replaced. Raises OSError."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()  # on a full disk it would keep the last room
        raise


def make_database_file(path: Path) -> None:
    """Create a SQLite file for its owner alone, if it is not there; SQLite gives the files beside it the same rights.

    One that is there is never opened: closing a file gives up every lock that this process holds on it, SQLite's too,
    and another process that ends would then delete the log that open connections still write to.
    """
    with contextlib.suppress(OSError):  # whoever opens the database says what is wrong
        os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    for each in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        with contextlib.suppress(OSError):
            _close(each, each.stat())


def _mend(entry: os.DirEntry[str]) -> None:
    with contextlib.suppress(OSError):  # it is gone by now, or another user's, who has to mend it
        if entry.is_symlink():
            return
        _close(Path(entry.path), entry.stat(follow_symlinks=False))
        if entry.is_dir(follow_symlinks=False):
            for each in os.scandir(entry.path):
                _mend(each)


def _close(path: Path, found: os.stat_result) -> None:
    if found.st_mode & _OTHERS:
        os.chmod(path, stat.S_IMODE(found.st_mode) & ~_OTHERS)


def _home() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:  # a container's user without one
        return None
