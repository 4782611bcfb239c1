"""Rows that the store may have had are stored once: compared with what is there, with what is kept in mind."""

import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow
import pytest

from backends.store.client import StoreClient
from backends.store.columns import arrow_batch
from backends.store.unstored_rows import IDENTITIES, UnstoredRows
from contracts.recording.ids import uuid7
from contracts.recording.names import LOGS, METRICS, TABLES, TRACES
from contracts.recording.records import (
    AttemptRecord,
    ContentRecord,
    DeviceRecord,
    KvRecord,
    RequestRecord,
    StepRecord,
)
from contracts.recording.telemetry import LogRow, MetricRow, SpanRow

NOW_NS = time.time_ns() // 10**9 * 10**9


def one_of_each() -> dict[str, tuple[Any, list[Any]]]:
    """Return for every table two rows that differ in what tells them alone."""
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
    unstored = UnstoredRows(client, {name}, NOW_NS)
    unstored.insert_arrow(name, arrow_batch(table, [first, second, first]), deduplication_token="torn")
    assert (unstored.left_out, client.query(count)) == (1, [{"n": 3}])
    unstored.insert_arrow(name, arrow_batch(table, [first, second, first]), deduplication_token="torn")
    assert (unstored.left_out, client.query(count)) == (4, [{"n": 3}])
    client.close()


class RecordedStore:
    """An empty store with the real one's tables and views, and rules of its own; keeps what is inserted."""

    def __init__(self, client: StoreClient) -> None:
        self.client = client
        self.rules: list[dict[str, Any]] = []
        self.inserted: list[tuple[str, int, str]] = []

    def query(self, sql: str, parameters: Mapping[str, object] | None = None) -> list[dict[str, Any]]:
        if "FROM retention" in sql:
            return self.rules
        return self.client.query(sql, parameters) if "FROM system." in sql else []

    def insert_arrow(self, table: str, data: pyarrow.Table, *, deduplication_token: str) -> None:
        self.inserted.append((table, data.num_rows, deduplication_token))


@pytest.fixture
def recorded(store: Any) -> Iterator[RecordedStore]:
    client: StoreClient = store.client()
    yield RecordedStore(client)
    client.close()


EXPIRY_SECONDS = {"kv_events": 24 * 3600, "engine_steps": 72 * 3600, "gpu_samples": 14 * 86_400}


@pytest.mark.parametrize("name", EXPIRY_SECONDS)
@pytest.mark.parametrize(("late_seconds", "is_past"), [(-1, False), (0, True), (1, True)])
@pytest.mark.parametrize("received_after_seconds", [0, 7200])
def test_what_may_have_expired_is_not_stored_again(
    recorded: RecordedStore, name: str, late_seconds: int, is_past: bool, received_after_seconds: int
) -> None:
    """A row is kept from the later of its time and its arrival; one that arrived late is kept for longer."""
    table, rows = one_of_each()[name]
    received_at_ns = NOW_NS + received_after_seconds * 10**9
    now = received_at_ns // 10**9 + EXPIRY_SECONDS[name] + late_seconds
    unstored = UnstoredRows(recorded, {name}, received_at_ns, clock=lambda: now)
    unstored.insert_arrow(name, arrow_batch(table, rows), deduplication_token="torn")
    assert recorded.inserted == ([] if is_past else [(name, 2, "torn:again")])
    assert unstored.past_retention == ({name: 2} if is_past else {})
    assert unstored.left_out == 0


@pytest.mark.parametrize(("deleted_after_seconds", "is_past"), [(-1, False), (0, False), (1, True)])
@pytest.mark.parametrize(("tenant", "name"), [("acme", "content"), ("other", "content"), ("acme", "traces")])
def test_what_a_tenants_rule_may_have_deleted_is_not_stored_again(
    recorded: RecordedStore, deleted_after_seconds: int, is_past: bool, tenant: str, name: str
) -> None:
    """A rule deletes what is from before its moment, of its tenant and table alone."""
    before = datetime.fromtimestamp(NOW_NS // 10**9 + deleted_after_seconds, UTC)
    recorded.rules = [{"tenant": tenant, "table_name": name, "keep_seconds": 0, "deleted_before": before}]
    table, rows = one_of_each()["content"]
    unstored = UnstoredRows(recorded, {"content"}, NOW_NS, clock=lambda: NOW_NS / 1e9)
    unstored.insert_arrow("content", arrow_batch(table, rows), deduplication_token="torn")
    is_past = is_past and (tenant, name) == ("acme", "content")
    assert (unstored.past_retention.total(), len(recorded.inserted)) == ((2, 0) if is_past else (0, 1))


@pytest.mark.parametrize(
    ("forgetful", "compared"),
    [
        ({"requests"}, {"requests"}),
        ({"tenant_cost_day"}, {"requests"}),  # a rollup of a rollup
        ({"engine_minutes"}, {"engine_steps"}),
        ({"batch_claims"}, set()),
        ({"logs", "requests_hour"}, {"logs", "requests"}),
    ],
)
def test_only_what_may_be_forgotten_is_compared(
    recorded: RecordedStore, forgetful: set[str], compared: set[str]
) -> None:
    unstored = UnstoredRows(recorded, forgetful, NOW_NS)
    for name, (table, rows) in one_of_each().items():
        unstored.insert_arrow(name, arrow_batch(table, rows), deduplication_token="torn")
    assert {name for name, _, token in recorded.inserted if token == "torn:again"} == compared
    assert {name for name, _, token in recorded.inserted if token == "torn"} == set(IDENTITIES) - compared
