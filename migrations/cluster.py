"""The numbered files on a cluster: each table is replicated on every shard, with a distributed one over the shards.

The plain name is the distributed table, so whatever reads or writes a store does so on a cluster too; the shards' own
tables end in `_local`. A tenant's rows are all on one shard, and what is derived from rows is derived where they are.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from contracts.errors import ConfigurationError

_CLUSTER_NAME: Final = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$")
_TABLE: Final = re.compile(r"^CREATE TABLE IF NOT EXISTS (\w+)\b")
_ENGINE: Final = re.compile(r"\bENGINE = (\w*)MergeTree\b(\([^)]*\))?")
_DERIVING: Final = re.compile(r"^CREATE MATERIALIZED VIEW IF NOT EXISTS (\w+) TO (\w+) AS\n(.*)$", re.DOTALL)
_SHOWING: Final = re.compile(r"^(CREATE VIEW IF NOT EXISTS \w+)(.*)$", re.DOTALL)
_ALTERATION: Final = re.compile(r"^ALTER TABLE (\w+)\s(.*)$", re.DOTALL)
_REMOVAL: Final = re.compile(r"^DROP TABLE IF EXISTS (\w+)$")
_EMPTYING: Final = re.compile(r"^TRUNCATE TABLE IF EXISTS (\w+)$")
_READING: Final = re.compile(r"\bFROM (\w+)(\s+AS \w+)?")
_OF_STORED: Final = re.compile(
    r"^\s*(MODIFY COLUMN (IF EXISTS )?\w+ CODEC|(ADD|MATERIALIZE|DROP) (INDEX|PROJECTION))\b"
)
_NEXT_CHANGE: Final = re.compile(r",\n(?= {4}\w)")  # what one change lists is indented further
_WINDOW: Final = re.compile(r"\bnon_replicated_deduplication_window = (\d+)")
# One server remembers a batch by number alone, Keeper for an hour if not told otherwise: a collector that was away for
# longer in the middle of a batch would store it again. A week is as long as `content` is kept.
_WINDOW_SECONDS: Final = "replicated_deduplication_window_seconds = 604800"


class ClusterRendering:
    """Renders the statements of all files, in their order, for one cluster. It remembers which tables are sharded.

    Raises ConfigurationError on a name that no cluster has, and on an unknown kind of statement.
    """

    def __init__(self, cluster: str) -> None:
        if not _CLUSTER_NAME.match(cluster):
            raise ConfigurationError(f"cluster {cluster!r} must be 1 to 63 letters, digits, '_', '.' or '-'")
        self._on = f"ON CLUSTER '{cluster}'"
        self._cluster = cluster
        self._sharded: set[str] = set()

    @property
    def record_table(self) -> str:
        """Return the statement that makes `schema_migrations`, the same on every replica of every shard."""
        return (
            f"CREATE TABLE IF NOT EXISTS schema_migrations {self._on}\n"
            "(version UInt32, name String, checksum String, applied_at DateTime64(3, 'UTC') DEFAULT now64(3))\n"
            "ENGINE = ReplicatedReplacingMergeTree("
            "'/clickhouse/tables/all/{database}/schema_migrations', '{shard}-{replica}')\n"
            "ORDER BY version"
        )

    @property
    def on_cluster(self) -> str:
        """Return the clause `ON CLUSTER ...`, which follows a table's name and makes every node execute the
        statement.
        """
        return f" {self._on}"

    @property
    def database(self) -> str:
        """Return the statement that makes the database on every node; it binds {name:Identifier}."""
        return f"CREATE DATABASE IF NOT EXISTS {{name:Identifier}} {self._on}"

    def statements(self, plain: Iterable[str]) -> Iterator[str]:
        """Render statements that follow those rendered before."""
        for statement in plain:
            yield from self._rendered(statement)

    def _rendered(self, plain: str) -> list[str]:
        if found := _TABLE.match(plain):
            return self._table(found[1], plain)
        if found := _DERIVING.match(plain):
            return [self._derived(found[1], found[2], found[3])]
        if found := _SHOWING.match(plain):
            return [f"{found[1]} {self._on}{found[2]}"]
        if found := _ALTERATION.match(plain):
            return self._altered(found[1], found[2])
        if found := _REMOVAL.match(plain):
            self._sharded.discard(found[1])
            return [f"DROP TABLE IF EXISTS {name} {self._on} SYNC" for name in (found[1], f"{found[1]}_local")]
        if found := _EMPTYING.match(plain):
            return [f"TRUNCATE TABLE IF EXISTS {self._local(found[1])} {self._on}"]
        if plain.startswith("DROP VIEW IF EXISTS "):
            return [f"{plain} {self._on} SYNC"]
        if plain.startswith("INSERT INTO "):  # from distributed to distributed: each shard is sent its own rows
            return [f"{plain}, distributed_foreground_insert = 1"]
        raise ConfigurationError(f"no rendering for a cluster is known of the statement {plain[:60]!r}")

    def _table(self, name: str, plain: str) -> list[str]:
        engine = _ENGINE.search(plain)
        if engine is None:  # engine Null keeps nothing: every node has its own way in
            return [plain.replace(f"EXISTS {name}", f"EXISTS {name} {self._on}", 1)]
        self._sharded.add(name)
        local = plain.replace(f"EXISTS {name}", f"EXISTS {name}_local {self._on}", 1)
        local = _ENGINE.sub(lambda found: f"ENGINE = Replicated{found[1]}MergeTree{found[2] or ''}", local)
        local = _WINDOW.sub(rf"replicated_deduplication_window = \1, {_WINDOW_SECONDS}", local)
        over = (
            f"CREATE TABLE IF NOT EXISTS {name} {self._on} AS {name}_local\n"
            f"ENGINE = Distributed('{self._cluster}', currentDatabase(), {name}_local, cityHash64({_shard_by(plain)}))"
        )
        return [local, over]

    def _derived(self, view: str, target: str, select: str) -> str:
        sources = [found[1] for found in _READING.finditer(select) if found[1] in self._sharded]
        # What a node is sent for all shards (a Null table) goes on to the shard of its tenant; what a shard has stays.
        target = self._local(target) if sources else target
        return (
            f"CREATE MATERIALIZED VIEW IF NOT EXISTS {view} {self._on} TO {target} AS\n"
            f"{_READING.sub(self._reading, select)}"
        )

    def _reading(self, found: re.Match[str]) -> str:
        if found[1] not in self._sharded:
            return found[0]
        return f"FROM {self._local(found[1])}{found[2] or f' AS {found[1]}'}"

    def _altered(self, table: str, changes: str) -> list[str]:
        local = f"ALTER TABLE {self._local(table)} {self._on} {changes}"
        kept = [change for change in _NEXT_CHANGE.split(changes) if not _OF_STORED.match(change)]
        if not kept:  # how columns are compressed and indexed is nothing to a table that keeps none
            return [local]
        return [local, f"ALTER TABLE {table} {self._on} " + ",\n".join(kept)]

    def _local(self, table: str) -> str:
        return f"{table}_local" if table in self._sharded else table


def _shard_by(create: str) -> str:
    """Return the column that decides a row's shard: its tenant, else the first of its sort key."""
    if re.search(r"^    tenant\b(?!.* ALIAS )", create, re.MULTILINE):
        return "tenant"
    found = re.search(r"ORDER BY \(?(\w+)", create)
    if found is None:
        raise ConfigurationError(f"a table without ORDER BY cannot be spread over shards: {create[:60]!r}")
    return found[1]
