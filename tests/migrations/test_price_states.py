"""Sums of a store that has rows are told apart by failure, unknown usage and missing price (migration 0030)."""

import time
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest

from backends.store.client import StoreClient
from backends.store.columns import arrow_batch
from contracts.access.identity import Identity
from contracts.metering.usage import Usage
from contracts.recording.ids import uuid7
from contracts.recording.names import REQUESTS
from contracts.recording.records import RequestRecord
from migrations.store import migrate_store, read_migrations

pytestmark = pytest.mark.drill

STATES = 30
NOW_NS = time.time_ns() // 10**9 * 10**9
USAGE = Usage(input_text=100, output_text=10)
TABLES = ("requests_minute", "requests_hour", "requests_day", "tenant_model_day", "tenant_cost_day", "tenant_hour")
SUMS = (
    *("requests", "failed_requests", "usage_unknown_requests", "no_price_requests", "partly_unpriced_requests"),
    *("unpriced_input_tokens", "unpriced_output_tokens", "estimated_requests", "estimated_usd"),
)


def made(**fields: Any) -> RequestRecord:
    wanted: dict[str, Any] = {"duration_ns": 1000, "who": Identity("acme"), "model": "small", **fields}
    return RequestRecord(request_id=uuid7(NOW_NS).bytes, started_at_ns=NOW_NS, **wanted)


def old_rows() -> list[RequestRecord]:
    """What records said before they told why there is no cost: a cost or none, an outcome, and usage or none."""
    return [
        made(usage=USAGE, cost_pico_usd=2_000, cost_basis="price_card"),
        made(usage=USAGE, cost_pico_usd=3_000, cost_basis="price_card", count_method="estimate"),
        made(outcome="error", status=502),
        made(outcome="error", status=429),
        made(),
        made(model="large", usage=USAGE),
        made(outcome="rejected", status=429),
    ]


def new_rows() -> list[RequestRecord]:
    """What records say since."""
    return [
        made(outcome="error", status=502, cost_pico_usd=0, cost_basis="free"),
        made(cost_basis="unknown_usage"),
        made(usage=USAGE, cost_basis="unpriced"),
        made(
            usage=Usage(input_text=100, input_audio=7, output_text=10),
            cost_pico_usd=5_000,
            cost_basis="price_card",
            unpriced_leaves=["input_audio"],
            count_method="estimate",
        ),
    ]


def insert(client: StoreClient, rows: list[RequestRecord]) -> None:
    batch = arrow_batch(REQUESTS, rows)
    found = client.query("SELECT name FROM system.columns WHERE database = currentDatabase() AND table = 'requests'")
    known = {row["name"] for row in found}  # a release of that time wrote no column that a later migration adds
    batch = batch.select([name for name in batch.column_names if name in known])
    client.insert_arrow("requests", batch, deduplication_token=str(uuid4()))


def sums_of(client: StoreClient, table: str) -> dict[str, object]:
    summed = ", ".join(f"sum(source.{name}) AS {name}" for name in SUMS)
    (row,) = client.query(f"SELECT {summed} FROM {table} AS source")
    return row


def wanted(old: int, new: int) -> dict[str, object]:
    """The sums of the given number of times the old rows and the new ones."""
    return {
        "requests": 7 * old + 4 * new,
        "failed_requests": 2 * old + new,
        "usage_unknown_requests": old + new,
        "no_price_requests": old + new,
        "partly_unpriced_requests": new,
        "unpriced_input_tokens": 100 * old + 107 * new,
        "unpriced_output_tokens": 10 * old + 10 * new,
        "estimated_requests": old + new,
        "estimated_usd": Decimal(3_000 * old + 5_000 * new).scaleb(-12),
    }


def test_old_sums_are_told_apart_and_estimates_are_counted_once(new_store: Any) -> None:
    new_store.start()
    files = read_migrations()
    migrate_store(new_store.address(), files[: STATES - 1], wait_seconds=10, say=lambda line: None)
    client = new_store.client()
    insert(client, old_rows())
    insert(client, old_rows())
    migrate_store(new_store.address(), files, wait_seconds=10, say=lambda line: None)
    for table in TABLES:
        assert sums_of(client, table) == wanted(2, 0), table
    insert(client, new_rows())
    for table in TABLES:
        assert sums_of(client, table) == wanted(2, 1), table
        client.command(f"OPTIMIZE TABLE {table} FINAL")
        assert sums_of(client, table) == wanted(2, 1), f"{table} after its parts were merged"
    client.close()


def test_a_file_that_was_cut_off_counts_nothing_twice(new_store: Any) -> None:
    new_store.start()
    files = read_migrations()
    migrate_store(new_store.address(), files[: STATES - 1], wait_seconds=10, say=lambda line: None)
    client = new_store.client()
    insert(client, old_rows())
    statements = list(files[STATES - 1].statements())
    for cut in range(0, len(statements), 3):
        for statement in statements[:cut]:
            client.command(statement)
    migrate_store(new_store.address(), files, wait_seconds=10, say=lambda line: None)
    for table in TABLES:
        assert sums_of(client, table) == wanted(1, 0), table
    client.close()


def test_each_request_has_one_state(empty_store: Any) -> None:
    client = empty_store.client()
    insert(client, [*old_rows(), *new_rows(), made(operation="embeddings", usage=Usage(input_text=5))])
    rows = client.query("SELECT price_state AS state, count() AS n FROM requests GROUP BY state ORDER BY state")
    assert {row["state"]: row["n"] for row in rows} == {
        "failed": 3,
        "partly_unpriced": 1,
        "priced": 2,
        "rejected": 1,
        "unknown_usage": 2,
        "unpriced": 3,
    }
    client.close()
