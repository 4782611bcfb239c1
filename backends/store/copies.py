"""Temporary tables that a backup, move or repair creates; on a cluster, on all of its nodes.

On a cluster each operation is one statement (`ON CLUSTER`), which returns once all nodes have executed it.
"""

import re
from typing import Final

from backends.store.client import StoreClient
from backends.store.tables import COPY_PREFIX, StoreTable, find_cluster, quoted

_COPIES: Final = (
    "SELECT name FROM system.tables WHERE database = currentDatabase() AND startsWith(name, {prefix:String})"
)
_PARTITIONS: Final = "SELECT DISTINCT _partition_id AS id FROM {name:Identifier} ORDER BY id"
# The definition of a replicated table: its path in Keeper and its replica precede the engine's own arguments.
_REPLICATED: Final = re.compile(r"^Replicated(\w*MergeTree)(?:\('[^']*', '[^']*'(?:, ([^)]*))?\))?(.*)$", re.DOTALL)
_TTL: Final = re.compile(r" TTL .*?(?= SETTINGS |$)", re.DOTALL)
_OF_A_SHARD: Final = "_local"


def clone_table(client: StoreClient, table: StoreTable, copy: str) -> None:
    """Create a clone that shares its files with the table. On a cluster every node clones its own rows.

    There, each replica is synchronised first, so that it makes no difference which replica of a shard answers.
    """
    if table.shards is None:
        client.command(f"CREATE TABLE {quoted(copy)} CLONE AS {quoted(table.name)}")
        return
    sync_replicas(client, table)
    engine = _engine(table, is_replicated=False)
    local = quoted(copy + _OF_A_SHARD)
    client.command(
        f"CREATE TABLE {local}{table.shards.on_cluster} CLONE AS {quoted(table.shards.local)} ENGINE = {engine}"
    )
    _make_over_shards(client, table, copy)


def make_beside(client: StoreClient, table: StoreTable, copy: str) -> None:
    """Create an empty table with the same columns and partitions, for `attach`; drops an old one first."""
    drop_copy(client, table, copy)
    if table.shards is None:
        client.command(f"CREATE TABLE {quoted(copy)} AS {quoted(table.name)}")
        return
    engine = _engine(table, is_replicated=True)
    local = quoted(copy + _OF_A_SHARD)
    client.command(f"CREATE TABLE {local}{table.shards.on_cluster} AS {quoted(table.shards.local)} ENGINE = {engine}")
    _make_over_shards(client, table, copy)


def attach(client: StoreClient, table: StoreTable, copy: str) -> None:
    """Attach the parts of a table made by `make_beside`, unseen by views. That table is not changed."""
    sync_replicas(client, table, copy)
    source = quoted(copy if table.shards is None else copy + _OF_A_SHARD)
    for row in client.query(_PARTITIONS, {"name": copy}):
        client.command(f"ALTER TABLE {table.changed} ATTACH PARTITION ID '{row['id']}' FROM {source}")
    sync_replicas(client, table)


def sync_replicas(client: StoreClient, table: StoreTable, copy: str = "") -> None:
    """Wait until every replica has the data of its shard; does nothing on a single server.

    With `copy`, for that table. Raises StoreUnavailable or StoreRefused if a replica is unreachable.
    """
    if table.shards is not None:
        local = copy + _OF_A_SHARD if copy else table.shards.local
        client.command(f"SYSTEM SYNC REPLICA{table.shards.on_cluster} {quoted(local)}")


def keep_expired(client: StoreClient, table: StoreTable, copy: str) -> None:
    """Remove a copy's TTL, so that rows which expire meanwhile are still compared. Copies on a cluster have none."""
    if table.ttl and table.shards is None:
        client.command("ALTER TABLE {copy:Identifier} REMOVE TTL", {"copy": copy})


def drop_copy(client: StoreClient, table: StoreTable, copy: str) -> None:
    """Drop one copy of a table if it exists."""
    if table.shards is None:
        client.command(f"DROP TABLE IF EXISTS {quoted(copy)} SYNC")
        return
    for name in (copy, copy + _OF_A_SHARD):
        client.command(f"DROP TABLE IF EXISTS {quoted(name)}{table.shards.on_cluster} SYNC")


def drop_copies(client: StoreClient) -> None:
    """Drop all temporary tables of snapshots and copies."""
    names = [str(row["name"]) for row in client.query(_COPIES, {"prefix": COPY_PREFIX})]
    if not names:
        return
    cluster = find_cluster(client)
    if not cluster:
        client.command(f"DROP TABLE IF EXISTS {', '.join(quoted(name) for name in names)} SYNC")
    for name in names if cluster else ():
        client.command(f"DROP TABLE IF EXISTS {quoted(name)} ON CLUSTER '{cluster}' SYNC")


def _make_over_shards(client: StoreClient, table: StoreTable, copy: str) -> None:
    assert table.shards is not None
    shards, local = table.shards, copy + _OF_A_SHARD
    client.command(
        f"CREATE TABLE {quoted(copy)}{shards.on_cluster} AS {quoted(local)} "
        f"ENGINE = Distributed('{shards.cluster}', currentDatabase(), {quoted(local)}, {shards.by})"
    )


def _engine(table: StoreTable, *, is_replicated: bool) -> str:
    """Return a table's engine clause with its keys, without TTL and without the replica's path, which the server
    chooses.
    """
    engine = _TTL.sub("", table.definition)
    found = _REPLICATED.match(engine)
    if found is None:
        return engine
    kind = f"Replicated{found[1]}" if is_replicated else found[1]
    return f"{kind}({found[2]}){found[3]}" if found[2] else f"{kind}{found[3]}"
