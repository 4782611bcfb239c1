"""Inserts rows into one table: in one insert, or by bisection if the store refuses some rows."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow

from collector.rows import TableRows
from contracts.errors import InvalidRecord, StoreRefused
from contracts.recording.names import Table

ArrowBuilder = Callable[[Table[Any], Sequence[Any]], pyarrow.Table]

FORBIDDEN: Final = "store_forbidden"  # refused because of credentials, not because of the rows


class RowStore(Protocol):
    """The methods of the store's client that an exporter needs."""

    def insert_arrow(self, table: str, data: pyarrow.Table, *, deduplication_token: str) -> None:
        """Insert rows once per token. Raises StoreUnavailable (retry) or StoreRefused (permanent)."""

    def query(self, sql: str, parameters: Mapping[str, object] | None = None) -> list[dict[str, Any]]:
        """Return a query's rows. Raises StoreUnavailable, ConfigurationError or StoreRefused."""

    def ping(self) -> bool:
        """Return whether the store answers."""


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A row that the store refuses, by its index among the inserted rows."""

    table: str
    index: int
    row: Any
    reason: str


def insert_rows(store: RowStore, build: ArrowBuilder, rows: TableRows, token: str) -> Iterator[RejectedRow]:
    """Insert rows, and yield those that the store refuses permanently.

    The halves of the bisection and their tokens depend only on the rows, so a repetition after a crash stores nothing
    twice. Raises StoreUnavailable, and errors that are not caused by the rows (credentials, a missing table); part of
    the rows may be stored then, so repeat the whole insert.
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
