"""A store of two shards: moved into, checked, backed up and erased from, as one server is."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from backends.store.archive import load_store, write_store
from backends.store.batch_claims import BatchClaims
from backends.store.checks.check import check_store
from backends.store.client import StoreClient
from backends.store.copies import _engine, attach, clone_table, make_beside
from backends.store.digests import digest_of
from backends.store.erasure import erase_tenant
from backends.store.location import FollowingStore, StoreLocation
from backends.store.move import move_store
from backends.store.rebuild import plan_rebuild
from backends.store.retention import apply_rules, set_rule, set_table_days
from backends.store.store_locks import StoreLocks
from backends.store.tables import COPY_PREFIX, Shards, StoreTable, find_cluster, list_tables, list_views
from contracts.errors import ConfigurationError
from tests.backends.store.test_move import Writer, batch_of
from tests.store_cluster import StoreCluster

TENANTS = [f"tenant-{number}" for number in range(9)]
COPIES = f"SELECT name FROM system.tables WHERE startsWith(name, '{COPY_PREFIX}')"


def count(client: StoreClient, sql: str) -> int:
    (row,) = client.query(sql)
    return int(str(next(iter(row.values()))))


def say_nothing(line: str) -> None:
    pass


@pytest.fixture
def shard(cluster: StoreCluster) -> Iterator[StoreClient]:
    client = cluster.client()
    yield client
    client.close()


def fill(client: StoreClient) -> None:
    for number, tenant in enumerate(TENANTS):
        client.insert_arrow("requests", batch_of(20 + number, tenant), deduplication_token=f"batch-{number}")


@pytest.mark.drill
def test_a_server_s_store_moves_into_a_cluster_under_load_and_is_sound_there(
    empty_store: Any, cluster: StoreCluster, shard: StoreClient, tmp_path: Path
) -> None:
    source = empty_store.client()
    turns, location = StoreLocks(tmp_path), StoreLocation(tmp_path)
    fill(source)
    assert BatchClaims(source).claim({"b1": 7}) == {"b1"}
    # Rows that a rollup still has and its base has lost: they come over as they are.
    source.command("ALTER TABLE requests DELETE WHERE tenant = 'tenant-0'", settings={"mutations_sync": 2})
    rolled = count(source, "SELECT sum(requests) FROM requests_day")
    there = count(source, "SELECT count() FROM requests")
    assert rolled == there + 20
    # The collector that follows is the cluster's from then on, and inserts as the one user that tests have there.
    writer = Writer(turns, FollowingStore(source.address, location))
    try:
        writer.wait_for(40)
        report = move_store(source, shard, turns, location, say_nothing)
        writer.wait_for(writer.rows + 20)
    finally:
        writer.stop()
    left = count(source, "SELECT count() FROM requests")
    assert left == report.rows["requests"] + report.arrived_rows
    other = cluster.client(1)
    for client in (shard, other):
        assert count(client, "SELECT count() FROM requests") == there + writer.rows > left
        assert count(client, "SELECT uniqExact(request_id) FROM requests") == there + writer.rows
        for rollup in ("requests_minute", "requests_hour", "requests_day"):
            assert count(client, f"SELECT sum(requests) FROM {rollup}") == rolled + writer.rows, rollup
    one, two = (
        {tenant for (tenant,) in rows} for rows in cluster.own_rows("SELECT DISTINCT tenant FROM requests_local")
    )
    assert one and two and not one & two, "a tenant's rows are on one shard"
    assert cluster.own_rows(COPIES) == [[], []]
    assert {"`requests_local`", f"`{COPY_PREFIX}for_requests_local`"} <= set(shard.waited_for)  # type: ignore[attr-defined]
    assert count(shard, "SELECT count() FROM batch_claims") == 1
    other.close()
    source.close()


@pytest.mark.drill
def test_a_cluster_is_checked_and_backed_up_as_one_server_is(
    cluster: StoreCluster, shard: StoreClient, other_store: Any, tmp_path: Path
) -> None:
    fill(shard)
    turns = StoreLocks(tmp_path)
    assert check_store(shard, turns, 24, say_nothing).findings == []
    (tmp_path / "backup").mkdir()
    written = write_store(shard, turns, tmp_path / "backup", say_nothing)
    assert written.tables["requests"].rows == sum(20 + number for number in range(9))
    target = other_store.client()
    load_store(target, tmp_path / "backup", written, say_nothing)
    for name in ("requests", "requests_day", "latency_day"):
        here, there = (next(table for table in list_tables(client) if table.name == name) for client in (shard, target))
        assert digest_of(shard, here) == digest_of(target, there), name
    target.close()
    # A rollup that lost a shard's rows is found, wherever the question is asked.
    lost = cluster.client(1)
    StoreClient.command(lost, "TRUNCATE TABLE requests_day_local")
    found = check_store(shard, turns, 24, say_nothing).findings
    assert {finding.where for finding in found} >= {"requests_day"}
    assert {finding.kind for finding in found} == {"rollup_differs"}
    lost.close()
    assert cluster.own_rows(COPIES) == [[], []]
    cluster.empty()
    load_store(shard, tmp_path / "backup", written, say_nothing)
    assert count(shard, "SELECT count() FROM requests") == written.tables["requests"].rows


@pytest.mark.drill
def test_who_is_erased_from_a_cluster_is_gone_from_every_shard(
    cluster: StoreCluster, shard: StoreClient, tmp_path: Path
) -> None:
    fill(shard)
    turns = StoreLocks(tmp_path)
    by_model = count(shard, "SELECT sum(requests) FROM model_hour")
    for number, tenant in enumerate(TENANTS[:4]):
        assert erase_tenant(shard, turns, tenant, say_nothing) > 20
        by_model -= 20 + number
        assert count(shard, "SELECT sum(requests) FROM model_hour") == by_model
    left = {tenant for rows in cluster.own_rows("SELECT DISTINCT tenant FROM requests_local") for (tenant,) in rows}
    assert left == set(TENANTS[4:])
    for rollup in ("requests_day_local", "tenant_cost_day_local", "distinct_values_local"):
        tenants = {tenant for rows in cluster.own_rows(f"SELECT DISTINCT tenant FROM {rollup}") for (tenant,) in rows}
        assert tenants - {""} == set(TENANTS[4:]), rollup
    set_table_days(shard, "requests", 30)
    definitions = cluster.own_rows("SELECT engine_full FROM system.tables WHERE name = 'requests_local'")
    assert all("toIntervalDay(30)" in rows[0][0] for rows in definitions)
    shard.command("ALTER TABLE requests_local ON CLUSTER 'main' MODIFY TTL toDateTime(started_at) + INTERVAL 400 DAY")
    set_rule(shard, "tenant-5", "requests", 1)
    assert apply_rules(shard, datetime.fromtimestamp(time.time() + 3 * 86_400, UTC), say_nothing) == 25
    assert all(("tenant-5",) not in rows for rows in cluster.own_rows("SELECT DISTINCT tenant FROM requests_local"))


@pytest.mark.drill
def test_a_cluster_is_not_moved_from_and_its_rollups_are_not_rebuilt(
    cluster: StoreCluster, shard: StoreClient, other_store: Any, tmp_path: Path
) -> None:
    assert find_cluster(shard) == "main"
    target = other_store.client()
    with pytest.raises(ConfigurationError, match="is the cluster 'main'.*tollkeeper backup"):
        move_store(shard, target, StoreLocks(tmp_path), StoreLocation(tmp_path), say_nothing)
    target.close()
    with pytest.raises(ConfigurationError, match="the cluster 'main', on which no rollup can be rebuilt"):
        plan_rebuild(shard, StoreLocks(tmp_path), "requests_day")
    views = {view.target: view for view in list_views(shard)}
    assert views["requests_day"].source == "requests_hour" or views["requests_day"].source == "requests"
    assert all("_local" not in view.select for view in views.values())


REPLICATED = (
    "ReplicatedReplacingMergeTree('/clickhouse/tables/{uuid}/{shard}', '{replica}', version) PARTITION BY "
    "toYYYYMM(at) ORDER BY (tenant, at) TTL at + toIntervalDay(30), at + toIntervalDay(2) "
    "SETTINGS replicated_deduplication_window = 10000, index_granularity = 8192"
)


def table_of(definition: str) -> StoreTable:
    shards = Shards("main", "sums_local", "cityHash64(tenant)")
    return StoreTable("sums", {"tenant": "String"}, ("tenant",), "", "at", "", definition, shards)


def test_copies_of_a_replicated_table_have_its_keys_and_arguments_and_neither_its_path_nor_its_expiry() -> None:
    keys = "PARTITION BY toYYYYMM(at) ORDER BY (tenant, at)"
    rest = f"{keys} SETTINGS replicated_deduplication_window = 10000, index_granularity = 8192"
    assert _engine(table_of(REPLICATED), is_replicated=True) == f"ReplicatedReplacingMergeTree(version) {rest}"
    assert _engine(table_of(REPLICATED), is_replicated=False) == f"ReplacingMergeTree(version) {rest}"
    plain = REPLICATED.replace("Replacing", "").replace(", version", "").replace("at + toIntervalDay(30), ", "")
    assert _engine(table_of(plain), is_replicated=True) == f"ReplicatedMergeTree {rest}"
    assert _engine(table_of("ReplicatedMergeTree ORDER BY a"), is_replicated=False) == "MergeTree ORDER BY a"


class Recorder:
    """Writes down what a store of a cluster is told, for statements that only a server with a Keeper carries out."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def command(self, sql: str, parameters: object = None, *, settings: object = None) -> None:
        self.said.append(sql)

    def query(self, sql: str, parameters: object = None, *, settings: object = None) -> list[dict[str, str]]:
        return [{"id": "202611"}]


