"""From a socket to rows in a real store: each record once, no matter who dies on the way."""

import gzip
import random
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import SpanKind

from backends.store.client import StoreClient
from backends.store.columns import STORE_TYPES
from backends.telemetry.otlp import TRACES_PATH, build_export_request
from contracts.access.identity import Identity
from contracts.recording.names import LOGS, METRICS, TRACES
from tests.collector.conftest import RECORD_KEY

Make = Callable[..., Any]


@pytest.fixture
def tenant() -> str:
    """A tenant of the test's own: the store is shared."""
    return f"tenant-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def reader(store: Any) -> Iterator[StoreClient]:
    client: StoreClient = store.client("reader")
    yield client
    client.close()


def behind(store: Any) -> dict[str, object]:
    """The settings of a collector in front of a store."""
    address = store.address("writer")
    return {"store_url": address.url, "store_user": address.user, "store_password": address.password}


def count(reader: StoreClient, table: str, tenant: str) -> int:
    # The table's name is the test's own.
    (row,) = reader.query(f"SELECT count() AS n FROM {table} WHERE tenant = {{tenant:String}}", {"tenant": tenant})
    return int(str(row["n"]))


def test_a_record_sent_becomes_a_row_with_its_values(
    start_collector: Make, store: Any, reader: StoreClient, tenant: str, request_record: Make, batch_of: Make
) -> None:
    collector = start_collector(**behind(store))
    record = request_record(who=Identity(tenant, user="ada", tags={"feature": "search"}))
    assert collector.post(batch_of(str(uuid.uuid4()), record)).status_code == 200
    sent = time.monotonic()
    while count(reader, "requests", tenant) == 0:
        assert time.monotonic() < sent + 10
    (row,) = reader.query("SELECT * FROM requests WHERE tenant = {tenant:String}", {"tenant": tenant})
    assert row["request_id"] == uuid.UUID(bytes=record.request_id)
    assert (row["end_user"], row["tags"], row["gaps"]) == ("ada", {"feature": "search"}, [0, 2000, 1900])
    assert (row["tokens_input_text"], row["tokens_output_text"], row["tokens_input_audio"]) == (12, 4, None)
    assert str(row["cost_usd"]) == "0.000123456789"
    assert row["ttft_ns"] == 80_000_000


def test_a_batch_sent_three_times_is_stored_once(
    start_collector: Make,
    store: Any,
    reader: StoreClient,
    tenant: str,
    request_record: Make,
    batch_of: Make,
    eventually: Make,
) -> None:
    collector = start_collector(**behind(store))
    records = [request_record(who=Identity(tenant)) for _ in range(5)]
    body = batch_of(str(uuid.uuid4()), *records)
    for _ in range(3):
        assert collector.post(body).status_code == 200
    eventually(lambda: collector.health()["spool_bytes"] == 0, "the export")
    assert count(reader, "requests", tenant) == 5
    assert collector.health()["exported_records"] == 5


def test_a_batch_sent_again_to_another_collector_is_stored_once_in_table_and_rollup(
    start_collector: Make,
    store: Any,
    reader: StoreClient,
    tenant: str,
    request_record: Make,
    batch_of: Make,
    eventually: Make,
    tmp_path: Any,
) -> None:
    body = batch_of(str(uuid.uuid4()), *[request_record(who=Identity(tenant)) for _ in range(5)])
    for name in ("one", "two"):
        collector = start_collector(tmp_path / name, **behind(store))
        assert collector.post(body).status_code == 200
        eventually(lambda: collector.health()["spool_bytes"] == 0, "the export")  # noqa: B023  # awaited in the round
    assert count(reader, "requests", tenant) == 5
    assert rolled_up(reader, tenant) == 5


def rolled_up(reader: StoreClient, tenant: str) -> int:
    (row,) = reader.query(
        "SELECT sum(requests) AS n FROM requests_minute WHERE tenant = {tenant:String}", {"tenant": tenant}
    )
    return int(str(row["n"]))


