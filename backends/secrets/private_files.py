"""Restricts files in the data directory to their owner: mode 0600, directories 0700.

Every process calls `keep_private` before it writes. It sets the umask, and corrects the modes of existing files.
"""

import contextlib
import os
import stat
from pathlib import Path
from typing import Final

_UMASK: Final = 0o077
_OTHERS: Final = 0o077
# Prefixes of an installation's files in the data directory. Other files are not changed.
_OURS: Final = (
    *("control.db", "objects.db", "store", "journal", "sent-requests", "budgets", "spool", "audit", "run", "secrets"),
    *("rollouts.json", "windows.msgpack", "exports", "backups", "pieces", "snapshot"),
)


def keep_private(data: Path) -> None:
    """Make files that this process creates private, and correct the modes of those in the data directory.

    The directory's own mode is corrected only if it is dedicated to this installation: not shared (sticky), and neither
    the root, the home nor the current directory.
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
    """Write a file with mode 0600 atomically, replacing an existing one. Raises OSError."""
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
            draft.unlink()  # frees its space on a full disk
        raise


def make_database_file(path: Path) -> None:
    """Create a SQLite file with mode 0600 if it does not exist; SQLite gives its companion files the same mode.

    An existing file is never opened: closing it would release all of this process's locks on it, including SQLite's,
    and another process could then delete the write-ahead log that open connections still use.
    """
    with contextlib.suppress(OSError):  # opening the database reports the error
        os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    for each in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        with contextlib.suppress(OSError):
            _close(each, each.stat())


def _mend(entry: os.DirEntry[str]) -> None:
    with contextlib.suppress(OSError):  # deleted meanwhile, or owned by another user
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
