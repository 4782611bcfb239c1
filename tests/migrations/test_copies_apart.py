"""Copies leave the sums of all tenants of a store that has rows (migration 0026), wherever that was cut off."""

import time
from typing import Any
from uuid import uuid4

import pyarrow
import pytest

from backends.store.client import StoreClient
from backends.store.columns import arrow_batch
from contracts.access.identity import Identity
from contracts.metering.gaps import pack_gaps
from contracts.recording.ids import uuid7
from contracts.recording.names import REQUESTS
from contracts.recording.records import RequestRecord
from contracts.serving.rollouts import PLATFORM_TENANT
from migrations.store import migrate_store, read_migrations

pytestmark = pytest.mark.drill

APART = 26
HOUR_NS = 3_600 * 10**9
NOW_NS = time.time_ns() // 10**9 * 10**9
TENANTS = ("acme", PLATFORM_TENANT, "globex", PLATFORM_TENANT, "acme")


def batch(rows: int) -> pyarrow.Table:
    """The given number of requests of the last three days, of which two in five are copies and a hundred times as
    slow.
    """
    return arrow_batch(
        REQUESTS,
        [
            RequestRecord(
                request_id=uuid7(NOW_NS).bytes,
                started_at_ns=NOW_NS - number % 72 * HOUR_NS,
                duration_ns=10**9 if (tenant := TENANTS[number % len(TENANTS)]) != PLATFORM_TENANT else 10**11,
                who=Identity(tenant),
                model=("small", "large")[number % 2],
                ttft_ns=10**8 if tenant != PLATFORM_TENANT else 10**10,
                gaps=pack_gaps([1_000, 2_000]),
            )
            for number in range(rows)
        ],
    )


def insert(client: StoreClient, rows: int) -> None:
    found = client.query("SELECT name FROM system.columns WHERE database = currentDatabase() AND table = 'requests'")
    known = {str(row["name"]) for row in found}  # later files have added columns
    rows_then = batch(rows)
    there = rows_then.select([name for name in rows_then.column_names if name in known])
    client.insert_arrow("requests", there, deduplication_token=str(uuid4()))


def require_apart(client: StoreClient, wanted: int) -> None:
    """Each of the sums that tell no tenants apart has the given number of requests, and no time of a copy's."""
    (day,) = client.query(
        "SELECT sum(source.requests) AS n, sum(source.ttft_count) AS first_tokens, sum(source.gap_count) AS gaps, "
        "quantilesDDMerge(0.01, 0.5, 0.9, 0.95, 0.99)(source.ttft_state)[4] AS slowest "
        "FROM model_latency_day AS source"
    )
    assert (day["n"], day["first_tokens"], day["gaps"]) == (wanted, wanted, 2 * wanted)
    assert 0.98e8 < float(str(day["slowest"])) < 1.02e8
    for table in ("model_steps_hour", "model_steps_day"):
        rows = client.query(f"SELECT measure_name AS name, sum(requests) AS n FROM {table} GROUP BY name ORDER BY name")
        assert [(row["name"], row["n"]) for row in rows] == [
            ("end_to_end", wanted),
            ("inter_token", wanted),
            ("ttft", wanted),
        ], table


def test_sums_of_all_leave_copies_out_wherever_the_file_was_cut_off(new_store: Any) -> None:
    new_store.start()
    files = read_migrations()
    migrate_store(new_store.address(), files[: APART - 1], wait_seconds=10, say=lambda line: None)
    client = new_store.client()
    insert(client, 100)
    assert client.query("SELECT sum(requests) AS n FROM model_latency_day") == [{"n": 100}], "copies were in it"
    statements = list(files[APART - 1].statements())
    seen = 60
    for cut in range(len(statements)):
        for statement in statements[:cut]:
            client.command(statement)
        insert(client, 5)  # of a collector that was started again before the rest was applied
        seen += 3
        for statement in statements:
            client.command(statement)
        require_apart(client, seen)
    migrate_store(new_store.address(), files, wait_seconds=10, say=lambda line: None)
    require_apart(client, seen)
    insert(client, 50)
    require_apart(client, seen + 30)
    (row,) = client.query(
        "SELECT sum(requests) AS n FROM latency_day WHERE tenant = {own:String}", {"own": PLATFORM_TENANT}
    )
    assert row["n"] == (seen + 30) * 2 // 3, "by tenant they are all there"
    client.close()
