"""Inserts into a store with an older schema, without the columns that its tables lack."""

from collections.abc import Mapping
from typing import Any, Final

import pyarrow

from backends.store.unstored_rows import InsertingStore

_COLUMNS: Final = "SELECT name FROM system.columns WHERE database = currentDatabase() AND table = {table:String}"


class KnownColumns:
    """Wraps a store that may not be migrated yet. Raises what StoreClient does."""

    def __init__(self, store: InsertingStore) -> None:
        self._store = store

    def insert_arrow(self, table: str, data: pyarrow.Table, *, deduplication_token: str) -> None:
        """Insert the columns that the table has. A missing table raises the store's own error."""
        there = {str(row["name"]) for row in self._store.query(_COLUMNS, {"table": table})}
        kept = [name for name in data.column_names if name in there] or data.column_names
        self._store.insert_arrow(table, data.select(kept), deduplication_token=deduplication_token)

    def query(self, sql: str, parameters: Mapping[str, object] | None = None) -> list[dict[str, Any]]:
        """Return a query's rows from the store."""
        return self._store.query(sql, parameters)

    def ping(self) -> bool:
        """Return `True`, because every insert queries the store first."""
        return True
