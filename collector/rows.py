"""Result of processing a batch: rows for tables, and records that could not be converted."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from contracts.recording.names import Table

SUSPECT: Final = "suspect"  # among what is noticed of a row: one of its attributes may hold a secret


@dataclass(frozen=True, slots=True)
class BrokenRecord:
    """One record of a batch that cannot become a row: its place, why, and its bytes."""

    index: int
    cause: str
    reason: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows for one table, in the order they came."""

    table: Table[Any]
    rows: list[Any]


@dataclass(slots=True)
class Processed:
    """The outcome for one batch: the same batch gives the same outcome, whenever it is processed.

    `noticed` counts what was put right on the way, by name. `is_suspect`: a secret may stand in some attribute.
    """

    tables: dict[str, TableRows] = field(default_factory=dict)
    broken: list[BrokenRecord] = field(default_factory=list)
    noticed: dict[str, int] = field(default_factory=dict)
    is_suspect: bool = False

    def add(self, table: Table[Any], row: Any) -> None:
        """Put one row to its table's."""
        rows = self.tables.get(table.name)
        if rows is None:
            rows = self.tables[table.name] = TableRows(table, [])
        rows.rows.append(row)

    def notice(self, names: Iterable[str]) -> None:
        """Count what was put right in one row."""
        for name in names:
            if name == SUSPECT:
                self.is_suspect = True
                continue
            self.noticed[name] = self.noticed.get(name, 0) + 1
