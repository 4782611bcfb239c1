"""Parquet files in a directory or bucket, written atomically and replaced by name."""

import contextlib
import io
import os
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import parse_qs, urlsplit

import pyarrow
import pyarrow.fs
import pyarrow.parquet

from contracts.errors import ConfigurationError, Unavailable

_SCHEMES: Final = ("s3", "gs", "abfs")
_HINT: Final = "give a directory's absolute path, or s3://BUCKET/PREFIX?region=REGION"


class ParquetFiles(Protocol):
    """Writes tables as files. `path` may have folders, separated by slashes."""

    def write(self, path: str, rows: pyarrow.Table) -> None:
        """Write or replace a file; it is durable on return. Raises Unavailable."""


def open_parquet_files(address: str) -> ParquetFiles:
    """Return the writer for an address. Raises ConfigurationError if it is invalid; a bucket is not contacted yet."""
    if address.startswith("/"):
        return LocalParquetFiles(Path(address))
    parts = urlsplit(address)
    if parts.username is not None or parts.password is not None:
        raise ConfigurationError(
            "TOLLKEEPER_FORWARD_PARQUET has credentials in it; give them as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    if parts.scheme not in _SCHEMES or not parts.hostname:
        raise ConfigurationError(f"TOLLKEEPER_FORWARD_PARQUET is {address!r}; {_HINT}")
    if parts.scheme == "s3" and not parse_qs(parts.query).keys() & {"region", "endpoint_override"}:
        raise ConfigurationError(
            f"TOLLKEEPER_FORWARD_PARQUET is {address!r}, without a region; {_HINT}, "
            "or ?endpoint_override=HOST:PORT&scheme=http for a store that is not Amazon's"
        )
    return BucketParquetFiles(address)


class LocalParquetFiles:
    """Files below a directory, on disk before `write` returns."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def write(self, path: str, rows: pyarrow.Table) -> None:
        """Write a file through a draft, which readers of `*.parquet` do not see. Raises Unavailable."""
        target = self._root / path
        draft = target.with_name(f".{target.name}.draft")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with draft.open("wb") as file:
                file.write(_encoded(rows))
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, target)
            _sync_directory(target.parent)
        except OSError as error:
            with contextlib.suppress(OSError):
                draft.unlink()  # frees its space on a full disk
            raise Unavailable(f"the directory of TOLLKEEPER_FORWARD_PARQUET takes no file: {error.strerror}") from error


class BucketParquetFiles:
    """Objects below a prefix of a bucket. Credentials come from the storage provider's usual sources."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._opened: tuple[pyarrow.fs.FileSystem, str] | None = None

    def write(self, path: str, rows: pyarrow.Table) -> None:
        """Write an object, which appears once it is complete. Raises Unavailable."""
        try:
            if self._opened is None:
                self._opened = pyarrow.fs.FileSystem.from_uri(self._address)
            bucket, root = self._opened
            with bucket.open_output_stream(f"{root}/{path}") as stream:
                stream.write(_encoded(rows))
        except (OSError, pyarrow.ArrowException) as error:  # its text may quote the signed request
            raise Unavailable(f"the bucket of TOLLKEEPER_FORWARD_PARQUET takes no object ({_cause(error)})") from error


def _encoded(rows: pyarrow.Table) -> bytes:
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(rows, buffer, compression="zstd")
    return buffer.getvalue()


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _cause(error: Exception) -> str:
    """Return the storage's error code, such as ACCESS_DENIED, or else the error's class."""
    _, found, rest = str(error).partition("AWS Error ")
    return rest.split(" ", 1)[0] if found else type(error).__name__
