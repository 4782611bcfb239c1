"""Counting and deleting rows by a condition. Deleted rows are removed from disk, not only hidden."""

from collections.abc import Mapping
from typing import Final

from backends.store.client import StoreClient
from backends.store.tables import StoreTable, quoted

SYNC: Final = {"mutations_sync": 2}  # commands return when the mutation is complete


def count_where(client: StoreClient, table: StoreTable, where: str, bound: Mapping[str, object]) -> int:
    """Return the number of a table's rows that match; `where` is SQL with bound parameters."""
    (row,) = client.query(f"SELECT count() AS rows FROM {quoted(table.name)} WHERE {where}", bound)
    return int(str(row["rows"]))


def delete_where(client: StoreClient, table: StoreTable, where: str, bound: Mapping[str, object]) -> None:
    """Delete a table's rows that match; returns when they are gone."""
    client.command(f"ALTER TABLE {table.changed} DELETE WHERE {where}", bound, settings=SYNC)
