"""Rows of several batches, merged by table; the batch of each row can be looked up if the store refuses it."""

from bisect import bisect_right
from typing import Any

from collector.rows import BrokenRecord, Processed, TableRows
from contracts.recording.names import Table


class MergedBatches:
    """The processed rows of several batches, in the order added; the same batches give the same rows."""

    def __init__(self) -> None:
        self.tables: dict[str, TableRows] = {}
        self.broken: list[tuple[str, BrokenRecord]] = []  # with their batch's id
        self.noticed: dict[str, int] = {}
        self._origins: dict[
            str, tuple[list[int], list[str]]
        ] = {}  # index of each batch's first row, and the batch's id

    def add(self, batch_id: str, processed: Processed) -> None:
        """Add one batch's rows."""
        for rows in processed.tables.values():
            merged = self._rows_of(rows.table)
            starts, ids = self._origins[rows.table.name]
            starts.append(len(merged.rows))
            ids.append(batch_id)
            merged.rows.extend(rows.rows)
        self.broken += ((batch_id, record) for record in processed.broken)
        for name, times in processed.noticed.items():
            self.noticed[name] = self.noticed.get(name, 0) + times

    def origin(self, table: str, index: int) -> tuple[str, int]:
        """Return a row's batch id, and its index among that batch's rows of the table."""
        starts, ids = self._origins[table]
        found = bisect_right(starts, index) - 1
        return ids[found], index - starts[found]

    def _rows_of(self, table: Table[Any]) -> TableRows:
        merged = self.tables.get(table.name)
        if merged is None:
            merged = self.tables[table.name] = TableRows(table, [])
            self._origins[table.name] = ([], [])
        return merged
