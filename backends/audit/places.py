"""Files of a chain in its directory: segments, the head, the stub of removed segments; and reading them."""

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

HEAD: Final = "head"
STUB: Final = "stub"
LOCK: Final = "lock"
MOST_ATTEMPTS: Final = 1000
_SEGMENT: Final = re.compile(r"\d{20}\.\d{3}\.audit")


class ChainPlace(Protocol):
    """A place with a chain: a directory, or a sink's copy."""

    name: str

    def segments(self) -> list[str]:
        """Return the segments' names, in their order."""

    def lines(self, segment: str) -> Iterator[bytes]:
        """Return a segment's lines with their ends; the last may have none."""

    def read(self, name: str) -> bytes | None:
        """Return the head or the stub; `None` if there is none."""

    def is_written(self) -> bool:
        """Return whether a process is writing the chain now."""


class DirectoryPlace:
    """A chain's directory."""

    def __init__(self, directory: Path, name: str = "") -> None:
        self.directory = directory
        self.name = name or directory.name

    def segments(self) -> list[str]:
        """Return the segments' names, in their order."""
        return segment_names(self.directory)

    def lines(self, segment: str) -> Iterator[bytes]:
        """Yield a segment's lines with their ends; the last may have none."""
        with open(self.directory / segment, "rb", buffering=1 << 20) as file:
            yield from file

    def read(self, name: str) -> bytes | None:
        """Return the head or the stub; `None` if there is none."""
        try:
            return (self.directory / name).read_bytes()
        except FileNotFoundError:
            return None

    def is_written(self) -> bool:
        """Return whether a process is writing the chain now."""
        try:
            descriptor = os.open(self.directory / LOCK, os.O_RDONLY)  # missing in a copy
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False


def segment_name(first_seq: int, attempt: int = 0) -> str:
    """Return the name of a segment by its first entry. `attempt` distinguishes those whose first entry was never
    completely written.
    """
    return f"{first_seq:020}.{attempt:03}.audit"


def first_seq_of(segment: str) -> int:
    """Return the number of a segment's first entry, from its name."""
    return int(segment[:20])


def segment_names(directory: Path) -> list[str]:
    """Return the names of a directory's segments, in their order."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    return sorted(name for name in names if _SEGMENT.fullmatch(name))


def is_segment(name: str) -> bool:
    """Return whether a file is a segment, by its name."""
    return _SEGMENT.fullmatch(name) is not None


def chain_directories(root: Path) -> list[Path]:
    """Return the directories of the chains under the audit's root, by name."""
    if not root.is_dir():
        return []
    return sorted(path for path in root.iterdir() if path.is_dir() and (segment_names(path) or (path / HEAD).exists()))


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file atomically with new content."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)  # raises if the disk is full; `os.write` may write a part only
        os.replace(draft, path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()  # it would occupy the last free space
        raise
