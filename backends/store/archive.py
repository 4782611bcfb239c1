"""A store as files: one per table with rows, in ClickHouse's Native format, compressed, each with a checksum."""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec
import zstandard

from backends.store.client import StoreClient
from backends.store.copies import drop_copies
from backends.store.digests import TableDigest
from backends.store.snapshot import snapshot_of
from backends.store.store_locks import StoreLocks
from backends.store.tables import HISTORY, list_tables
from backends.store.transfer import load_table, read_table, require_empty
from contracts.errors import ConfigurationError

_LEVEL: Final = 1  # data arrives without the columns' codecs, so that even this level saves most
_PIECE_BYTES: Final = 1 << 20
_VERSION: Final = f"SELECT max(version) AS version FROM {HISTORY}"


class ArchivedTable(msgspec.Struct, frozen=True):
    """A table's row count and checksum, as in `TableDigest`, and its columns by name and type."""

    rows: int
    checksum: str  # 16 hexadecimal digits, because JSON numbers may not keep 64 bits
    columns: dict[str, str]

    @property
    def digest(self) -> TableDigest:
        """Return the digest that the restored table must have."""
        return TableDigest(self.rows, int(self.checksum, 16))


class ArchivedStore(msgspec.Struct, frozen=True):
    """The contents of an archive: the store's time of the snapshot, its migration number, and its tables."""

    at: str
    migration: int
    tables: dict[str, ArchivedTable]


def write_store(client: StoreClient, turns: StoreLocks, directory: Path, say: Callable[[str], None]) -> ArchivedStore:
    """Write a snapshot of every table into a directory while the store is in use; report each table through `say`.

    Raises as `snapshot_of` does, and ConfigurationError if the directory cannot be written.
    """
    (row,) = client.query(_VERSION)
    tables: dict[str, ArchivedTable] = {}
    with snapshot_of(client, turns) as snapshot:
        for table in snapshot.tables:
            digest = snapshot.digest(client, table)
            if digest.rows:
                size = _write(_file(directory, table.name), read_table(client, table, snapshot.rows_of(table)))
                say(f"store: {table.name}: {digest.rows} rows, {size} bytes")
            tables[table.name] = ArchivedTable(digest.rows, f"{digest.checksum:016x}", table.columns)
        return ArchivedStore(snapshot.at.isoformat(), int(str(row["version"])), tables)


def load_store(client: StoreClient, directory: Path, archived: ArchivedStore, say: Callable[[str], None]) -> None:
    """Load an archive into an empty store at the same migration, and verify each table's checksum.

    Raises CopyDiffers, and ConfigurationError if the store is not empty or lacks an archived table.
    """
    drop_copies(client)
    here = {table.name: table for table in list_tables(client)}
    for name, table in archived.tables.items():
        if name not in here or here[name].columns != table.columns:
            raise ConfigurationError(
                f"table {name} of the backup is not the same in the store at {client.address.shown_url}; "
                f"the backup was made at migration {archived.migration:04}"
            )
    require_empty(client, here.values(), f"the store at {client.address.shown_url}")
    for name, table in archived.tables.items():
        load_table(client, here[name], _read(_file(directory, name)), table.digest)
        if table.rows:
            say(f"store: {name}: {table.rows} rows, checksum {table.checksum} as backed up")


def _file(directory: Path, table: str) -> Path:
    return directory / f"{table}.native.zst"


def _write(path: Path, pieces: Iterable[bytes]) -> int:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            with zstandard.ZstdCompressor(level=_LEVEL).stream_writer(file, closefd=False) as packed:
                for piece in pieces:
                    packed.write(piece)
            file.flush()
            os.fsync(file.fileno())
            return file.tell()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written ({error.strerror}); choose another place") from error


def _read(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            yield from zstandard.ZstdDecompressor().read_to_iter(file, read_size=_PIECE_BYTES, write_size=_PIECE_BYTES)
    except (OSError, zstandard.ZstdError) as error:
        raise ConfigurationError(f"{path} cannot be read ({type(error).__name__}): the backup is damaged") from error
