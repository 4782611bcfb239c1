"""Sums by hour and day are made of those by minute (0036): exact whatever comes, and still held against requests."""

import re
from pathlib import Path
from typing import Any

import pytest

from backends.store.base_views import views_over_bases
from backends.store.checks.check import check_store
from backends.store.columns import arrow_batch
from backends.store.known_columns import KnownColumns
from backends.store.store_locks import StoreLocks
from backends.store.tables import list_tables, list_views
from contracts.errors import ConfigurationError, StoreRefused
from contracts.recording.names import REQUESTS
from contracts.recording.records import RequestRecord
from migrations.store import migrate_store, read_migrations
from tests.migrations.test_exactly_once import contents, request_batch
from tests.migrations.test_rollups import MIDNIGHT_NS, made

VERSION = 36
REPLACED = ("requests_hour_from_requests", "requests_day_from_requests")
DAY_NS = 86_400 * 10**9
SUMS = ("requests_minute", "requests_hour", "requests_day", "tenant_hour", "model_hour", "tenant_cost_day")
COMPARED = ("requests_hour", "requests_day", "tenant_hour", "model_hour", "tenant_cost_day", "tenant_model_day")


def old_requests(oldest_days: int = 80) -> list[RequestRecord]:
    """Requests of today, and of days that minutes are not kept for (7); hours go after 90."""
    days = (0, 1, 30, oldest_days)
    return [made(MIDNIGHT_NS - before * DAY_NS + n, cost_pico_usd=n) for before in days for n in range(3)]


def insert(client: Any, records: list[RequestRecord], token: str) -> None:
    KnownColumns(client).insert_arrow("requests", arrow_batch(REQUESTS, records), deduplication_token=token)


def findings_of(client: Any, folder: Path) -> list[str]:
    report = check_store(client, StoreLocks(folder), 1, lambda line: None)
    return sorted(finding.where for finding in report.findings if finding.kind == "rollup_differs")


def test_views_of_what_expires_sooner_are_queries_over_the_requests(empty_store: Any) -> None:
    client = empty_store.client()
    tables = {table.name: table for table in list_tables(client)}
    sources = {view.target: view.source for view in views_over_bases(list_views(client), tables)}
    assert {name for name, source in sources.items() if source == "requests"} == {
        "requests_minute", "requests_hour", "requests_day", "requests_recent", "latency_day", "distinct_values",
        "indicators_minute", "indicators_hour",
    }  # fmt: skip
    # These expire with what they are made of, or before it.
    assert {name: sources[name] for name in ("tenant_hour", "model_hour", "tenant_cost_day", "model_steps_day")} == {
        "tenant_hour": "requests_hour",
        "model_hour": "requests_hour",
        "tenant_cost_day": "requests_day",
        "model_steps_day": "indicators_hour",
    }
    client.close()


def test_a_difference_in_an_hour_or_day_whose_minutes_are_gone_is_found(empty_store: Any, tmp_path: Path) -> None:
    client = empty_store.client()
    insert(client, old_requests(oldest_days=100), "old")
    client.command(
        "ALTER TABLE requests_minute DELETE WHERE bucket < now() - INTERVAL 7 DAY", settings={"mutations_sync": 2}
    )
    assert findings_of(client, tmp_path) == []
    for table, days in (("requests_hour", 30), ("requests_day", 100)):
        client.command(
            f"ALTER TABLE {table} UPDATE cost_usd = cost_usd + 0.000000000001 WHERE toDate(bucket) = today() - {days}",
            settings={"mutations_sync": 2},
        )
    # And what is made of these: tenants' hours are kept for 16 days.
    assert findings_of(client, tmp_path) == [
        "model_hour", "requests_day", "requests_hour", "tenant_cost_day", "tenant_model_day",
    ]  # fmt: skip
    client.close()


def test_an_insert_that_failed_at_its_third_remove_is_completed_and_counts_once(migrated_store: Any) -> None:
    migrated_store.start()
    client = migrated_store.client()
    insert(client, request_batch(seed=1), "before")
    client.command("ALTER TABLE requests_day ADD CONSTRAINT none CHECK requests = 0")
    with pytest.raises(StoreRefused):
        insert(client, request_batch(seed=2), "torn")
    client.command("ALTER TABLE requests_day DROP CONSTRAINT none")
    for _ in range(2):
        insert(client, request_batch(seed=2), "torn")
    for table in SUMS:
        assert client.query(f"SELECT sum(requests) AS n FROM {table}") == [{"n": 100}], table
    client.close()


def step_back(client: Any) -> None:
    """Bring a store at head to the views of before: as files made them that are applied one after the other."""
    files = read_migrations()
    for statement in files[VERSION - 1].statements():
        if found := re.match(r"CREATE MATERIALIZED VIEW IF NOT EXISTS (\w+)", statement):
            client.command(f"DROP VIEW {found[1]} SYNC")
    for view in REPLACED:
        making = f"CREATE MATERIALIZED VIEW IF NOT EXISTS {view} "
        *_, last = [one for file in files[: VERSION - 1] for one in file.statements() if one.startswith(making)]
        client.command(last)
    client.command(
        "ALTER TABLE schema_migrations DELETE WHERE version >= {version:UInt32}",
        {"version": VERSION},
        settings={"mutations_sync": 2},
    )


def test_a_store_with_rows_is_upgraded_without_a_sum_changed_or_counted_twice(
    migrated_store: Any, empty_store: Any, tmp_path: Path
) -> None:
    migrated_store.start()
    client = migrated_store.client()
    step_back(client)
    turns = StoreLocks(tmp_path)
    insert(client, old_requests(), "old")
    with turns.turn():  # not settled: the collector was killed between insert and release
        insert(client, request_batch(seed=1), "in-doubt")
    address, files = migrated_store.address(), read_migrations()[:VERSION]
    with pytest.raises(ConfigurationError, match=r"replaces views and would count that batch twice.*--settle"):
        migrate_store(address, files, wait_seconds=0, say=lambda line: None, turns=turns)
    with turns.turn() as settle:
        insert(client, request_batch(seed=1), "in-doubt")
        settle()
    before = contents(client, COMPARED)
    migrate_store(address, files, wait_seconds=0, say=lambda line: None, turns=turns)
    assert contents(client, COMPARED) == before
    for _ in range(2):
        insert(client, [*request_batch(seed=2), *old_requests()], "after")
    assert findings_of(client, tmp_path) == []
    other = empty_store.client()
    for token, records in (
        ("old", old_requests()),
        ("in-doubt", request_batch(seed=1)),
        ("after", [*request_batch(seed=2), *old_requests()]),
    ):
        insert(other, records, token)
    assert contents(client, COMPARED) == contents(other, COMPARED)
    other.close()
    client.close()
