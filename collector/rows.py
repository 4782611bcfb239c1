"""Result of processing a batch: rows for tables, and records that could not be converted."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from contracts.recording.names import Table

SUSPECT: Final = "suspect"  # a notice of a row: one of its attributes may contain a secret


@dataclass(frozen=True, slots=True)
class BrokenRecord:
    """A record that cannot be converted to a row: its index in the batch, the reason, and its bytes."""

    index: int
    cause: str
    reason: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows of one table, in order of arrival."""

    table: Table[Any]
    rows: list[Any]


@dataclass(slots=True)
class Processed:
    """The rows and broken records of one batch. Deterministic: the same batch always gives the same result.

    `noticed` counts corrections by name. `is_suspect`: an attribute may contain a secret.
    """

    tables: dict[str, TableRows] = field(default_factory=dict)
    broken: list[BrokenRecord] = field(default_factory=list)
    noticed: dict[str, int] = field(default_factory=dict)
    is_suspect: bool = False

    def add(self, table: Table[Any], row: Any) -> None:
        """Add a row to its table."""
        rows = self.tables.get(table.name)
        if rows is None:
            rows = self.tables[table.name] = TableRows(table, [])
        rows.rows.append(row)

    def notice(self, names: Iterable[str]) -> None:
        """Count the corrections of one row, by name."""
        for name in names:
            if name == SUSPECT:
                self.is_suspect = True
                continue
            self.noticed[name] = self.noticed.get(name, 0) + 1
