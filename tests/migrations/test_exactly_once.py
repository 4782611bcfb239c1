"""A batch counts once, in its table and in every rollup, however often and from wherever it is sent again."""

import json
import random
import time
from typing import Any

import pyarrow
import pytest

from backends.store.columns import arrow_batch
from contracts.access.identity import Identity
from contracts.errors import StoreUnavailable
from contracts.metering.gaps import pack_gaps
from contracts.metering.usage import Usage
from contracts.recording.ids import uuid7
from contracts.recording.names import ENGINE_STEPS, REQUESTS
from contracts.recording.records import RequestRecord, StepRecord

# Rows of a past week would expire from the rollup by minutes, so the batches are of now.
NOW_NS = time.time_ns() // 10**9 * 10**9
MINUTE_NS = 60 * 10**9
# What is filled from what: a table, and the one whose inserts its view sees.
SOURCES = {
    "requests_minute": "requests",
    "requests_hour": "requests_minute",
    "requests_day": "requests_hour",
    "distinct_values": "requests",
    "requests_recent": "requests",
    "latency_day": "requests",
    "model_latency_day": "latency_day",
    "tenant_cost_day": "requests_day",
    "indicators_minute": "requests",
    "indicators_hour": "indicators_minute",
    "tenant_hour": "requests_hour",
    "model_hour": "requests_hour",
    "model_steps_hour": "indicators_hour",
    "model_steps_day": "indicators_hour",
}
DERIVED = ("requests", *SOURCES)


def request_batch(seed: int, rows: int = 50) -> list[RequestRecord]:
    chance = random.Random(seed)
    return [
        RequestRecord(
            request_id=uuid7(NOW_NS + i).bytes,
            started_at_ns=NOW_NS - i % 50 * 40_000_000_000,  # spread over minutes and hours
            duration_ns=chance.randrange(10**10),
            who=Identity(chance.choice(["acme", "globex"])),
            model=chance.choice(["small", "large"]),
            gaps=pack_gaps([chance.randrange(5000) for _ in range(20)]),
            ttft_ns=chance.randrange(10**9),
            usage=Usage(input_text=chance.randrange(1000), output_text=21),
            cost_pico_usd=chance.randrange(10**12),
        )
        for i in range(rows)
    ]


def contents(client: Any, tables: tuple[str, ...] = DERIVED) -> dict[str, str]:
    """Everything in the tables, in one comparable form."""
    found = {}
    for table in tables:
        rows = client.query(
            "SELECT name FROM system.columns WHERE database = currentDatabase() AND table = {table:String} "
            "AND name != 'ingested_at'",
            {"table": table},
        )
        names = [str(row["name"]) for row in rows]
        assert names
        final = "" if table in ("requests", "requests_recent") else "FINAL"
        plain = ", ".join(f"hex({name})" if name.endswith("_state") else name for name in names)
        found[table] = json.dumps(client.query(f"SELECT {plain} FROM {table} {final} ORDER BY ALL"), default=str)
    return found


@pytest.mark.parametrize("times", [2, 5])
def test_the_same_batch_twice_changes_nothing(empty_store: Any, times: int) -> None:
    client = empty_store.client()
    batch = arrow_batch(REQUESTS, request_batch(seed=times))
    client.insert_arrow("requests", batch, deduplication_token=f"once-{times}")
    before = contents(client)
    assert client.query("SELECT count() AS rows FROM requests") == [{"rows": 50}]
    for _ in range(times - 1):
        client.insert_arrow("requests", batch, deduplication_token=f"once-{times}")
    assert contents(client) == before
    client.insert_arrow("requests", batch, deduplication_token=f"another-{times}")
    assert client.query("SELECT sum(requests) AS n FROM requests_day") == [{"n": 100}]
    client.close()


def test_the_same_batch_in_pieces_is_the_same_batch(empty_store: Any) -> None:
    client = empty_store.client()
    batch = arrow_batch(REQUESTS, request_batch(seed=11))
    client.insert_arrow("requests", batch, deduplication_token="whole")
    before = contents(client)
    pieces = pyarrow.concat_tables([batch.slice(0, 20), batch.slice(20, 20), batch.slice(40)])
    client.insert_arrow("requests", pieces, deduplication_token="whole")
    assert contents(client) == before
    client.close()


