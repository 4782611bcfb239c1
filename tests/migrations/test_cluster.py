"""The numbered files for a cluster: the engine reads them, and two shards come to the sums of one store."""

import re
import time
from dataclasses import replace
from typing import Any

import pytest

from backends.store.client import StoreClient
from backends.store.columns import arrow_batch
from contracts.access.identity import Identity
from contracts.errors import ConfigurationError, StoreRefused
from contracts.metering.gaps import pack_gaps
from contracts.metering.usage import Usage
from contracts.recording.ids import uuid7
from contracts.recording.names import REQUESTS
from contracts.recording.records import RequestRecord
from migrations.cluster import ClusterRendering
from migrations.store import migrate_store, read_migrations
from tests.store_cluster import StoreCluster

NOW_NS = time.time_ns()


def rendered(cluster: str = "main") -> list[str]:
    rendering = ClusterRendering(cluster)
    files = (rendering.statements(migration.statements()) for migration in read_migrations())
    return [rendering.record_table, *(statement for statements in files for statement in statements)]


def test_the_engine_reads_every_statement(store: Any) -> None:
    client: StoreClient = store.client()
    for statement in rendered():
        client.command(f"EXPLAIN AST {statement}")
    with pytest.raises(StoreRefused):
        client.command(f"EXPLAIN AST {rendered()[1].replace('ENGINE =', 'ENGINE IS')}")
    client.close()


def test_whatever_changes_a_table_is_done_on_all_nodes() -> None:
    for statement in rendered():
        if not statement.startswith("INSERT INTO "):  # which goes through a distributed table
            assert statement.split("\n")[0].count(" ON CLUSTER 'main'") == 1, statement[:80]


def test_every_table_is_replicated_and_shared_out_by_tenant() -> None:
    made = rendered()[1:]
    local = {found[1]: text for text in made if (found := re.match(r"CREATE TABLE IF NOT EXISTS (\w+)_local\b", text))}
    assert {"requests", "attempts", "traces", "logs", "metrics", "requests_day", "latency_day"} <= set(local)
    for table, text in local.items():
        assert re.search(r"\nENGINE = Replicated\w*MergeTree\b", text) and "non_replicated" not in text, table
        has_window = "replicated_deduplication_window = 10000" in text
        assert has_window == ("replicated_deduplication_window_seconds = 604800" in text), table
        has_tenant = re.search(r"^    tenant\b(?!.* ALIAS )", text, re.MULTILINE)
        (first,) = re.findall(r"\nORDER BY \(?(\w+)", text)
        shard = f"cityHash64({'tenant' if has_tenant else first})"
        over = f"ENGINE = Distributed('main', currentDatabase(), {table}_local, {shard})"
        assert f"CREATE TABLE IF NOT EXISTS {table} ON CLUSTER 'main' AS {table}_local\n{over}" in made


@pytest.mark.parametrize("name", ["", "a b", "main'; DROP TABLE requests", "x" * 64])
def test_a_name_that_no_cluster_has_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="must be 1 to 63 letters"):
        ClusterRendering(name)


def test_a_statement_of_another_kind_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no rendering for a cluster is known of the statement 'OPTIMIZE"):
        list(ClusterRendering("main").statements(["OPTIMIZE TABLE requests FINAL"]))


def test_a_cluster_that_the_server_does_not_know_stops_before_anything_is_made(store: Any) -> None:
    address = replace(store.address("supervisor"), database="elsewhere")
    with pytest.raises(ConfigurationError, match="knows no cluster 'mian'; it knows "):
        migrate_store(address, read_migrations(), wait_seconds=0, say=lambda line: None, cluster="mian")
    client = store.client("supervisor")
    assert client.query("SELECT name FROM system.databases WHERE name = 'elsewhere'") == []
    client.close()


