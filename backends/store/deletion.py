"""Rows of a table that a condition names: counted, and deleted for good, rewritten on disk and not merely hidden."""

from collections.abc import Mapping
from typing import Final

from backends.store.client import StoreClient
from backends.store.tables import StoreTable, quoted

SYNC: Final = {"mutations_sync": 2}  # a command has ended when it is done


def count_where(client: StoreClient, table: StoreTable, where: str, bound: Mapping[str, object]) -> int:
    """Count a table's rows; `where` is SQL with its values bound."""
    (row,) = client.query(f"SELECT count() AS rows FROM {quoted(table.name)} WHERE {where}", bound)
    return int(str(row["rows"]))


def delete_where(client: StoreClient, table: StoreTable, where: str, bound: Mapping[str, object]) -> None:
    """Delete a table's rows; returns when they are gone."""
    client.command(f"ALTER TABLE {table.changed} DELETE WHERE {where}", bound, settings=SYNC)
