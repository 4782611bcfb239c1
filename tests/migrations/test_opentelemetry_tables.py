"""The OpenTelemetry Collector's ClickHouse exporter writes its own rows into the store, and tools made for its tables,
as Grafana's ClickHouse plugin, read them: by the columns and the queries of both projects' sources of 2026."""

from collections.abc import Iterator
from typing import Any

import pytest

from backends.store.client import StoreClient
from contracts.recording.dialects import CONTENT_ATTRIBUTES

TRACE_ID, SPAN_ID, PARENT_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "00f067aa0ba902b7"
AT = "now64(9) - INTERVAL 1 HOUR"
RESOURCE = "map('service.name', 'shop', 'tollkeeper.tenant.id', 'acme')"
SPANS = (
    "Timestamp, TraceId, SpanId, ParentSpanId, TraceState, SpanName, SpanKind, ServiceName, ResourceAttributes, "
    "ScopeName, ScopeVersion, SpanAttributes, Duration, StatusCode, StatusMessage, Events.Timestamp, Events.Name, "
    "Events.Attributes, Links.TraceId, Links.SpanId, Links.TraceState, Links.Attributes"
)
LOG_LINES = (
    "Timestamp, TraceId, SpanId, TraceFlags, SeverityText, SeverityNumber, ServiceName, Body, ResourceSchemaUrl, "
    "ResourceAttributes, ScopeSchemaUrl, ScopeName, ScopeVersion, ScopeAttributes, LogAttributes, EventName"
)
POINTS = (
    "ResourceAttributes, ResourceSchemaUrl, ScopeName, ScopeVersion, ScopeAttributes, ScopeDroppedAttrCount, "
    "ScopeSchemaUrl, ServiceName, MetricName, MetricDescription, MetricUnit, Attributes, StartTimeUnix, TimeUnix"
)
EXEMPLARS = "Exemplars.FilteredAttributes, Exemplars.TimeUnix, Exemplars.Value, Exemplars.SpanId, Exemplars.TraceId"
NO_EXEMPLARS = "[], [], [], [], []"


@pytest.fixture
def client(empty_store: Any) -> Iterator[StoreClient]:
    writer: StoreClient = empty_store.client()
    yield writer
    for table in ("traces", "logs", "metrics"):
        writer.command(f"TRUNCATE TABLE {table}")
    writer.close()


def write_span(client: StoreClient, attributes: str = "map()", event: str = "exception", held: str = "map()") -> None:
    client.command(
        f"INSERT INTO otel_traces_in ({SPANS}) VALUES ({AT}, '{TRACE_ID}', '{SPAN_ID}', '{PARENT_ID}', 'k=v', "
        f"'chat small', 'Client', 'shop', {RESOURCE}, 'openai', '1.2', {attributes}, 2500000, 'Error', 'timed out', "
        f"[{AT}], ['{event}'], [{held}], ['{TRACE_ID}'], ['{PARENT_ID}'], [''], [map('why', 'retry')])"
    )


def write_point(client: StoreClient, kind: str, columns: str, values: str) -> dict[str, Any]:
    """Write a point of a kind; return it as `metrics` has it."""
    point = (
        f"{RESOURCE}, '', 'scope', '1', map(), 0, '', 'shop', 'tokens.{kind}', 'How many', '1', "
        f"map('model', 'small'), {AT}, {AT}"
    )
    client.command(f"INSERT INTO otel_metrics_{kind}_in ({POINTS}, {columns}) VALUES ({point}, {values})")
    (row,) = client.query("SELECT * FROM metrics WHERE kind = {kind:String}", {"kind": kind})
    assert (row["tenant"], row["name"], row["unit"], row["service"]) == ("acme", f"tokens.{kind}", "1", "shop")
    assert row["attributes"] == {"model": "small"}
    return row


def test_a_written_span_is_a_row_of_its_tenant(client: StoreClient) -> None:
    write_span(client, "map('gen_ai.request.model', 'small')", held="map('exception.type', 'Timeout')")
    ids = "hex(trace_id) AS trace, hex(span_id) AS span, hex(parent_span_id) AS parent, hex(link_trace_ids[1]) AS link"
    (row,) = client.query(f"SELECT * EXCEPT ('_ids?$'), {ids} FROM traces")
    assert (row["tenant"], row["name"], row["kind"], row["status"]) == ("acme", "chat small", "client", "error")
    assert (row["trace"], row["link"]) == (TRACE_ID.upper(), TRACE_ID.upper())
    assert (row["span"], row["parent"], row["duration_ns"]) == (SPAN_ID.upper(), PARENT_ID.upper(), 2_500_000)
    assert row["attributes"] == {"gen_ai.request.model": "small"}
    assert (row["event_names"], row["event_attributes"]) == (["exception"], [{"exception.type": "Timeout"}])
    assert row["link_attributes"] == [{"why": "retry"}]


@pytest.mark.parametrize(
    ("stated", "kept"), [("Server", "server"), ("SPAN_KIND_PRODUCER", "producer"), ("Unspecified", "")]
)
def test_kinds_of_newer_and_older_exporters_are_one(client: StoreClient, stated: str, kept: str) -> None:
    client.command(f"INSERT INTO otel_traces_in (Timestamp, TraceId, SpanKind) VALUES ({AT}, '', '{stated}')")
    assert client.query("SELECT kind FROM traces") == [{"kind": kept}]


def test_a_rows_own_tenant_comes_before_its_resources(client: StoreClient) -> None:
    write_span(client, "map('tollkeeper.tenant.id', 'globex')")
    assert client.query("SELECT tenant FROM traces") == [{"tenant": "globex"}]


def test_written_content_and_credentials_are_not_kept(client: StoreClient) -> None:
    families = ["llm.prompts.0", "input.value", "gen_ai.prompt.0.content", "ai.prompt.text", "embedding.embeddings.0"]
    said = ", ".join(f"'{name}', 'my secret'" for name in sorted(CONTENT_ATTRIBUTES) + families)
    write_span(
        client,
        f"map({said}, 'http.request.header.authorization', 'Bearer k', 'gen_ai.request.model', 'small')",
        event="gen_ai.user.message",
        held="map('content', 'my secret', 'gen_ai.system', 'openai')",
    )
    (row,) = client.query("SELECT attributes, event_attributes FROM traces")
    assert row["attributes"] == {
        "http.request.header.authorization": "[redacted]",
        "gen_ai.request.model": "small",
    }
    assert row["event_attributes"] == [{"gen_ai.system": "openai"}]


@pytest.mark.parametrize(("event", "body", "held"), [("", "started", {"a": "1"}), ("gen_ai.choice", "", {})])
def test_a_written_log_line_arrives_without_what_was_said(
    client: StoreClient, event: str, body: str, held: dict[str, str]
) -> None:
    client.command(
        f"INSERT INTO otel_logs_in ({LOG_LINES}) VALUES ({AT}, '{TRACE_ID}', '{SPAN_ID}', 1, 'INFO', 9, 'shop', "
        f"'started', '', {RESOURCE}, '', 'scope', '1', map(), map('a', '1'), '{event}')"
    )
    (row,) = client.query("SELECT Body, LogAttributes, ServiceName, TraceId, EventName FROM otel_logs")
    assert row == {"Body": body, "LogAttributes": held, "ServiceName": "shop", "TraceId": TRACE_ID, "EventName": event}
    assert client.query("SELECT tenant, severity_number FROM logs") == [{"tenant": "acme", "severity_number": 9}]


def test_written_points_of_every_kind_arrive(client: StoreClient) -> None:
    assert write_point(client, "gauge", f"Value, Flags, {EXEMPLARS}", f"0.5, 0, {NO_EXEMPLARS}")["value"] == 0.5
    total = write_point(
        client,
        "sum",
        f"Value, Flags, {EXEMPLARS}, AggregationTemporality, IsMonotonic",
        f"7, 0, {NO_EXEMPLARS}, 2, true",
    )
    assert (total["value"], total["temporality"], total["is_monotonic"]) == (7, "cumulative", True)
    histogram = write_point(
        client,
        "histogram",
        f"Count, Sum, BucketCounts, ExplicitBounds, {EXEMPLARS}, Flags, Min, Max, AggregationTemporality",
        f"3, 6, [1, 2], [2.5], {NO_EXEMPLARS}, 0, 1, 3, 1",
    )
    assert (histogram["count"], histogram["sum"], histogram["min"], histogram["max"]) == (3, 6, 1, 3)
    assert (histogram["bucket_counts"], histogram["bucket_bounds"]) == ([1, 2], [2.5])
    assert histogram["temporality"] == "delta"
    exponential = write_point(
        client,
        "exponential_histogram",
        "Count, Sum, Scale, ZeroCount, PositiveOffset, PositiveBucketCounts, NegativeOffset, NegativeBucketCounts, "
        f"{EXEMPLARS}, Flags, Min, Max, AggregationTemporality",
        f"3, 6, 4, 1, -2, [1, 1], 0, [], {NO_EXEMPLARS}, 0, 0, 0, 2",
    )
    assert (exponential["scale"], exponential["positive_offset"], exponential["zero_count"]) == (4, -2, 1)
    assert (exponential["min"], exponential["max"]) == (None, None)  # the exporter writes 0 for what was not reported
    summary = write_point(
        client, "summary", "Count, Sum, ValueAtQuantiles.Quantile, ValueAtQuantiles.Value, Flags", "2, 9, [0.5], [4], 0"
    )
    assert (summary["quantiles"], summary["quantile_values"]) == ([0.5], [4])
    for kind in ("gauge", "sum", "histogram", "exponential_histogram", "summary"):
        (seen,) = client.query(f"SELECT ServiceName, MetricName, Attributes FROM otel_metrics_{kind}")
        assert seen == {"ServiceName": "shop", "MetricName": f"tokens.{kind}", "Attributes": {"model": "small"}}
    assert client.query("SELECT Value, AggregationTemporality AS t FROM otel_metrics_sum") == [{"Value": 7.0, "t": 2}]


