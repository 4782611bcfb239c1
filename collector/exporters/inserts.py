"""Batches' rows into one table: by one insert where the store takes them all, by halves if it does not."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow

from collector.rows import TableRows
from contracts.errors import InvalidRecord, StoreRefused
from contracts.recording.names import Table

ArrowBuilder = Callable[[Table[Any], Sequence[Any]], pyarrow.Table]

FORBIDDEN: Final = "store_forbidden"  # refused because of who we are, not of what the rows are


class RowStore(Protocol):
    """The part of the store's client that an exporter needs."""

    def insert_arrow(self, table: str, data: pyarrow.Table, *, deduplication_token: str) -> None:
        """Insert rows once per token. Raises StoreUnavailable (try again) or StoreRefused (never will)."""

    def query(self, sql: str, parameters: Mapping[str, object] | None = None) -> list[dict[str, Any]]:
        """Return a query's rows. Raises StoreUnavailable, ConfigurationError or StoreRefused."""

    def ping(self) -> bool:
        """Return whether the store answers."""


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A row that will never be stored, by its place among the rows that were to be inserted."""

    table: str
    index: int
    row: Any
    reason: str


def insert_rows(store: RowStore, build: ArrowBuilder, rows: TableRows, token: str) -> Iterator[RejectedRow]:
    """Insert rows, giving those the store will never take.

    The halves and their tokens follow from the rows alone, so a repetition after a crash inserts nothing twice.
    Raises StoreUnavailable, or what else is no fault of the rows (credentials, a missing table), with part of the
    rows perhaps stored: repeat the whole.
    """
    yield from _insert(store, build, rows, token, 0, len(rows.rows))


def _insert(
    store: RowStore, build: ArrowBuilder, rows: TableRows, token: str, start: int, stop: int
) -> Iterator[RejectedRow]:
    part = rows.rows[start:stop]
    own_token = token if len(part) == len(rows.rows) else f"{token}:{start}-{stop}"
    try:
        store.insert_arrow(rows.table.name, build(rows.table, part), deduplication_token=own_token)
    except (StoreRefused, InvalidRecord) as error:
        if error.error_code == FORBIDDEN:
            raise
        if len(part) == 1:
            yield RejectedRow(rows.table.name, start, part[0], error.message)
            return
        middle = (start + stop) // 2
        yield from _insert(store, build, rows, token, start, middle)
        yield from _insert(store, build, rows, token, middle, stop)
