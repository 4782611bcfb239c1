"""The store's tables and views, as read from its system tables, for copies, checks, retention and rollups."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from contracts.errors import ConfigurationError

COPY_PREFIX: Final = "tollkeeper_copy_"  # of temporary tables of backups and moves
# The migrations that were applied to this store; not copied, because a copy is migrated separately.
HISTORY: Final = "schema_migrations"
_TIMES: Final = ("bucket", "started_at", "at")
CLAIMS: Final = "batch_claims"
_TABLES: Final = """
SELECT name, engine, engine_full, sorting_key, partition_key
FROM system.tables
WHERE database = currentDatabase() AND (engine LIKE '%MergeTree' OR engine = 'Distributed')
ORDER BY name
"""
_ANY_DISTRIBUTED: Final = """
SELECT name FROM system.tables WHERE database = currentDatabase() AND engine = 'Distributed' LIMIT 1
"""
_COLUMNS: Final = """
SELECT table, name, type
FROM system.columns
WHERE database = currentDatabase() AND default_kind NOT IN ('MATERIALIZED', 'ALIAS', 'EPHEMERAL')
ORDER BY table, position
"""
_VIEWS: Final = """
SELECT name, create_table_query, as_select
FROM system.tables
WHERE database = currentDatabase() AND engine = 'MaterializedView'
ORDER BY name
"""
# The definition of a table over a cluster's shards, as the server writes it.
_DISTRIBUTED: Final = re.compile(r"^Distributed\('([\w.-]+)', '\w+', '(\w+)', (.+)\)$")
_COLLAPSING: Final = re.compile(r"(Aggregating|Replacing|Summing|Collapsing)")
_AGGREGATE: Final = re.compile(r"^(Simple)?AggregateFunction\((\w+)(\([^)]*\))?, ")
_NAME: Final = r"(?:`?\w+`?\.)?`?(\w+)`?"
_TARGET: Final = re.compile(rf"^CREATE MATERIALIZED VIEW {_NAME} TO {_NAME}")
_SOURCE: Final = re.compile(rf"\bFROM {_NAME}")
_INTERVAL: Final = re.compile(r"toInterval(Second|Minute|Hour|Day|Week|Month|Year)\((\d+)\)")
# The shortest month and year, because rows must certainly not have expired.
_SECONDS: Final = {
    "Second": 1,
    "Minute": 60,
    "Hour": 3600,
    "Day": 86_400,
    "Week": 604_800,
    "Month": 28 * 86_400,
    "Year": 365 * 86_400,
}


class AskedStore(Protocol):
    """The method of the store's client that queries need."""

    def query(self, sql: str, parameters: Mapping[str, object] | None = None) -> list[dict[str, Any]]:
        """Return a query's rows. Raises what StoreClient does."""


@dataclass(frozen=True, slots=True)
class Shards:
    """The location of a table's rows in a cluster: table `local` on every node, on the shard that expression `by`
    selects.
    """

    cluster: str
    local: str
    by: str

    @property
    def on_cluster(self) -> str:
        """Return the clause that makes every node of the cluster execute a statement."""
        return f" ON CLUSTER '{self.cluster}'"


@dataclass(frozen=True, slots=True)
class StoreTable:
    """A table with rows. `columns` are the insertable ones in order, with their types.

    On a cluster, `name` is the table over all shards, and `shards` is where its rows are.
    """

    name: str
    columns: dict[str, str]
    sorting_key: tuple[str, ...]
    engine: str
    ttl: str  # as SQL; empty: rows never expire
    partition_key: str = ""  # as SQL; empty: one partition
    definition: str = ""  # the whole engine clause as SQL
    shards: Shards | None = None

    @property
    def changed(self) -> str:
        """Return the SQL to follow ALTER TABLE or TRUNCATE TABLE: on a cluster, the local table on every node."""
        if self.shards is None:
            return quoted(self.name)
        return f"{quoted(self.shards.local)}{self.shards.on_cluster}"

    @property
    def is_collapsing(self) -> bool:
        """Return whether merges combine rows of one key, so that it must be read with FINAL."""
        return _COLLAPSING.search(self.engine) is not None

    @property
    def is_split(self) -> bool:
        """Return whether several shards have rows of one key: true for sums over all tenants on a cluster."""
        return self.shards is not None and "Aggregating" in self.engine and "tenant" not in self.columns

    @property
    def is_base(self) -> bool:
        """Return whether its rows are facts as received, each with the time of its arrival in the store."""
        return not self.is_collapsing and "ingested_at" in self.columns

    @property
    def kept_seconds(self) -> int | None:
        """Return for how many seconds a row certainly stays, from its own time on; `None`: for ever."""
        found = [int(number) * _SECONDS[unit] for unit, number in _INTERVAL.findall(self.ttl)]
        return min(found) if found else None

    @property
    def kept_words(self) -> str:
        """Return for how long a row stays, in words: "13 months", or "forever"."""
        parts = [
            f"{number} {unit.lower()}{'' if number == '1' else 's'}" for unit, number in _INTERVAL.findall(self.ttl)
        ]
        return " and ".join(parts) or self.ttl or "forever"

    @property
    def final(self) -> str:
        """Return the SQL to follow the name in a SELECT that needs each key once."""
        return " FINAL" if self.is_collapsing else ""


@dataclass(frozen=True, slots=True)
class RollupView:
    """A materialized view: `select` turns rows of table `source` into rows of table `target`."""

    name: str
    source: str
    target: str
    select: str