def test_grafana_shows_a_trace(client: StoreClient) -> None:
    """The query of its trace panel, with the table of traces' times and the columns of its OpenTelemetry mapping."""
    write_span(client, "map('gen_ai.request.model', 'small')", held="map('exception.type', 'Timeout')")
    span: Any
    (span,) = client.query(
        f"WITH '{TRACE_ID}' as trace_id, "
        '(SELECT min(Start) FROM "tollkeeper"."otel_traces_trace_id_ts" WHERE TraceId = trace_id) as trace_start, '
        '(SELECT max(End) + 1 FROM "tollkeeper"."otel_traces_trace_id_ts" WHERE TraceId = trace_id) as trace_end '
        'SELECT "TraceId" as traceID, "SpanId" as spanID, "ParentSpanId" as parentSpanID, '
        '"ServiceName" as serviceName, "SpanName" as operationName, '
        'multiply(toUnixTimestamp64Nano("Timestamp"), 0.000001) as startTime, '
        'multiply("Duration", 0.000001) as duration, '
        "arrayMap(key -> map('key', key, 'value',\"SpanAttributes\"[key]), mapKeys(\"SpanAttributes\")) as tags, "
        "arrayMap(key -> map('key', key, 'value',\"ResourceAttributes\"[key]), mapKeys(\"ResourceAttributes\")) "
        "as serviceTags, if(\"StatusCode\" IN ('Error', 'STATUS_CODE_ERROR'), 2, 0) as statusCode, "
        "arrayMap((name, timestamp, attributes) -> tuple(name, toString(toUnixTimestamp64Milli(timestamp)), "
        "arrayMap( key -> map('key', key, 'value', attributes[key]), mapKeys(attributes)))::Tuple(name String, "
        'timestamp String, fields Array(Map(String, String))), "Events".Name, "Events".Timestamp, '
        '"Events".Attributes) AS logs, '
        "arrayMap((traceID, spanID, attributes) -> tuple(traceID, spanID, arrayMap(key -> map('key', key, 'value', "
        "attributes[key]), mapKeys(attributes)))::Tuple(traceID String, spanID String, tags Array(Map(String, "
        'String))), "Links".TraceId, "Links".SpanId, "Links".Attributes) AS references, '
        '"SpanKind" as kind, "StatusMessage" as statusMessage, "ScopeName" as instrumentationLibraryName, '
        '"ScopeVersion" as instrumentationLibraryVersion, "TraceState" as traceState '
        'FROM "tollkeeper"."otel_traces" WHERE traceID = trace_id AND "Timestamp" >= trace_start '
        'AND "Timestamp" <= trace_end LIMIT 1000'
    )
    assert (span["traceID"], span["spanID"], span["parentSpanID"]) == (TRACE_ID, SPAN_ID, PARENT_ID)
    assert (span["duration"], span["statusCode"], span["kind"]) == (2.5, 2, "Client")
    assert {"key": "gen_ai.request.model", "value": "small"} in span["tags"]
    assert span["logs"][0]["name"] == "exception"
    assert span["references"][0]["tags"] == [{"key": "why", "value": "retry"}]


def test_grafana_lists_traces_and_logs(client: StoreClient) -> None:
    """The queries of its search of traces, its log panel and its log volume, with the time range written out."""
    write_span(client)
    client.command(f"INSERT INTO otel_logs_in (Timestamp, SeverityText, Body) VALUES ({AT}, 'INFO', 'started')")
    since = "now64(9) - INTERVAL 6 HOUR"
    (found,) = client.query(
        'SELECT "TraceId" as traceID, "ServiceName" as serviceName, "SpanName" as operationName, '
        '"Timestamp" as startTime, multiply("Duration", 0.000001) as duration FROM "tollkeeper"."otel_traces" '
        f"WHERE ( Timestamp >= {since} AND Timestamp <= now64(9) ) AND ( ParentSpanId != '' ) AND ( Duration > 0 ) "
        "AND ( SpanAttributes['gen_ai.request.model'] = '' ) ORDER BY Timestamp DESC, Duration DESC LIMIT 1000"
    )
    assert (found["traceID"], found["serviceName"], found["duration"]) == (TRACE_ID, "shop", 2.5)
    (line,) = client.query(
        'SELECT Timestamp as "timestamp", Body as "body", SeverityText as "level", LogAttributes as "labels", '
        'TraceId as "traceID" FROM "tollkeeper"."otel_logs" WHERE ( TimestampTime >= '
        f"toDateTime({since}) AND TimestampTime <= now() ) AND ( level = 'INFO' ) ORDER BY timestamp DESC LIMIT 1000"
    )
    assert line["body"] == "started"
    volume = client.query(
        'SELECT toStartOfInterval("Timestamp", INTERVAL 60 second) as "time", '
        "sum(multiSearchAny(toString(\"SeverityText\"), ['info','INFO','Info'])) as info FROM "
        f'"tollkeeper"."otel_logs" WHERE ( time >= {since} ) GROUP BY time ORDER BY time ASC LIMIT 10000'
    )
    assert [row["info"] for row in volume] == [1]
