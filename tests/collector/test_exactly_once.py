"""Exactly once against the real store: killed between a table and its views, and filled by two collectors at once."""

import random
import signal
import subprocess
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from backends.store.batch_claims import BatchClaims
from backends.store.client import StoreClient
from backends.store.columns import arrow_batch
from backends.store.store_locks import StoreLocks
from contracts.access.identity import Identity
from contracts.errors import ConfigurationError
from contracts.recording.names import REQUESTS
from migrations.store import migrate_store, read_migrations
from tests import warm_start

Make = Callable[..., Any]

ROLLUPS = ("requests_minute", "requests_hour", "requests_day", "latency_day")
OF_ROLLUPS = ("tenant_cost_day", "model_latency_day")
# Between the table's own commit and the views that come after it in the alphabet. What is killed meanwhile is killed in
# time on a busy machine too; three seconds are the longest that the engine sleeps at once.
SLOW_VIEW = "CREATE MATERIALIZED VIEW a_slow_view (x UInt64) ENGINE = Null AS SELECT {} AS x FROM {}"
THREE_SECONDS = "sleep(3)"
A_QUARTER_MINUTE = "sleep(3) + sleep(2.99) + sleep(2.98) + sleep(2.97) + sleep(2.96)"
ATTEMPTS_TO_KILL = 8
BETWEEN = "SELECT (SELECT count() FROM requests) > (SELECT sum(requests) FROM requests_minute) AS is_between"
DAYS = "SELECT sum(requests) AS n FROM requests_day"


def has_days(reader: StoreClient, requests: int) -> bool:
    return reader.query(DAYS)[0]["n"] == requests


def counts(reader: StoreClient, more: tuple[str, ...] = ()) -> dict[str, int]:
    found = {}
    for table in ("requests", *ROLLUPS, *OF_ROLLUPS, *more):
        column = "count()" if table == "requests" else "sum(requests)"
        (row,) = reader.query(f"SELECT {column} AS n FROM {table}")  # the names are the test's own
        found[table] = int(str(row["n"]))
    return found


def test_two_collectors_store_each_batch_once_though_the_store_dies_between_a_table_and_its_views(
    start_collector: Make, migrated_store: Any, request_record: Make, batch_of: Make, eventually: Make, tmp_path: Path
) -> None:
    address = migrated_store.address("writer")
    behind = {"store_url": address.url, "store_user": address.user, "store_password": address.password}
    one, two = (start_collector(tmp_path / name, **behind) for name in ("one", "two"))
    batches = [
        batch_of(str(uuid.uuid4()), *[request_record(who=Identity("acme")) for _ in range(20)]) for _ in range(10)
    ]
    for body in batches[:7]:
        assert one.post(body).status_code == 200
    for body in reversed(batches[3:]):  # four of them a sender was not answered for, and sent again elsewhere
        assert two.post(body).status_code == 200
    one.kill()
    two.kill()
    migrated_store.start()
    client = migrated_store.client()
    client.command(SLOW_VIEW.format(A_QUARTER_MINUTE, "requests"))
    one.start()

    eventually(lambda: client.query(BETWEEN)[0]["is_between"], "rows in the table that are not in its views", 60)
    migrated_store.kill()
    one.kill()
    migrated_store.start()
    found = counts(client)
    assert found["requests"] > found["requests_minute"], "the store died too late to show anything"
    client.command("DROP VIEW a_slow_view")
    one.start()
    two.start()
    for collector in (one, two):
        eventually(lambda: collector.health()["spool_bytes"] == 0, "the export", 60)  # noqa: B023  # awaited in the round
    assert counts(client) == dict.fromkeys(("requests", *ROLLUPS, *OF_ROLLUPS), 200)
    assert (
        one.health()["noticed"].get("batches_of_another_collector", 0)
        + two.health()["noticed"].get("batches_of_another_collector", 0)
        == 4
    )
    client.close()


BEFORE_COPIES = 29  # the release before migration 0030, which fills rollups from the rows that are there
LATER_COLUMNS = (33, 34, 35)  # the migrations after that one which add columns to requests and attempts
OLDEST = 22  # tables without columns that rows of today have
FILLED = ("tenant_hour", "model_hour", "tenant_model_day")


def migrate_to(store: Any, version: int) -> None:
    migrate_store(store.address(), read_migrations()[:version], wait_seconds=30, say=lambda line: None)


def add_later_columns(client: StoreClient) -> None:
    """Add to requests and attempts the columns that rows have today, for the collector of today to insert into them.

    A collector waits where a column is missing. That of the release before did not know these.
    """
    migrations = read_migrations()
    for number in LATER_COLUMNS:
        for statement in migrations[number - 1].statements():
            client.command(statement)


def settle(collector: Any) -> "subprocess.CompletedProcess[str]":
    return warm_start.run("collector", "--settle", env=collector.environment, timeout=90)