def test_records_acknowledged_before_kill_9_arrive_once_after_a_restart(
    start_collector: Make, migrated_store: Any, tenant: str, request_record: Make, batch_of: Make, eventually: Make
) -> None:
    collector = start_collector(**behind(migrated_store))  # not started yet: everything waits in the spool
    for _ in range(10):
        body = batch_of(str(uuid.uuid4()), *[request_record(who=Identity(tenant)) for _ in range(20)])
        assert collector.post(body).status_code == 200
    collector.kill()
    migrated_store.start()
    collector.start()
    eventually(lambda: collector.health()["spool_bytes"] == 0, "the export")
    reader = migrated_store.client("reader")
    assert count(reader, "requests", tenant) == 200
    reader.close()


def test_kill_9_of_the_collector_at_any_moment_neither_loses_nor_doubles(
    start_collector: Make,
    store: Any,
    reader: StoreClient,
    tenant: str,
    request_record: Make,
    batch_of: Make,
    eventually: Make,
) -> None:
    chance = random.Random(5)
    collector = start_collector(**behind(store))
    sent = 0
    for _ in range(4):
        bodies = [batch_of(str(uuid.uuid4()), *[request_record(who=Identity(tenant))] * 3) for _ in range(5)]
        for body in bodies:
            assert collector.post(body).status_code == 200
            sent += 3
        time.sleep(chance.uniform(0, 0.2))  # the moment of death, not a wait for anything
        collector.kill()
        collector.start()
        for body in bodies[-2:]:  # a sender that lost the answer sends again
            assert collector.post(body).status_code == 200
    eventually(lambda: collector.health()["spool_bytes"] == 0, "the export")
    assert count(reader, "requests", tenant) == sent
    assert rolled_up(reader, tenant) == sent


def test_records_wait_for_a_store_that_is_killed_and_arrive_once_when_it_is_back(
    start_collector: Make, migrated_store: Any, tenant: str, request_record: Make, batch_of: Make, eventually: Make
) -> None:
    migrated_store.start()
    collector = start_collector(**behind(migrated_store))
    for number in range(30):
        if number == 10:
            migrated_store.kill()
        body = batch_of(str(uuid.uuid4()), request_record(who=Identity(tenant)))
        assert collector.post(body).status_code == 200
    eventually(lambda: collector.health()["status"] == "store_unreachable", "the notice")
    assert collector.health()["oldest_age_seconds"] > 0
    migrated_store.start()
    eventually(lambda: collector.health()["spool_bytes"] == 0, "the export")
    reader = migrated_store.client("reader")
    assert count(reader, "requests", tenant) == 30
    assert rolled_up(reader, tenant) == 30
    reader.close()
    assert collector.health()["status"] == "ok"


def test_a_stock_opentelemetry_exporter_is_understood_and_its_old_names_normalised(
    start_collector: Make, store: Any, reader: StoreClient, tenant: str, eventually: Make
) -> None:
    collector = start_collector(**behind(store))
    exporter = OTLPSpanExporter(f"http://127.0.0.1:{collector.port}{TRACES_PATH}", compression=Compression.Gzip)
    resource = Resource.create({"service.name": "an-app", "tollkeeper.tenant.id": tenant})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with provider.get_tracer("a.library", "1.2").start_as_current_span("llm_request", kind=SpanKind.CLIENT) as span:
        span.set_attribute("gen_ai.usage.prompt_tokens", 17)
        span.set_attribute("gen_ai.prompt", "a secret")
        span.add_event("first_token", {"n": 1})
    provider.shutdown()
    eventually(lambda: count(reader, "traces", tenant) == 1, "the span's row")
    (row,) = reader.query("SELECT * FROM traces WHERE tenant = {tenant:String}", {"tenant": tenant})
    assert row["attributes"] == {"gen_ai.usage.input_tokens": "17"}
    assert (row["name"], row["kind"], row["service"], row["scope_name"]) == (
        "llm_request",
        "client",
        "an-app",
        "a.library",
    )
    assert (row["event_names"], row["event_attributes"]) == (["first_token"], [{"n": "1"}])
    (view,) = reader.query(
        "SELECT TraceId, ServiceName FROM otel_traces WHERE SpanName = 'llm_request' AND TraceId = {id:String}",
        {"id": f"{span.get_span_context().trace_id:032x}"},
    )
    assert view["ServiceName"] == "an-app"


