"""Sinks for finished segments, outside the control of this machine's administrator."""

import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

from backends.audit.places import is_segment
from contracts.errors import ConfigurationError

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")


class Sink(Protocol):
    """Stores files that cannot be changed until their retention ends. Calls block."""

    def folders(self) -> list[str]:
        """Return the names of the folders: one for each chain."""

    def names(self, folder: str) -> list[str]:
        """Return the names of a folder's files, sorted."""

    def put(self, folder: str, name: str, content: bytes) -> None:
        """Store a file; an existing one stays unchanged."""

    def get(self, folder: str, name: str) -> bytes:
        """Return a file's content as it was first stored."""


class DirectorySink:
    """A directory, typically mounted from another machine or copied by a tool. Files in it are never changed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def folders(self) -> list[str]:
        """Return the names of the folders."""
        if not self.directory.is_dir():
            return []
        return sorted(path.name for path in self.directory.iterdir() if path.is_dir())

    def names(self, folder: str) -> list[str]:
        """Return the names of a folder's segments, sorted."""
        place = self.directory / folder
        return sorted(filter(is_segment, os.listdir(place))) if place.is_dir() else []

    def put(self, folder: str, name: str, content: bytes) -> None:
        """Write a file, read-only and atomically. An existing one stays unchanged. Raises OSError."""
        place = self.directory / folder
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = place / f".{name}.{os.getpid()}"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o400)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.link(draft, place / name)
        except FileExistsError:
            pass  # stays unchanged
        finally:
            os.unlink(draft)

    def get(self, folder: str, name: str) -> bytes:
        """Return a file's content. Raises OSError."""
        return (self.directory / folder / name).read_bytes()


class SinkPlace:
    """A sink's copy of one chain, for verification."""

    def __init__(self, sink: Sink, folder: str) -> None:
        self._sink = sink
        self._folder = folder
        self.name = f"sink:{folder}"

    def segments(self) -> list[str]:
        """Return the segments' names."""
        return [name for name in self._sink.names(self._folder) if is_segment(name)]

    def lines(self, segment: str) -> Iterator[bytes]:
        """Yield a segment's lines with their ends."""
        yield from io.BytesIO(self._sink.get(self._folder, segment))

    def read(self, name: str) -> bytes | None:
        """Return `None`: a sink has no head and no stub."""
        return None

    def is_written(self) -> bool:
        """Return False: a sink's chain is not written in place."""
        return False


def folder_of(chain: str) -> str:
    """Return the name of a chain's folder in a sink."""
    return _UNSAFE.sub("-", chain)


def open_sink(address: str, keep_days: int, endpoint: str = "") -> Sink:
    """Return the sink at an address: s3://BUCKET/PREFIX, or a directory's path. Raises ConfigurationError."""
    if address.startswith("s3://"):
        from backends.audit.s3_sink import S3Sink  # here: only a bucket needs its client

        return S3Sink(address, keep_days, endpoint)
    if "://" in address:
        raise ConfigurationError(f"TOLLKEEPER_AUDIT_SINK is {address!r}; give s3://BUCKET/PREFIX or a directory")
    return DirectorySink(Path(address))
