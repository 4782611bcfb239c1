"""Inserts rows that may already be in the store, after its memory of deduplication tokens may have expired.

Rows are looked up in the table by their identity, and those found are left out. That reads the table for every row, and
is meant for a collector that was down for a very long time.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Protocol
from uuid import UUID

import pyarrow

from backends.store.retention import list_rules
from backends.store.tables import RollupView, list_tables, list_views, quoted

# For each table: the first column of its sort key, the time column, and the columns that identify a row at that time.
# Log lines and metric points have no id: of equal ones, as many as are stored are left out.
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
_ASKED_TOGETHER: Final = 1_000  # times per query; as parameters they take about 20 KB


class InsertingStore(Protocol):
    """The methods of the store's client that are needed."""

    def insert_arrow(self, table: str, data: pyarrow.Table, *, deduplication_token: str) -> None:
        """Insert rows once per token. Raises what StoreClient does."""

    def query(self, sql: str, parameters: Mapping[str, object] | None = None) -> list[dict[str, Any]]:
        """Return a query's rows. Raises what StoreClient does."""


class UnstoredRows:
    """Wraps a store, and inserts only rows that it does not have. Raises what StoreClient does.

    This applies to tables that may have forgotten a token, or whose rollups may have (`forgetful`); other tables rely
    on their tokens. `received_at_ns`: the rows reached the collector then or later, and were not stored before (Unix
    time). A missing row that is older than its table or its tenant's retention allows may have been stored and deleted;
    it is left out, because rollups would count it twice.

    Rows that exist but did not reach a rollup, because the store crashed in between, stay missing from that rollup:
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
        self.past_retention: Counter[str] = Counter()  # rows past retention that may have been stored; by table

    def insert_arrow(self, table: str, data: pyarrow.Table, *, deduplication_token: str) -> None:
        """Insert the rows that the store does not have, under a new deduplication token.

        If the table still knows its tokens, insert all rows under the given one.
        """
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
        """Return a query's rows from the store."""
        return self._store.query(sql, parameters)

    def ping(self) -> bool:
        """Return `True`, because the store was queried a moment ago."""
        return True

    def _missing(self, table: str, data: pyarrow.Table) -> tuple[list[int], int]:
        """Return the indexes of rows that were never stored, and the number of rows that may have been stored and
        deleted.
        """
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
    """Return the tables and those that they are rollups of, directly or indirectly."""
    found = set(tables)
    while more := {view.source for view in views if view.target in found} - found:
        found |= more
    return found


def _shown(name: str, kind: pyarrow.DataType) -> str:
    """Return the SQL for a column in the form in which both sides are compared, as text or number."""
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