def test_a_log_line_and_spans_of_more_days_than_one_insert_usually_may_touch_are_stored(
    start_collector: Make, store: Any, reader: StoreClient, tenant: str, eventually: Make
) -> None:
    collector = start_collector(**behind(store))
    now, day = time.time_ns(), 86_400 * 10**9
    logs = ExportLogsServiceRequest()
    part = logs.resource_logs.add()
    part.resource.attributes.add(key="tollkeeper.tenant.id").value.string_value = tenant
    part.scope_logs.add().log_records.add(time_unix_nano=now, severity_text="INFO").body.string_value = "hello"
    assert collector.post(logs.SerializeToString()).status_code == 200
    traces = ExportTraceServiceRequest()
    spans_part = traces.resource_spans.add()
    spans_part.resource.attributes.add(key="tollkeeper.tenant.id").value.string_value = tenant
    spans = spans_part.scope_spans.add().spans
    for number in range(101):
        start = now - number * day
        span = spans.add(trace_id=b"t" * 16, span_id=b"s" * 8, start_time_unix_nano=start, end_time_unix_nano=start)
        span.links.add(trace_id=b"l" * 16, span_id=b"m" * 8, trace_state="x=y")
    body = gzip.compress(traces.SerializeToString())
    assert collector.post(body, TRACES_PATH, content_encoding="gzip").status_code == 200
    eventually(lambda: collector.health()["spool_bytes"] == 0, "the export")
    (row,) = reader.query("SELECT body, severity FROM logs WHERE tenant = {tenant:String}", {"tenant": tenant})
    assert row == {"body": "hello", "severity": "INFO"}
    assert count(reader, "traces", tenant) == 101


def test_one_broken_record_does_not_hold_up_the_others(
    start_collector: Make,
    store: Any,
    reader: StoreClient,
    tenant: str,
    request_record: Make,
    batch_of: Make,
    eventually: Make,
) -> None:
    collector = start_collector(**behind(store))
    batch_id = str(uuid.uuid4())
    good = batch_of(batch_id, request_record(who=Identity(tenant)), request_record(who=Identity(tenant)))
    unfit = batch_of(batch_id, request_record(who=Identity(tenant), status=-1))
    junk = build_export_request(batch_id, "g", [("tollkeeper.request", 1, b"junk")], RECORD_KEY.encode())
    response = collector.post(good + junk + unfit)
    assert response.status_code == 200
    eventually(lambda: collector.health()["spool_bytes"] == 0, "the export")
    assert count(reader, "requests", tenant) == 2
    health = collector.health()
    assert health["dead_letters"] == 2
    assert health["rejected"] == {"undecodable_record": 1, "rejected_by_store": 1}


@pytest.mark.drill
def test_a_store_not_migrated_yet_keeps_records_waiting(
    start_collector: Make, new_store: Any, tenant: str, request_record: Make, batch_of: Make, eventually: Make
) -> None:
    new_store.start()
    collector = start_collector(**behind(new_store))
    assert collector.post(batch_of(str(uuid.uuid4()), request_record(who=Identity(tenant)))).status_code == 200
    eventually(lambda: collector.health()["noticed"].get("export_retries", 0) >= 2, "the retries")
    assert collector.health()["dead_letters"] == 0
    new_store.migrate()
    eventually(lambda: collector.health()["spool_bytes"] == 0, "the export")
    reader = new_store.client("reader")
    assert count(reader, "requests", tenant) == 1
    reader.close()


def test_sigterm_exports_what_was_acknowledged(
    start_collector: Make, store: Any, reader: StoreClient, tenant: str, request_record: Make, batch_of: Make
) -> None:
    collector = start_collector(**behind(store))
    for _ in range(5):
        body = batch_of(str(uuid.uuid4()), request_record(who=Identity(tenant)))
        assert collector.post(body).status_code == 200
    assert collector.terminate() == 0
    with pytest.raises(httpx.TransportError):
        collector.health()
    assert count(reader, "requests", tenant) == 5


@pytest.mark.parametrize("table", [TRACES, LOGS, METRICS], ids=lambda table: str(table.name))
def test_the_columns_of_rows_are_those_of_the_migrated_table(reader: StoreClient, table: Any) -> None:
    found = reader.query(
        "SELECT name, type FROM system.columns WHERE database = currentDatabase() AND table = {table:String} "
        "AND default_kind = ''",
        {"table": table.name},
    )
    expected = {column.name: STORE_TYPES[column.kind].clickhouse for column in table.columns}
    assert {str(row["name"]): row["type"] for row in found} == expected