def rows_of(table: StoreTable, named: str = "", where: str = "1") -> str:
    """Return the SQL to follow FROM for a table's rows, or for those of table `named` with the same columns.

    For batch claims only the winning claim of each batch is included, which depends on block numbers; these are not in
    copies.
    """
    name = quoted(named or table.name)
    if table.name == CLAIMS and not named and table.shards is None:  # a cluster orders no claims
        others = [column for column in table.columns if column != "batch_id"]
        first = ", ".join(
            f"argMin(claims.{column}, (number, claims.received_at_ns)) AS `{column}`" for column in others
        )
        asked = f"(SELECT batch_id, {', '.join(others)}, _block_number AS number FROM {name} WHERE {where})"
        return f"(SELECT batch_id, {first} FROM {asked} AS claims GROUP BY batch_id)"
    if table.is_split:
        return f"({_joined(table, name, where)}) WHERE 1"
    return f"{name}{table.final} WHERE {where}"


def _joined(table: StoreTable, name: str, where: str) -> str:
    """Return a SELECT that merges the rows of one key from all shards, each column by its own function."""
    listed = ", ".join(_joined_column(column, kind) for column, kind in table.columns.items())
    keys = ", ".join(f"`{column}`" for column, kind in table.columns.items() if not _AGGREGATE.match(kind))
    return f"SELECT {listed} FROM {name} AS stored WHERE {where} GROUP BY {keys}"


def _joined_column(column: str, kind: str) -> str:
    found = _AGGREGATE.match(kind)
    if found is None:
        return f"`{column}`"
    if found[1]:
        return f"CAST({found[2]}(stored.`{column}`) AS {kind}) AS `{column}`"
    return f"{found[2]}MergeState{found[3] or ''}(stored.`{column}`) AS `{column}`"


def list_tables(client: AskedStore) -> list[StoreTable]:
    """Return the tables with rows, sorted by name, without temporary copies and the migrations table."""
    columns: dict[str, dict[str, str]] = {}
    for row in client.query(_COLUMNS):
        columns.setdefault(str(row["table"]), {})[str(row["name"])] = str(row["type"])
    rows = {str(row["name"]): row for row in client.query(_TABLES)}
    over = _tables_over_shards(rows)
    found = []
    for stored, row in rows.items():
        name, shards = over.get(stored, (stored, None))
        if row["engine"] == "Distributed" or name.startswith(COPY_PREFIX) or name == HISTORY:
            continue
        definition = str(row["engine_full"])
        found.append(
            StoreTable(
                name,
                columns[name],
                tuple(part.strip() for part in _split(str(row["sorting_key"]))),
                str(row["engine"]),
                _ttl_of(definition),
                str(row["partition_key"]),
                definition,
                shards,
            )
        )
    return sorted(found, key=lambda table: table.name)


def find_cluster(client: AskedStore) -> str:
    """Return the name of the cluster that the store's tables are on; empty if it is a single server."""
    if not client.query(_ANY_DISTRIBUTED):  # 100 times faster than reading every table's definition
        return ""
    rows = {str(row["name"]): row for row in client.query(_TABLES)}
    return next((shards.cluster for _, shards in _tables_over_shards(rows).values()), "")


def _tables_over_shards(rows: Mapping[str, Mapping[str, object]]) -> dict[str, tuple[str, Shards]]:
    """Return, by name of each shard's local table, the table over all shards and its `Shards`."""
    over = {}
    for name, row in rows.items():
        found = _DISTRIBUTED.match(str(row["engine_full"]))
        if found is not None and found[2] in rows:
            over[found[2]] = name, Shards(found[1], found[2], found[3])
    return over


def list_views(client: AskedStore, tables: Sequence[StoreTable] = ()) -> list[RollupView]:
    """Return the materialized views whose source is a table with rows, sorted by name.

    On a cluster, their tables and queries are those over all shards. `tables` are the store's, if known.
    """
    tables = tables or list_tables(client)
    known = {table.name for table in tables}
    names = {table.shards.local: table.name for table in tables if table.shards is not None}
    views = []
    for row in client.query(_VIEWS):
        select = str(row["as_select"])
        if names:
            select = re.sub(rf"\bFROM {_NAME}", lambda found: f"FROM {names.get(found[1], found[1])}", select)
        target, sources = _TARGET.match(str(row["create_table_query"])), _SOURCE.findall(select)
        source = next((name for name in reversed(sources) if name in known), None)
        if target is None or source is None:
            continue
        made = names.get(target[2], target[2])
        if made in known:
            views.append(RollupView(str(row["name"]), source, made, select))
    return views


def time_column(table: StoreTable) -> str | None:
    """Return the column with a row's time or the start of its time bucket; `None` without one."""
    return next((name for name in _TIMES if name in table.columns), None)


def quoted(name: str) -> str:
    """Return a table's name quoted for SQL. Raises ConfigurationError if it is not a valid name."""
    if re.fullmatch(r"\w+", name) is None:
        raise ConfigurationError(f"{name!r} is not a table's name")
    return f"`{name}`"


def _ttl_of(engine: str) -> str:
    found = re.search(r" TTL (.*?)(?: SETTINGS |$)", engine, re.DOTALL)
    return found[1] if found else ""


def _split(key: str) -> list[str]:
    """Split a sort key at commas outside brackets."""
    parts, depth = [""], 0
    for character in key:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts
