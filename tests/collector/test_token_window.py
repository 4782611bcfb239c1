"""A collector that was away for so long that the store has forgotten its insert's token stores it once all the same."""

import random
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from backends.segment_log.segments import SegmentLog
from backends.store.batch_claims import BatchClaims
from backends.store.client import StoreClient
from backends.store.columns import arrow_batch
from backends.store.unstored_rows import IDENTITIES
from collector.counters import Counters
from collector.dead_letters import DeadLetters
from collector.exporters.clickhouse import COMPARED, PAST_RETENTION, ClickHouseExporter
from collector.exporters.insert_plan import PlanFile
from collector.exporters.planner import InsertPlanner
from collector.exporters.token_window import REMEMBERED_INSERTS, TokenWindow
from collector.rows import Processed
from collector.spool import Spool, SpooledBatch
from contracts.access.identity import Identity
from contracts.recording.ids import uuid7
from contracts.recording.names import REQUESTS
from contracts.recording.records import RequestRecord

NOW_NS = time.time_ns() // 10**9 * 10**9
REMEMBERED = 4  # inserts, where the store's own window is two more
ROWS = 3


class Killed(BaseException):
    """The process ends here."""


class NumberedStore:
    """Reports where its tables are."""

    def __init__(self, **blocks: int) -> None:
        self.blocks = blocks

    def query(self, sql: str, parameters: Mapping[str, object] | None = None) -> list[dict[str, Any]]:
        return [{"table": table, "block": block} for table, block in self.blocks.items()]


class DyingWriter:
    """The store, seen by a process that is killed as soon as its requests are stored."""

    def __init__(self, client: StoreClient) -> None:
        self.client = client
        self.dies_after = ""

    def insert_arrow(self, table: str, data: pyarrow.Table, *, deduplication_token: str) -> None:
        self.client.insert_arrow(table, data, deduplication_token=deduplication_token)
        if table == self.dies_after:
            self.dies_after = ""
            raise Killed

    def query(self, sql: str, parameters: Mapping[str, object] | None = None) -> list[dict[str, Any]]:
        return self.client.query(sql, parameters)

    def ping(self) -> bool:
        return True


def window_on(store: NumberedStore, directory: Path, clock: list[float], remembered: int = 5) -> TokenWindow:
    return TokenWindow(store, directory / "insert.window", remembered=remembered, clock=lambda: clock[0])


@pytest.mark.parametrize(("later", "has_passed"), [(14, False), (15, True), (16, True), (10, False), (9, False)])
def test_a_token_may_be_forgotten_once_a_table_has_taken_as_many_inserts_as_it_remembers(
    tmp_path: Path, later: int, has_passed: bool
) -> None:
    store = NumberedStore(requests=10, requests_day=70)
    window = window_on(store, tmp_path, [0.0])
    window.mark()
    window.close()
    store.blocks["requests"] = later
    after_a_restart = window_on(store, tmp_path, [0.0])
    assert after_a_restart.passed() == ({"requests"} if has_passed else set())
    after_a_restart.close()


@pytest.mark.parametrize(
    ("blocks", "passed"),
    [
        ({"requests": 10, "requests_day": 75}, {"requests_day"}),  # a rollup has a window of its own
        ({"requests": 15, "requests_day": 75}, {"requests", "requests_day"}),
        ({"requests": 10, "requests_day": 74, "new": 4}, set()),
        ({"requests": 10, "requests_day": 74, "new": 5}, {"new"}),
        ({"requests": 10}, set()),  # a table whose last part is gone took nothing for that
        ({"requests": 15}, {"requests"}),
        ({}, set()),  # nothing may be asked any more
    ],
)
def test_every_table_has_a_window_of_its_own(tmp_path: Path, blocks: dict[str, int], passed: set[str]) -> None:
    store = NumberedStore(requests=10, requests_day=70)
    window = window_on(store, tmp_path, [0.0])
    assert window.passed() == set()
    window.mark()
    store.blocks = blocks
    assert window.passed() == passed
    window.close()


def test_where_nothing_could_be_asked_at_the_mark_every_token_is_taken_to_be_remembered(tmp_path: Path) -> None:
    store = NumberedStore()
    window = window_on(store, tmp_path, [0.0])
    window.mark()
    store.blocks = {"requests": 50_000}
    assert window.passed() == set()
    window.close()


class FakeClaims(BatchClaims):
    """Claims on a store that orders them, or on a cluster."""

    def __init__(self, are_ordered: bool) -> None:
        self._are_ordered = are_ordered

    def are_ordered(self) -> bool:
        return self._are_ordered

    def claim(self, received_at_ns: Mapping[str, int]) -> set[str]:
        return set(received_at_ns)


@pytest.mark.parametrize(
    ("is_cluster_at_mark", "is_cluster_now", "forgetful"),
    [(False, False, {"requests_local"}), (False, True, set()), (True, True, set())],
)
def test_on_a_cluster_nothing_is_looked_at(
    tmp_path: Path, is_cluster_at_mark: bool, is_cluster_now: bool, forgetful: set[str]
) -> None:
    """Its parts have the same names at the mark and at the look, of whichever shard answers."""
    store = NumberedStore(requests_local=10)
    spool, plan_file = Spool(SegmentLog(tmp_path, max_bytes=1 << 20)), PlanFile(tmp_path / "insert.plan")
    window = window_on(store, tmp_path, [0.0])
    spool.put([SpooledBatch("1", "logs", time.time_ns(), b"")])
    for is_cluster in (is_cluster_at_mark, is_cluster_now):
        planner = InsertPlanner(spool, plan_file, FakeClaims(not is_cluster), Counters(), window)
        assert planner.next() is not None
        store.blocks["requests_local"] = 4_000
    assert planner.forgetful_tables() == forgetful
    for file in (spool, plan_file, window):
        file.close()


def test_a_mark_is_renewed_after_a_minute_and_at_every_start(tmp_path: Path) -> None:
    clock, store = [100.0], NumberedStore(requests=10)
    window = window_on(store, tmp_path, clock)
    window.mark()
    store.blocks["requests"] = 15
    clock[0] = 159.9
    window.mark()
    assert window.passed()
    clock[0] = 160.0
    window.mark()
    assert not window.passed()
    store.blocks["requests"] = 20
    window.close()
    again = window_on(store, tmp_path, clock)
    assert again.passed()
    again.mark()
    assert not again.passed()
    again.close()


def test_the_windows_of_the_tables_are_as_long_as_the_collector_believes(store: Any) -> None:
    client = store.client()
    rows = client.query(
        "SELECT name FROM system.tables WHERE database = currentDatabase() AND engine_full LIKE "
        f"'%non_replicated_deduplication_window = {REMEMBERED_INSERTS}%' AND name IN {{names:Array(String)}}",
        {"names": list(IDENTITIES)},
    )
    assert {row["name"] for row in rows} == set(IDENTITIES)
    client.close()


def process(batch: SpooledBatch) -> Processed:
    processed = Processed()
    for row in range(ROWS):
        at_ns = NOW_NS - int(batch.batch_id.partition("-")[0]) * 1_000_000 + row
        processed.add(
            REQUESTS,
            RequestRecord(
                request_id=at_ns.to_bytes(16, "big"), started_at_ns=at_ns, duration_ns=1, who=Identity("acme")
            ),
        )
    return processed


class Life:
    """One life of a collector's exporter on a directory."""

    def __init__(self, directory: Path, writer: DyingWriter) -> None:
        self.counters = Counters()
        self.spool = Spool(SegmentLog(directory, max_bytes=1 << 20))
        self.plan_file = PlanFile(directory / "insert.plan")
        self.window = TokenWindow(writer, directory / "insert.window", remembered=REMEMBERED)
        planner = InsertPlanner(self.spool, self.plan_file, BatchClaims(writer), self.counters, self.window)
        letters = DeadLetters(directory, max_bytes=1 << 20, counters=self.counters)
        self.exporter = ClickHouseExporter(
            self.spool, planner, process, writer, arrow_batch, letters, self.counters, random.Random(1)
        )

    def insert(self, *batch_ids: str) -> None:
        self.spool.put([SpooledBatch(name, "logs", time.time_ns(), b"") for name in batch_ids])
        while self.spool.pending_bytes:
            self.exporter._insert_next()

    def end(self) -> None:
        self.spool.close()
        self.plan_file.close()
        self.window.close()