def test_a_batch_that_reached_the_table_but_not_the_rollups_is_completed(migrated_store: Any) -> None:
    """The crash between a base table and its views, made by hand: the views' targets are emptied in between."""
    migrated_store.start()
    client = migrated_store.client()
    batch = arrow_batch(REQUESTS, request_batch(seed=3))
    views = [f"{table}_from_{source}" for table, source in SOURCES.items()]
    client.insert_arrow("requests", batch, deduplication_token="reference")
    reference = contents(client)
    for table in DERIVED:
        client.command(f"TRUNCATE TABLE {table}")
    for view in views:
        client.command(f"DETACH TABLE {view}")
    client.insert_arrow("requests", batch, deduplication_token="torn")
    assert client.query("SELECT sum(requests) AS n FROM requests_day") == [{"n": 0}]
    for view in views:
        client.command(f"ATTACH TABLE {view}")
    client.insert_arrow("requests", batch, deduplication_token="torn")
    assert contents(client) == reference
    client.close()


@pytest.mark.drill
def test_batches_retried_across_kills_are_present_exactly_once(migrated_store: Any) -> None:
    migrated_store.start()
    client = migrated_store.client()
    sent = 0
    for round_number in range(4):
        batch = arrow_batch(REQUESTS, request_batch(seed=round_number, rows=2000))
        client.insert_arrow("requests", batch, deduplication_token=f"kill-{round_number}")
        migrated_store.kill()  # right after the answer: what was acknowledged must be there, and must not double
        with pytest.raises(StoreUnavailable):
            client.insert_arrow("requests", batch, deduplication_token=f"kill-{round_number}")
        migrated_store.start()
        client.insert_arrow("requests", batch, deduplication_token=f"kill-{round_number}")
        sent += 2000
    assert client.query("SELECT count() AS n FROM requests") == [{"n": sent}]
    for table in (
        "requests_minute",
        "requests_hour",
        "requests_day",
        "latency_day",
        "model_latency_day",
        "tenant_cost_day",
        "indicators_minute",
        "indicators_hour",
        "tenant_hour",
        "model_hour",
    ):
        assert client.query(f"SELECT sum(requests) AS n FROM {table}") == [{"n": sent}], table
    client.close()


def test_steps_reach_their_minutes_once_and_sums_are_exact(empty_store: Any) -> None:
    client = empty_store.client()
    steps = [
        StepRecord(
            engine="e0",
            sequence=i,
            started_at_ns=NOW_NS // MINUTE_NS * MINUTE_NS + i * 1_000_000_000,
            busy_ns=1000 + i,
            gap_ns=10,
            ranks=2,
            waiting=i % 3,
            tenants=["acme", "globex"],
            request_ids=[bytes(16), bytes(16)],
            scheduled=[5, 1],
            phases=[0, 1],
            gpu_ns=[600 + i, 400],
        )
        for i in range(120)
    ]
    for _ in range(2):
        client.insert_arrow("engine_steps", arrow_batch(ENGINE_STEPS, steps), deduplication_token="steps")
    (total,) = client.query(
        "SELECT sum(steps) AS steps, sum(busy_ns) AS busy, sum(device_busy_ns) AS device, sum(attributed_ns) AS shared,"
        " max(waiting_max) AS waiting, max(last_sequence) - min(first_sequence) + 1 AS span, "
        "uniqExact(bucket) AS minutes FROM engine_minutes"
    )
    busy = sum(step.busy_ns for step in steps)
    assert total == {
        "steps": 120, "busy": busy, "device": 2 * busy, "shared": busy, "waiting": 2, "span": 120, "minutes": 2,
    }  # fmt: skip
    rows = client.query(
        "SELECT tenant, phase, sum(gpu_ns) AS gpu, sum(scheduled_tokens) AS tokens FROM engine_tenant_minutes "
        "GROUP BY tenant, phase ORDER BY tenant"
    )
    assert rows == [
        {"tenant": "acme", "phase": 0, "gpu": busy - 400 * 120, "tokens": 600},
        {"tenant": "globex", "phase": 1, "gpu": 400 * 120, "tokens": 120},
    ]
    client.close()