def record(index: int) -> RequestRecord:
    return RequestRecord(
        request_id=uuid7(NOW_NS + index).bytes,
        started_at_ns=NOW_NS - index * 7 * 10**9,
        duration_ns=10**9 + index,
        who=Identity(f"tenant-{index % 17}", "search", "ranking", "key_1", "ada"),
        model=("small", "large")[index % 2],
        ttft_ns=10**8 + index,
        gaps=pack_gaps([index % 50, 3]),
        usage=Usage(input_text=index, output_text=3),
        cost_pico_usd=index * 1000,
    )


SUMS = {
    "requests": "count() AS n, sum(cost_usd) AS cost, sum(length(gaps)) AS gaps",
    "requests_minute": "sum(requests) AS n, sum(cost_usd) AS cost, sum(gap_count) AS gaps",
    "requests_hour": "sum(requests) AS n, sum(cost_usd) AS cost, sum(gap_count) AS gaps",
    "requests_day": "sum(requests) AS n, sum(cost_usd) AS cost, sum(gap_count) AS gaps",
    "tenant_cost_day": "sum(requests) AS n, sum(cost_usd) AS cost",
    "latency_day": "sum(requests) AS n, quantilesDDMerge(0.01, 0.5, 0.9, 0.95, 0.99)(gap_state) AS gaps",
    "model_latency_day": "sum(requests) AS n, quantilesDDMerge(0.01, 0.5, 0.9, 0.95, 0.99)(ttft_state) AS ttft",
    "tenant_hour": "sum(requests) AS n, sum(cost_usd) AS cost",
    "model_hour": "sum(requests) AS n, sum(cost_usd) AS cost",
    "model_steps_day": "sum(requests) AS n, sumIf(requests, measure_name = 'ttft') AS first_tokens",
    "requests_recent": "count() AS n, sum(arraySum(gaps)) AS gaps",
    "distinct_values": "uniqExact(kind, tenant, value) AS n",
}


@pytest.mark.drill
def test_two_shards_come_to_the_sums_of_one_store(cluster: StoreCluster, empty_store: Any) -> None:
    shards = cluster.nodes
    alone, one, two = empty_store.client(), shards[0].client("supervisor"), shards[1].client("supervisor")
    batch = arrow_batch(REQUESTS, [record(index) for index in range(600)])
    alone.insert_arrow("requests", batch, deduplication_token="batch")
    for node in (one, two, one):  # the same batch, tried again and elsewhere, counts once
        node.insert_arrow("requests", batch, deduplication_token="batch")
    for table, sums in SUMS.items():
        expected = alone.query(f"SELECT {sums} FROM {table}")
        assert expected[0]["n"]
        assert one.query(f"SELECT {sums} FROM {table}") == two.query(f"SELECT {sums} FROM {table}") == expected, table
    held = [{row["tenant"] for row in node.query("SELECT tenant FROM requests_local")} for node in (one, two)]
    assert held[0] and held[1] and not held[0] & held[1]
    native = ",".join(f"127.0.0.1:{node.native_port}" for node in shards[1:])
    (there,) = one.query(
        f"SELECT count() AS n FROM remote('{native}', tollkeeper, requests_local, 'supervisor', {{password:String}})",
        {"password": shards[1].address("supervisor").password},
    )
    assert there == two.query("SELECT count() AS n FROM requests_local")[0]
    one.command(
        "INSERT INTO otel_traces_in (Timestamp, TraceId, SpanAttributes) SELECT now64(9), '00', "
        "map('tollkeeper.tenant.id', concat('tenant-', toString(number))) FROM numbers(17)",
        settings={"distributed_foreground_insert": 1},
    )
    spans = [{row["tenant"] for row in node.query("SELECT tenant FROM traces_local")} for node in (one, two)]
    assert (spans[0] | spans[1], spans[0] & spans[1]) == (held[0] | held[1], set())
    assert all(spans[index] == held[index] for index in range(2))
    for client in (alone, one, two):
        client.close()