@pytest.fixture
def forgetful_store(empty_store: Any) -> Iterator[StoreClient]:
    """The store, whose tables of requests remember a few tokens only."""
    client: StoreClient = empty_store.client()
    tables = ("requests", "requests_minute", "requests_hour", "requests_day", "tenant_cost_day")
    for table in tables:
        client.command(f"ALTER TABLE {table} MODIFY SETTING non_replicated_deduplication_window = {REMEMBERED + 2}")
    yield client
    for table in tables:
        client.command(f"ALTER TABLE {table} MODIFY SETTING non_replicated_deduplication_window = {REMEMBERED_INSERTS}")
    client.close()


@pytest.mark.parametrize("others", [REMEMBERED - 2, REMEMBERED - 1, REMEMBERED + 4])
def test_an_insert_that_was_stored_before_a_long_absence_is_not_stored_again(
    forgetful_store: StoreClient, tmp_path: Path, others: int
) -> None:
    """Beside the one in doubt `others` insert: below, at and beyond what is remembered."""
    run = uuid7(time.time_ns()).hex
    writer = DyingWriter(forgetful_store)
    life = Life(tmp_path, writer)
    life.insert(f"1-{run}")
    life.end()
    life = Life(tmp_path, writer)
    writer.dies_after = "requests"
    with pytest.raises(Killed):
        life.insert(f"2-{run}", f"3-{run}")
    life.end()
    for number in range(others):
        forgetful_store.insert_arrow(
            "requests",
            arrow_batch(
                REQUESTS,
                process(SpooledBatch(f"{10 + number}-{run}", "logs", 1, b"")).tables["requests"].rows,
            ),
            deduplication_token=f"{run}-{number}",
        )
    life = Life(tmp_path, writer)
    life.insert(f"4-{run}")
    life.end()
    expected = ROWS * (4 + others)
    assert forgetful_store.query("SELECT count() AS n, uniqExact(request_id) AS ids FROM requests") == [
        {"n": expected, "ids": expected}
    ]
    for table in ("requests_minute", "requests_hour", "requests_day", "tenant_cost_day"):
        assert forgetful_store.query(f"SELECT sum(requests) AS n FROM {table}") == [{"n": expected}], table
    is_compared = others >= REMEMBERED - 1
    assert life.counters.snapshot()["noticed"].get(COMPARED, 0) == (2 * ROWS if is_compared else 0)


def test_what_a_rule_deleted_during_a_long_absence_is_left_out_and_counted(
    forgetful_store: StoreClient, tmp_path: Path
) -> None:
    run, others = uuid7(time.time_ns()).hex, REMEMBERED + 4
    writer = DyingWriter(forgetful_store)
    life = Life(tmp_path, writer)
    life.insert(f"1-{run}")
    writer.dies_after = "requests"
    with pytest.raises(Killed):
        life.insert(f"2-{run}", f"3-{run}")
    life.end()
    forgetful_store.command(
        "INSERT INTO retention (tenant, table_name, keep_seconds, deleted_before) "
        f"VALUES ('acme', 'requests', 86400, {NOW_NS // 10**9})"
    )
    forgetful_store.command("ALTER TABLE requests DELETE WHERE tenant = 'acme'", settings={"mutations_sync": 2})
    for number in range(others):
        rows = process(SpooledBatch(f"{10 + number}-{run}", "logs", 1, b"")).tables["requests"].rows
        forgetful_store.insert_arrow("requests", arrow_batch(REQUESTS, rows), deduplication_token=f"{run}-{number}")
    life = Life(tmp_path, writer)
    life.insert(f"4-{run}")
    life.end()
    assert forgetful_store.query("SELECT count() AS n FROM requests") == [{"n": ROWS * (others + 1)}]
    for table in ("requests_minute", "requests_hour", "requests_day", "tenant_cost_day"):
        assert forgetful_store.query(f"SELECT sum(requests) AS n FROM {table}") == [{"n": ROWS * (4 + others)}], table
    noticed = life.counters.snapshot()["noticed"]
    assert (noticed.get(PAST_RETENTION), noticed.get(COMPARED)) == (2 * ROWS, None)
