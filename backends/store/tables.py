"""The store's tables as the store itself describes them: what can be copied, compared, expired and rolled up."""

import re
from collections.abc import Mapping
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
WHERE database = currentDatabase() AND engine LIKE '%MergeTree'
ORDER BY name
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
_COLLAPSING: Final = re.compile(r"(Aggregating|Replacing|Summing|Collapsing)")
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
class StoreTable:
    """A table that holds rows. `columns` are those that are inserted, in their order, with their types."""

    name: str
    columns: dict[str, str]
    sorting_key: tuple[str, ...]
    engine: str
    ttl: str  # as the store spells it; empty: its rows stay
    partition_key: str = ""  # likewise; empty: one partition

    @property
    def is_collapsing(self) -> bool:
        """Whether merges join rows of one key, so that what it holds is read with FINAL."""
        return _COLLAPSING.search(self.engine) is not None

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
    if table.name == CLAIMS and not named:
        others = [column for column in table.columns if column != "batch_id"]
        first = ", ".join(
            f"argMin(claims.{column}, (number, claims.received_at_ns)) AS `{column}`" for column in others
        )
        asked = f"(SELECT batch_id, {', '.join(others)}, _block_number AS number FROM {name} WHERE {where})"
        return f"(SELECT batch_id, {first} FROM {asked} AS claims GROUP BY batch_id)"
    return f"{name}{table.final} WHERE {where}"


def list_tables(client: AskedStore) -> list[StoreTable]:
    """Return the tables that hold rows, by name, without copies that are being made and without the history."""
    columns: dict[str, dict[str, str]] = {}
    for row in client.query(_COLUMNS):
        columns.setdefault(str(row["table"]), {})[str(row["name"])] = str(row["type"])
    return [
        StoreTable(
            name,
            columns[name],
            tuple(part.strip() for part in _split(str(row["sorting_key"]))),
            str(row["engine"]),
            _ttl_of(str(row["engine_full"])),
            str(row["partition_key"]),
        )
        for row in client.query(_TABLES)
        if not (name := str(row["name"])).startswith(COPY_PREFIX) and name != HISTORY
    ]


def list_views(client: AskedStore) -> list[RollupView]:
    """Return the materialized views whose source holds rows of its own, by name."""
    known = {table.name for table in list_tables(client)}
    views = []
    for row in client.query(_VIEWS):
        target, sources = _TARGET.match(str(row["create_table_query"])), _SOURCE.findall(str(row["as_select"]))
        source = next((name for name in reversed(sources) if name in known), None)
        if target is not None and target[2] in known and source is not None:
            views.append(RollupView(str(row["name"]), source, target[2], str(row["as_select"])))
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
