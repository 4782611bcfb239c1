"""Inserts of rows that the store may have had before, where it may have forgotten the insert's token.

What tells a row is looked for in the table, and what is found is left out. It reads the table for every row, and is for
the inserts of a collector that was away for very long.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Protocol
from uuid import UUID

import pyarrow

from backends.store.retention import list_rules
from backends.store.tables import RollupView, list_tables, list_views, quoted

# Of each table: what leads its sort key, the row's time, and what tells it from others of that time. Log lines and
# points have no id: as many as are stored of those that look the same are left out.
IDENTITIES: Final[Mapping[str, tuple[str, str, tuple[str, ...]]]] = {
    "requests": ("tenant", "started_at", ("request_id",)),
    "attempts": ("tenant", "started_at", ("request_id", "number")),
    "engine_steps": ("engine", "started_at", ("sequence",)),
    "kv_events": ("engine", "at", ("sequence", "event", "cache_group")),
    "gpu_samples": ("device", "at", ("host", "sequence")),
    "content": ("tenant", "started_at", ("request_id",)),
    "traces": ("tenant", "started_at", ("trace_id", "span_id")),
    "logs": ("tenant", "at", ("service", "severity_number", "body")),
    "metrics": ("tenant", "at", ("service", "name", "kind", "count")),
}
_ASKED_TOGETHER: Final = 1_000  # times; as parameters they take some 20 KB


class InsertingStore(Protocol):
    """The part of the store's client that is needed."""

    def insert_arrow(self, table: str, data: pyarrow.Table, *, deduplication_token: str) -> None:
        """Insert rows once per token; raises what StoreClient does."""

    def query(self, sql: str, parameters: Mapping[str, object] | None = None) -> list[dict[str, Any]]:
        """Return a query's rows; raises what StoreClient does."""


class UnstoredRows:
    """Stands before a store, and inserts those rows only that it does not have. Raises what the store's client does.

    That is so for tables that may have forgotten a token, or have a rollup that may (`forgetful`); others are asked to
    know it. `received_at_ns`: the rows came to the collector then or later, and were not stored before (Unix time).

    Of a row that is not there, and is older than its table or its tenant's rule keeps it, nobody can tell whether it
    was: it is left out, for rollups would count it twice.

    Rows that are there, but were not taken into a rollup because the store died in between, stay out of that rollup:
    `tollkeeper store check` finds them.
    """

    def __init__(
        self,
        store: InsertingStore,
        forgetful: Collection[str],
        received_at_ns: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        tables = list_tables(store)
        self._compared = _with_sources(forgetful, list_views(store, tables))
        self._kept_seconds = {table.name: table.kept_seconds for table in tables}
        self._deleted_before = {
            (rule.table, rule.tenant): rule.deleted_before.timestamp() for rule in list_rules(store)
        }
        self._received_at = received_at_ns // 10**9
        self._clock = clock
        self.left_out = 0  # rows that were stored before
        self.past_retention: Counter[str] = Counter()  # rows that may have been, and are past what is kept; by table

    def insert_arrow(self, table: str, data: pyarrow.Table, *, deduplication_token: str) -> None:
        """Insert what is not stored, under a token of its own; all under its own where that is remembered."""
        if table not in self._compared:
            self._store.insert_arrow(table, data, deduplication_token=deduplication_token)
            return
        missing, past = self._missing(table, data)
        if missing:
            rest = data if len(missing) == data.num_rows else data.take(pyarrow.array(missing, pyarrow.int64()))
            self._store.insert_arrow(table, rest, deduplication_token=f"{deduplication_token}:again")
        self.left_out += data.num_rows - len(missing) - past
        if past:
            self.past_retention[table] += past

    def query(self, sql: str, parameters: Mapping[str, object] | None = None) -> list[dict[str, Any]]:
        """Ask the store itself."""
        return self._store.query(sql, parameters)

    def ping(self) -> bool:
        """Return True: it answers: it was asked a moment ago."""
        return True

    def _missing(self, table: str, data: pyarrow.Table) -> tuple[list[int], int]:
        """Return the places of rows that were never stored, and how many others may only have been."""
        lead, time, telling = IDENTITIES[table]
        names = (time, lead, *telling)
        keys = list(zip(*(_comparable(data.column(name)) for name in names), strict=True))
        stored: Counter[tuple[object, ...]] = Counter()
        times = sorted({key[0] for key in keys})
        leads = sorted({key[1] for key in keys})
        shown = ", ".join(f"{_shown(name, data.schema.field(name).type)} AS k{n}" for n, name in enumerate(names))
        for start in range(0, len(times), _ASKED_TOGETHER):
            some = times[start : start + _ASKED_TOGETHER]
            found = self._store.query(
                f"SELECT {shown} FROM {quoted(table)} WHERE {lead} IN {{leads:Array(String)}} "
                f"AND {time} >= fromUnixTimestamp64Nano({{first:Int64}}) "
                f"AND {time} <= fromUnixTimestamp64Nano({{last:Int64}}) "
                f"AND toUnixTimestamp64Nano({time}) IN {{times:Array(Int64)}}",
                {"leads": leads, "first": some[0], "last": some[-1], "times": some},
            )
            stored.update(tuple(row[f"k{n}"] for n in range(len(names))) for row in found)
        missing, past = [], 0
        for place, key in enumerate(keys):
            if stored[key]:
                stored[key] -= 1
            elif self._may_be_gone(table, key):
                past += 1
            else:
                missing.append(place)
        return missing, past

    def _may_be_gone(self, table: str, key: Sequence[Any]) -> bool:
        at, lead = key[0] // 10**9, key[1]
        kept = self._kept_seconds.get(table)
        if kept is not None and max(at, self._received_at) + kept <= self._clock():
            return True
        return bool(at < self._deleted_before.get((table, lead), 0))


def _with_sources(tables: Collection[str], views: Collection[RollupView]) -> set[str]:
    """Return the tables, and those that they are rollups of, at any remove."""
    found = set(tables)
    while more := {view.source for view in views if view.target in found} - found:
        found |= more
    return found


def _shown(name: str, kind: pyarrow.DataType) -> str:
    """Spell a column as the server is to give it, so that both sides compare the same text or number."""
    if pyarrow.types.is_timestamp(kind):
        return f"toUnixTimestamp64Nano({name})"
    if pyarrow.types.is_fixed_size_binary(kind):
        return f"toString({name})"
    return f"lower(hex({name}))" if pyarrow.types.is_binary(kind) else name


def _comparable(column: pyarrow.ChunkedArray) -> list[Any]:
    if pyarrow.types.is_timestamp(column.type):
        return list(column.cast(pyarrow.int64()).to_pylist())
    values = column.to_pylist()
    if pyarrow.types.is_fixed_size_binary(column.type):
        return [str(UUID(bytes=value)) for value in values]
    return [value.hex() for value in values] if pyarrow.types.is_binary(column.type) else list(values)