def test_a_server_reads_every_statement_for_a_cluster_s_copies(store: Any) -> None:
    recorder, table = Recorder(), table_of(REPLICATED)
    clone_table(recorder, table, "copy")  # type: ignore[arg-type]
    cloned = list(recorder.said)
    make_beside(recorder, table, "copy")  # type: ignore[arg-type]
    attach(recorder, table, "copy")  # type: ignore[arg-type]
    assert cloned[:2] == [
        "SYSTEM SYNC REPLICA ON CLUSTER 'main' `sums_local`",
        "CREATE TABLE `copy_local` ON CLUSTER 'main' CLONE AS `sums_local` ENGINE = "
        + _engine(table, is_replicated=False),
    ], "each replica is brought to where its shard is before it clones"
    assert recorder.said[-3:] == [
        "SYSTEM SYNC REPLICA ON CLUSTER 'main' `copy_local`",
        "ALTER TABLE `sums_local` ON CLUSTER 'main' ATTACH PARTITION ID '202611' FROM `copy_local`",
        "SYSTEM SYNC REPLICA ON CLUSTER 'main' `sums_local`",
    ], "whichever replica attaches has every part"
    client = store.client()
    for statement in recorder.said:
        assert " ON CLUSTER 'main'" in statement
        client.command(f"EXPLAIN AST {statement}")
    client.close()
