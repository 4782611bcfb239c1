"""A consistent snapshot of a store's tables while the store is in use, by clones that share their files.

A clone takes milliseconds and no disk space. The collector waits only for that long; reading the clones may take any
time.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from backends.store.client import StoreClient
from backends.store.copies import clone_table, drop_copies, keep_expired
from backends.store.digests import TableDigest, digest_of
from backends.store.store_locks import StoreLocks
from backends.store.tables import CLAIMS, COPY_PREFIX, StoreTable, list_tables, rows_of

_NOW: Final = "SELECT now64(3) AS at"


@dataclass(frozen=True, slots=True)
class StoreSnapshot:
    """The tables at the store's time `at`: every row that arrived until then, and none after."""

    tables: tuple[StoreTable, ...]
    filled: frozenset[str]  # names of the tables with rows; only these are cloned
    at: datetime

    def rows_of(self, table: StoreTable) -> str:
        """Return the SQL to follow FROM for a table's rows in the snapshot."""
        if table.name not in self.filled:
            return rows_of(table, where="0")
        if not _is_cloned(table):  # a clone would lose the order of blocks, so later rows are filtered out instead
            until = f"ingested_at <= toDateTime64('{self.at:%Y-%m-%d %H:%M:%S.%f}', 6, 'UTC')"
            return rows_of(table, where=until)
        return rows_of(table, clone_of(table))

    def digest(self, client: StoreClient, table: StoreTable) -> TableDigest:
        """Return the digest of a table in the snapshot."""
        return digest_of(client, table, self.rows_of(table)) if table.name in self.filled else TableDigest(0, 0)


@contextmanager
def snapshot_of(
    client: StoreClient, turns: StoreLocks, tables: Sequence[StoreTable] = (), *, is_copied: bool = True
) -> Iterator[StoreSnapshot]:
    """Pause the collector while tables are cloned, and yield the snapshot; the clones are dropped at the end.

    `tables` empty: all. `is_copied`: keep rows that expire while they are read, because the copy would differ
    otherwise. Clones left by a killed command are dropped first. Raises as `StoreLocks.held` and `StoreLocks.alone` do.
    """
    with turns.alone():
        drop_copies(client)
        chosen = tuple(tables) or tuple(list_tables(client))
        try:
            with turns.held():
                filled = [table for table in chosen if has_rows(client, table.name)]
                snapshot = StoreSnapshot(chosen, frozenset(table.name for table in filled), cut(client))
                cloned = [table for table in filled if _is_cloned(table)]
                for table in cloned:
                    clone_table(client, table, clone_of(table))
            for table in cloned if is_copied else ():
                keep_expired(client, table, clone_of(table))
            yield snapshot
        finally:
            drop_copies(client)


def clone_of(table: StoreTable) -> str:
    """Return the name of a table's clone."""
    return f"{COPY_PREFIX}of_{table.name}"


def _is_cloned(table: StoreTable) -> bool:
    return table.name != CLAIMS or table.shards is not None


def cut(client: StoreClient) -> datetime:
    """Return a store time that has passed, so that rows arriving later have a later time.

    Call it while the collector is paused, so that all earlier rows have arrived.
    """
    (first,) = client.query(_NOW)
    while True:
        (now,) = client.query(_NOW)
        if now["at"] > first["at"]:  # type: ignore[operator]  # both are datetimes
            at = first["at"]
            assert isinstance(at, datetime)
            return at
        time.sleep(0.001)


def has_rows(client: StoreClient, name: str) -> bool:
    """Return whether a table has any rows."""
    (row,) = client.query("SELECT count() AS rows FROM {name:Identifier}", {"name": name})
    return bool(row["rows"])
