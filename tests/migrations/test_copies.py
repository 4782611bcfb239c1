"""A migration that copies rows while a batch may be stored and will come again: it waits until that is settled."""

from pathlib import Path
from typing import Any

import pytest

from backends.store.columns import arrow_batch
from backends.store.known_columns import KnownColumns
from backends.store.store_locks import StoreLocks
from contracts.errors import ConfigurationError
from contracts.recording.names import REQUESTS
from migrations.store import migrate_store, read_migrations
from tests.migrations.test_exactly_once import request_batch

BEFORE_COPIES = 12


@pytest.mark.drill
def test_a_batch_in_doubt_is_settled_before_rows_are_copied_and_counts_once(new_store: Any, tmp_path: Path) -> None:
    new_store.start()
    files = read_migrations()
    migrate_store(new_store.address(), files[:BEFORE_COPIES], wait_seconds=10, say=lambda line: None)
    turns = StoreLocks(tmp_path)
    client = new_store.client()
    rows = client.query("SELECT name FROM system.columns WHERE database = currentDatabase() AND table = 'requests'")
    known = {row["name"] for row in rows}  # columns that came later are not there yet, nor did a collector send them
    whole = arrow_batch(REQUESTS, request_batch(seed=1))
    batch = whole.select([name for name in whole.column_names if name in known])
    with turns.turn():  # not settled: the collector was killed between insert and release
        client.insert_arrow("requests", batch, deduplication_token="in-doubt")
    with pytest.raises(
        ConfigurationError, match=r"ended in the middle of a batch.* would count that batch twice.*--settle"
    ):
        migrate_store(new_store.address(), files, wait_seconds=0, say=lambda line: None, turns=turns)
    assert client.query("SELECT max(version) AS head FROM schema_migrations") == [{"head": BEFORE_COPIES}]
    with turns.turn() as settle:
        client.insert_arrow("requests", batch, deduplication_token="in-doubt")
        settle()
    migrate_store(new_store.address(), files, wait_seconds=0, say=lambda line: None, turns=turns)
    for table in ("requests_day", "tenant_cost_day", "latency_day", "model_latency_day"):
        assert client.query(f"SELECT sum(requests) AS n FROM {table}") == [{"n": 50}], table
    assert client.query("SELECT count() AS n FROM requests_recent") == [{"n": 50}]
    client.close()


BEFORE_INDICATORS = 17
OF_INDICATORS = ("indicators_minute", "indicators_hour")


@pytest.mark.drill
def test_a_rollup_that_a_migration_makes_holds_the_rows_from_before(new_store: Any, tmp_path: Path) -> None:
    new_store.start()
    files = read_migrations()
    migrate_store(new_store.address(), files[:BEFORE_INDICATORS], wait_seconds=10, say=lambda line: None)
    client = new_store.client()
    KnownColumns(client).insert_arrow(
        "requests", arrow_batch(REQUESTS, request_batch(seed=1)), deduplication_token="before"
    )
    turns = StoreLocks(tmp_path)
    for _ in range(2):  # the second as after a migration that was cut before it was recorded
        migrate_store(
            new_store.address(), files[: BEFORE_INDICATORS + 1], wait_seconds=10, say=lambda line: None, turns=turns
        )
        for table in OF_INDICATORS:
            assert client.query(f"SELECT sum(requests) AS n FROM {table}") == [{"n": 50}], table
        client.command(
            "ALTER TABLE schema_migrations DELETE WHERE version = {version:UInt32} SETTINGS mutations_sync = 1",
            {"version": BEFORE_INDICATORS + 1},
        )
    migrate_store(new_store.address(), files, wait_seconds=10, say=lambda line: None, turns=turns)
    KnownColumns(client).insert_arrow(
        "requests", arrow_batch(REQUESTS, request_batch(seed=2)), deduplication_token="after"
    )
    for table in (*OF_INDICATORS, "tenant_hour", "model_hour"):
        assert client.query(f"SELECT sum(requests) AS n FROM {table}") == [{"n": 100}], table
    (steps,) = client.query("SELECT sum(requests) AS n FROM model_steps_hour")
    (days,) = client.query("SELECT sum(requests) AS n FROM model_steps_day")
    assert steps == days
    client.close()
