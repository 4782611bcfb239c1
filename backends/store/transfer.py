"""Copies rows from one store into another, table by table, with checksums verified before rows become visible.

A whole table is copied into a temporary table, compared there, and then attached partition by partition. Views do not
see it, so rollups are copied unchanged, and a copy that fails half-way leaves nothing behind.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from backends.store.client import StoreClient
from backends.store.copies import attach, drop_copy, keep_expired, make_beside, sync_replicas
from backends.store.digests import TableDigest, digest_of
from backends.store.snapshot import has_rows
from backends.store.tables import COPY_PREFIX, StoreTable, rows_of
from contracts.errors import ConfigurationError, TollkeeperError

_BLOCK_ROWS: Final = 16_384  # about 10 MB for requests with a few hundred inter-token gaps
READ_SETTINGS: Final = {"max_block_size": _BLOCK_ROWS, "max_threads": 2}
_WRITE_SETTINGS: Final = {
    "max_insert_block_size": 16 * _BLOCK_ROWS,
    "min_insert_block_size_rows": 16 * _BLOCK_ROWS,
    "min_insert_block_size_bytes": 128 << 20,
    "max_partitions_per_insert_block": 0,
    "async_insert": 0,
    "insert_deduplicate": 0,  # equal blocks are not duplicates
    "distributed_foreground_insert": 1,  # into a cluster: return when the shards have it
}
SINCE: Final = "ingested_at > {after:DateTime64(3, 'UTC')} AND ingested_at <= {upto:DateTime64(3, 'UTC')}"


class CopyDiffers(TollkeeperError):
    """A copy differs from its source. None of it was made visible."""

    code = "copy_differs"


def read_table(client: StoreClient, table: StoreTable, rows: str) -> Iterable[bytes]:
    """Return rows (SQL as from `rows_of`) as bytes for `load_table`."""
    return client.stream(f"SELECT {_listed(table)} FROM {rows}", settings=READ_SETTINGS)


def load_table(client: StoreClient, table: StoreTable, pieces: Iterable[bytes], wanted: TableDigest) -> None:
    """Fill an empty table with the bytes of `read_table`. Raises CopyDiffers if its digest is not `wanted`."""
    if not wanted.rows:
        return
    beside = f"{COPY_PREFIX}for_{table.name}"
    make_beside(client, table, beside)
    try:
        keep_expired(client, table, beside)
        client.insert_stream(beside, tuple(table.columns), pieces, settings=_WRITE_SETTINGS)
        sync_replicas(client, table, beside)
        require_equal(table.name, wanted, digest_of(client, table, rows_of(table, beside)))
        attach(client, table, beside)
        if table.shards is not None and digest_of(client, table) != wanted:
            raise CopyDiffers(
                f"the shards of {table.name} have not taken in what was copied; empty the cluster before another try"
            )
    finally:
        drop_copy(client, table, beside)


def copy_arrivals(
    source: StoreClient, target: StoreClient, pair: tuple[StoreTable, StoreTable], after: datetime, upto: datetime
) -> int:
    """Copy a base table's rows that arrived between two times; views of the target see them. Return how many.

    `pair` is the table in the source and in the target. Raises CopyDiffers if the copy differs.
    """
    table, there = pair
    window: Mapping[str, object] = {"after": after, "upto": upto}
    arrivals = rows_of(table, where=SINCE)
    wanted = digest_of(source, table, arrivals, window)
    if not wanted.rows:
        return 0
    pieces = source.stream(f"SELECT {_listed(table)} FROM {arrivals}", window, settings=READ_SETTINGS)
    target.insert_stream(table.name, tuple(table.columns), pieces, settings=_WRITE_SETTINGS)
    sync_replicas(target, there)
    require_equal(table.name, wanted, digest_of(target, there, arrivals, window))
    return wanted.rows


def require_empty(client: StoreClient, tables: Iterable[StoreTable], where: str) -> None:
    """Raise ConfigurationError if one of the tables has rows."""
    for table in tables:
        if has_rows(client, table.name):
            raise ConfigurationError(
                f"{where} has rows in {table.name} already; name an empty database, "
                "so that nothing is mixed with what is there"
            )


def require_equal(table: str, wanted: TableDigest, found: TableDigest) -> None:
    """Raise CopyDiffers if two digests differ."""
    if wanted != found:
        raise CopyDiffers(
            f"the copy of {table} has {found.rows} rows, checksum {found.checksum:016x}; "
            f"what was copied has {wanted.rows} rows, checksum {wanted.checksum:016x}; nothing of it was taken in"
        )


def _listed(table: StoreTable) -> str:
    return ", ".join(f"`{name}`" for name in table.columns)
