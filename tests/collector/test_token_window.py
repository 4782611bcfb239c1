"""A collector that was away for so long that the store has forgotten its insert's token stores it once all the same."""

import random
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from backends.segments import SegmentLog
from backends.store.batch_claims import BatchClaims
from backends.store.client import StoreClient
from backends.store.columns import arrow_batch
from backends.store.unstored_rows import IDENTITIES, UnstoredRows
from collector.counters import Counters
from collector.dead_letters import DeadLetters
from collector.exporters.clickhouse import COMPARED, ClickHouseExporter
from collector.exporters.insert_plan import PlanFile
from collector.exporters.planner import InsertPlanner
from collector.exporters.token_window import REMEMBERED_INSERTS, TokenWindow
from collector.rows import Processed
from collector.spool import Spool, SpooledBatch
from contracts.identity import Identity
from contracts.ids import uuid7
from contracts.names import LOGS, METRICS, REQUESTS, TABLES, TRACES
from contracts.records import (
    AttemptRecord,
    ContentRecord,
    DeviceRecord,
    KvRecord,
    RequestRecord,
    StepRecord,
)
from contracts.telemetry import LogRow, MetricRow, SpanRow

NOW_NS = time.time_ns() // 10**9 * 10**9
REMEMBERED = 4  # inserts, where the store's own window is two more
ROWS = 3


class Killed(BaseException):
    """The process ends here."""


class NumberedStore:
    """Tells where its tables are."""

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


@pytest.mark.parametrize(("later", "has_passed"), [(14, False), (15, True), (16, True), (10, False), (9, True)])
def test_a_token_may_be_forgotten_once_a_table_has_taken_as_many_inserts_as_it_remembers(
    tmp_path: Path, later: int, has_passed: bool
) -> None:
    store = NumberedStore(requests=10, requests_day=70)
    window = window_on(store, tmp_path, [0.0])
    window.mark()
    window.close()
    store.blocks["requests"] = later
    after_a_restart = window_on(store, tmp_path, [0.0])
    assert after_a_restart.has_passed() is has_passed
    after_a_restart.close()


@pytest.mark.parametrize(
    ("blocks", "has_passed"),
    [
        ({"requests": 10, "requests_day": 75}, True),  # a rollup has a window of its own
        ({"requests": 10, "requests_day": 74, "new": 4}, False),
        ({"requests": 10, "requests_day": 74, "new": 5}, True),
        ({"requests": 10}, True),  # a table whose last part is gone
        ({"requests_local": 4000}, False),  # a cluster: its windows are not these
        ({}, False),
    ],
)
def test_the_window_of_every_table_counts(tmp_path: Path, blocks: dict[str, int], has_passed: bool) -> None:
    store = NumberedStore(requests=10, requests_day=70)
    window = window_on(store, tmp_path, [0.0])
    assert window.has_passed() is False
    window.mark()
    store.blocks = blocks
    assert window.has_passed() is has_passed
    window.close()


def test_a_mark_is_renewed_after_a_minute_and_at_every_start(tmp_path: Path) -> None:
    clock, store = [100.0], NumberedStore(requests=10)
    window = window_on(store, tmp_path, clock)
    window.mark()
    store.blocks["requests"] = 15
    clock[0] = 159.9
    window.mark()
    assert window.has_passed()
    clock[0] = 160.0
    window.mark()
    assert not window.has_passed()
    store.blocks["requests"] = 20
    window.close()
    again = window_on(store, tmp_path, clock)
    assert again.has_passed()
    again.mark()
    assert not again.has_passed()
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


def one_of_each() -> dict[str, tuple[Any, list[Any]]]:
    """Give for every table two rows that differ in what tells them alone."""
    at, ids = NOW_NS, [uuid7(NOW_NS).bytes, uuid7(NOW_NS + 1).bytes]
    span = {
        "duration_ns": 1, "parent_span_id": b"", "trace_state": "", "name": "chat", "kind": "client", "service": "shop",
        "resource_attributes": {"a": "b"}, "scope_name": "", "scope_version": "", "attributes": {}, "status": "ok",
        "status_message": "", "event_times_ns": [], "event_names": [], "event_attributes": [], "link_trace_ids": [],
        "link_span_ids": [], "link_trace_states": [], "link_attributes": [],
    }  # fmt: skip
    line = {
        "observed_at_ns": at, "trace_id": b"", "span_id": b"", "trace_flags": 0, "severity": "INFO",
        "severity_number": 9, "service": "shop", "event_name": "", "attributes": {}, "resource_attributes": {},
        "scope_name": "", "scope_version": "",
    }  # fmt: skip
    point = {
        "name": "queue", "kind": "gauge", "unit": "1", "description": "", "attributes": {}, "resource_attributes": {},
        "scope_name": "", "scope_version": "", "started_at_ns": at, "at_ns": at,
    }  # fmt: skip
    rows: dict[str, list[Any]] = {
        "requests": [RequestRecord(request_id=one, started_at_ns=at, duration_ns=1) for one in ids],
        "attempts": [AttemptRecord(request_id=ids[0], number=n, started_at_ns=at, duration_ns=1) for n in (2, 3)],
        "engine_steps": [StepRecord(engine="e0", sequence=n, started_at_ns=at, busy_ns=1) for n in (1, 2)],
        "kv_events": [KvRecord(engine="e0", sequence=n, at_ns=at, event="stored") for n in (1, 2)],
        "gpu_samples": [DeviceRecord(host=host, sequence=1, at_ns=at, device="GPU-0") for host in ("a", "b")],
        "content": [ContentRecord(request_id=one, started_at_ns=at, tenant="acme") for one in ids],
        "traces": [
            SpanRow(tenant="acme", started_at_ns=at, trace_id=bytes(16), span_id=bytes([n]) * 8, **span)  # type: ignore[arg-type]  # the same fields
            for n in (1, 200)
        ],
        "logs": [LogRow(tenant="acme", at_ns=at, body=body, **line) for body in ("it's", "{x} \\ ünd\n")],  # type: ignore[arg-type]  # the same fields
        "metrics": [MetricRow(tenant="acme", service=name, **point) for name in ("shop", "till")],  # type: ignore[arg-type]  # the same fields
    }
    tables = {table.name: table for table in (*TABLES.values(), TRACES, LOGS, METRICS)}
    return {name: (tables[name], rows[name]) for name in tables}


@pytest.mark.parametrize("name", one_of_each())
def test_of_every_table_only_rows_that_are_missing_are_inserted(empty_store: Any, name: str) -> None:
    table, (first, second) = one_of_each()[name]
    client = empty_store.client()
    count = f"SELECT count() AS n FROM {name}"
    client.insert_arrow(name, arrow_batch(table, [first]), deduplication_token="before")
    unstored = UnstoredRows(client)
    unstored.insert_arrow(name, arrow_batch(table, [first, second, first]), deduplication_token="torn")
    assert (unstored.left_out, client.query(count)) == (1, [{"n": 3}])
    unstored.insert_arrow(name, arrow_batch(table, [first, second, first]), deduplication_token="torn")
    assert (unstored.left_out, client.query(count)) == (4, [{"n": 3}])
    client.close()