@pytest.mark.parametrize("version", [OLDEST, BEFORE_COPIES])
@pytest.mark.drill
def test_an_insert_the_store_died_in_is_settled_before_the_migration_and_counts_once_in_new_rollups(
    version: int,
    start_collector: Make,
    new_store: Any,
    request_record: Make,
    batch_of: Make,
    eventually: Make,
    tmp_path: Path,
) -> None:
    address = new_store.address("writer")
    behind = {"store_url": address.url, "store_user": address.user, "store_password": address.password}
    new_store.start()
    migrate_to(new_store, version)
    client = new_store.client()
    collector = start_collector(tmp_path / "one", **behind)
    if version == OLDEST:  # what a collector of that version had inserted, and died before it knew
        new_store.kill()
        for number in range(2):
            collector.post(batch_of(f"batch {number}", *[request_record() for _ in range(10)]))
        collector.kill()
        new_store.start()
    else:
        add_later_columns(client)
        client.command(SLOW_VIEW.format(A_QUARTER_MINUTE, "requests"))
        collector.post(batch_of("batch", *[request_record() for _ in range(20)]))
        eventually(lambda: client.query(BETWEEN)[0]["is_between"], "rows in the table that are not in its views", 60)
        new_store.kill()
        collector.kill()
        new_store.start()
        client.command("DROP VIEW a_slow_view")
        turns = StoreLocks(tmp_path / "one")
        with pytest.raises(ConfigurationError, match="collector --settle"):
            migrate_store(address, read_migrations(), wait_seconds=30, say=lambda line: None, turns=turns)
    for _ in range(2):
        done = settle(collector)
        assert done.returncode == 0, done.stderr
    turns = StoreLocks(tmp_path / "one")
    migrate_store(address, read_migrations(), wait_seconds=30, say=lambda line: None, turns=turns)
    collector.start()
    eventually(lambda: collector.health()["spool_bytes"] == 0, "the export", 60)
    assert counts(client, FILLED) == dict.fromkeys(("requests", *ROLLUPS, *OF_ROLLUPS, *FILLED), 20)
    client.close()


def test_settling_without_an_answer_from_the_store_is_an_error_in_one_line(
    start_collector: Make, request_record: Make, batch_of: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = start_collector(tmp_path / "one")
    collector.post(batch_of("batch", request_record()))
    in_use = settle(collector)
    assert in_use.returncode == 2
    assert "in use by another process" in in_use.stderr


@pytest.mark.drill
def test_an_insert_whose_end_a_collector_elsewhere_missed_counts_once_in_rollups_filled_by_a_migration(
    start_collector: Make, new_store: Any, request_record: Make, batch_of: Make, eventually: Make, tmp_path: Path
) -> None:
    """Its data directory is not there where the store is migrated, so nobody could see that an insert is in doubt."""
    address = new_store.address("writer")
    behind = {"store_url": address.url, "store_user": address.user, "store_password": address.password}
    new_store.start()
    migrate_to(new_store, BEFORE_COPIES)
    client = new_store.client()
    add_later_columns(client)
    client.command(SLOW_VIEW.format(THREE_SECONDS, "requests"))
    collector = start_collector(tmp_path / "one", **behind)
    collector.post(batch_of("batch", *[request_record() for _ in range(20)]))
    eventually(lambda: client.query(BETWEEN)[0]["is_between"], "an insert in progress", 60)
    collector.process.send_signal(signal.SIGSTOP)
    eventually(lambda: set(counts(client, FILLED).values()) == {20}, "the end of the insert", 60)
    collector.kill()
    client.command("DROP VIEW a_slow_view")
    new_store.migrate()
    assert set(counts(client, FILLED).values()) == {20}
    collector.start()
    collector.post(batch_of("next", *[request_record() for _ in range(5)]))
    eventually(lambda: collector.health()["spool_bytes"] == 0, "the export", 60)
    assert set(counts(client, FILLED).values()) == {25}
    client.close()


def test_a_rollup_of_a_rollup_is_completed_too_when_the_store_dies_before_it(
    migrated_store: Any, request_record: Make, eventually: Make
) -> None:
    migrated_store.start()
    client, writer = migrated_store.client(), migrated_store.client()
    client.command(SLOW_VIEW.format(A_QUARTER_MINUTE, "requests_day"))
    for attempt in range(1, ATTEMPTS_TO_KILL + 1):
        rows, token = arrow_batch(REQUESTS, [request_record() for _ in range(10)]), f"batch {attempt}"
        with ThreadPoolExecutor(1) as pool:
            cut = pool.submit(writer.insert_arrow, "requests", rows, deduplication_token=token)
            written = partial(has_days, client, 10 * attempt)
            eventually(written, "the day's rows", 60)
            migrated_store.kill()
            died_between = cut.exception() is not None
        migrated_store.start()
        if died_between and counts(client)["tenant_cost_day"] < 10 * attempt:
            break
    else:
        pytest.fail(f"the store died too late to show anything, {ATTEMPTS_TO_KILL} times")
    client.command("DROP VIEW a_slow_view")
    for _ in range(2):
        writer.insert_arrow("requests", rows, deduplication_token=token)
        assert counts(client) == dict.fromkeys(("requests", *ROLLUPS, *OF_ROLLUPS), 10 * attempt)
    client.close()
    writer.close()


def test_of_collectors_that_claim_at_the_same_time_exactly_one_gets_each_batch(store: Any) -> None:
    batches = [f"{uuid.uuid4()} 'quoted' \\ \n{number}" for number in range(30)]

    def claim(number: int) -> set[str]:
        client, chance, ours = store.client(), random.Random(number), set[str]()
        for _ in range(6):
            some = chance.sample(batches, 12)
            ours |= BatchClaims(client).claim(dict.fromkeys(some, number + 1))
        client.close()
        return ours

    with ThreadPoolExecutor(4) as pool:
        owned = list(pool.map(claim, range(4)))
    again = [BatchClaims(store.client()).claim(dict.fromkeys(batches, number + 1)) for number in range(4)]
    assert sorted(batch for ours in again for batch in ours) == sorted(batches)
    for ours, later in zip(owned, again, strict=True):
        assert ours <= later
    client = store.client()
    client.command("OPTIMIZE TABLE batch_claims FINAL")
    assert BatchClaims(client).are_ordered()
    merged = [BatchClaims(client).claim(dict.fromkeys(batches, number + 1)) for number in range(4)]
    assert merged == again
    client.close()
