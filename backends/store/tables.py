"""The store's tables as the store itself describes them: what can be copied, compared, expired and rolled up."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from contracts.errors import ConfigurationError

COPY_PREFIX: Final = "tollkeeper_copy_"  # of tables that a backup or a move makes for a while
# Says of its own store what was applied to it; a copy has been migrated on its own.
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
# What stands before the tables of a cluster's shards, as the server spells it.
_DISTRIBUTED: Final = re.compile(r"^Distributed\('([\w.-]+)', '\w+', '(\w+)', (.+)\)$")
_COLLAPSING: Final = re.compile(r"(Aggregating|Replacing|Summing|Collapsing)")
_AGGREGATE: Final = re.compile(r"^(Simple)?AggregateFunction\((\w+)(\([^)]*\))?, ")
_NAME: Final = r"(?:`?\w+`?\.)?`?(\w+)`?"
_TARGET: Final = re.compile(rf"^CREATE MATERIALIZED VIEW {_NAME} TO {_NAME}")
_SOURCE: Final = re.compile(rf"\bFROM {_NAME}")
_INTERVAL: Final = re.compile(r"toInterval(Second|Minute|Hour|Day|Week|Month|Year)\((\d+)\)")
# A month or a year at its shortest: what has certainly not expired is asked for, not what may just have.
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
    """The part of the store's client that is needed to ask."""

    def query(self, sql: str, parameters: Mapping[str, object] | None = None) -> list[dict[str, Any]]:
        """Return a query's rows; raises what StoreClient does."""


@dataclass(frozen=True, slots=True)
class Shards:
    """Where a cluster has a table's rows: in the table `local` of every node, on the shard that `by` names."""

    cluster: str
    local: str
    by: str

    @property
    def on_cluster(self) -> str:
        """Return what makes a statement one that every node of the cluster carries out."""
        return f" ON CLUSTER '{self.cluster}'"


@dataclass(frozen=True, slots=True)
class StoreTable:
    """A table that holds rows. `columns` are those that are inserted, in their order, with their types.

    On a cluster `name` is the table over all shards, and `shards` says where its rows are.
    """

    name: str
    columns: dict[str, str]
    sorting_key: tuple[str, ...]
    engine: str
    ttl: str  # as the store spells it; empty: its rows stay
    partition_key: str = ""  # likewise; empty: one partition
    definition: str = ""  # its engine with all that belongs to it, as the store spells it
    shards: Shards | None = None

    @property
    def changed(self) -> str:
        """Return what follows ALTER TABLE or TRUNCATE TABLE: on a cluster the rows' own table, on every node."""
        if self.shards is None:
            return quoted(self.name)
        return f"{quoted(self.shards.local)}{self.shards.on_cluster}"

    @property
    def is_collapsing(self) -> bool:
        """Whether merges join rows of one key, so that what it holds is read with FINAL."""
        return _COLLAPSING.search(self.engine) is not None

    @property
    def is_split(self) -> bool:
        """Whether shards of a cluster have rows of one key: sums over tenants, of which each shard has its own."""
        return self.shards is not None and "Aggregating" in self.engine and "tenant" not in self.columns

    @property
    def is_base(self) -> bool:
        """Whether its rows are facts as they came, each with the moment it arrived in the store."""
        return not self.is_collapsing and "ingested_at" in self.columns

    @property
    def kept_seconds(self) -> int | None:
        """For how long a row certainly stays, from its own time on; `None` for good."""
        found = [int(number) * _SECONDS[unit] for unit, number in _INTERVAL.findall(self.ttl)]
        return min(found) if found else None

    @property
    def final(self) -> str:
        """What follows the name in a SELECT that wants each key once."""
        return " FINAL" if self.is_collapsing else ""


@dataclass(frozen=True, slots=True)
class RollupView:
    """A materialized view: `select` turns rows of table `source` into rows of table `target`."""

    name: str
    source: str
    target: str
    select: str


def rows_of(table: StoreTable, named: str = "", where: str = "1") -> str:
    """Return what follows FROM for a table's rows, or for those of another one with the same columns.

    Of claims on batches only the first of each batch: which one that is, the numbers of blocks say, and those are the
    table's own and go with no copy.
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
    """Return a SELECT that joins what shards have of one key, each column in its own way."""
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
    """Return the tables that hold rows, by name, without copies that are being made and without the history."""
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
    """Return the name of the cluster over which the store's tables are spread; empty if it is one server."""
    if not client.query(_ANY_DISTRIBUTED):  # a hundredth of the work of spelling every table's definition
        return ""
    rows = {str(row["name"]): row for row in client.query(_TABLES)}
    return next((shards.cluster for _, shards in _tables_over_shards(rows).values()), "")


def _tables_over_shards(rows: Mapping[str, Mapping[str, object]]) -> dict[str, tuple[str, Shards]]:
    """Return, by the name of each shard's own table, the table over all shards and where its rows are."""
    over = {}
    for name, row in rows.items():
        found = _DISTRIBUTED.match(str(row["engine_full"]))
        if found is not None and found[2] in rows:
            over[found[2]] = name, Shards(found[1], found[2], found[3])
    return over


def list_views(client: AskedStore, tables: Sequence[StoreTable] = ()) -> list[RollupView]:
    """Return the materialized views whose source holds rows of its own, by name.

    On a cluster their tables and their query are those over all shards. `tables` are the store's, if known.
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
    """Return the column that says when a row happened, or of which stretch of time it is; `None` without one."""
    return next((name for name in _TIMES if name in table.columns), None)


def quoted(name: str) -> str:
    """Spell a table's name where a statement takes no parameter. Raises ConfigurationError on what is not a name."""
    if re.fullmatch(r"\w+", name) is None:
        raise ConfigurationError(f"{name!r} is not a table's name")
    return f"`{name}`"


def _ttl_of(engine: str) -> str:
    found = re.search(r" TTL (.*?)(?: SETTINGS |$)", engine, re.DOTALL)
    return found[1] if found else ""


def _split(key: str) -> list[str]:
    """Split a sort key at the commas that stand in no bracket."""
    parts, depth = [""], 0
    for character in key:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts
