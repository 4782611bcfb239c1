"""opentelemetry-python's own exporters, over HTTP and gRPC, into the real store; and a page that is scraped."""

import http.server
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcLogs
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetrics
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpans
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpLogs
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetrics
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpans
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from backends.store.client import StoreClient

Make = Callable[..., Any]


@pytest.fixture
def reader(store: Any) -> Iterator[StoreClient]:
    client: StoreClient = store.client("reader")
    yield client
    client.close()


@pytest.fixture
def page() -> Iterator[str]:
    """The URL of a page of metrics."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name="tiny"} 3\n'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Do nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/metrics"
        server.shutdown()


def exporters(collector: Any, way: str) -> tuple[Any, Any, Any]:
    if way == "grpc":
        endpoint = f"http://127.0.0.1:{collector.grpc_port}"
        return tuple(kind(endpoint=endpoint, insecure=True) for kind in (GrpcSpans, GrpcMetrics, GrpcLogs))  # type: ignore[return-value]
    base = f"http://127.0.0.1:{collector.port}/v1"
    return HttpSpans(f"{base}/traces"), HttpMetrics(f"{base}/metrics"), HttpLogs(f"{base}/logs")


def send(collector: Any, way: str, tenant: str) -> None:
    """Send a span, a counter, a histogram and a log line, as an application does."""
    spans, metrics, logs = exporters(collector, way)
    resource = Resource({"service.name": f"app-{way}", "tollkeeper.tenant.id": tenant})
    tracers = TracerProvider(resource=resource)
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    with tracers.get_tracer("app").start_as_current_span("chat tiny") as span:
        span.set_attribute("gen_ai.system", "openai")
        span.set_attribute("gen_ai.usage.prompt_tokens", 120)
    tracers.shutdown()
    meters = MeterProvider([PeriodicExportingMetricReader(metrics, export_interval_millis=3_600_000)], resource)
    meter = meters.get_meter("app")
    meter.create_counter("calls").add(2, {"model": "tiny"})
    meter.create_histogram("seconds").record(0.25)
    meters.shutdown()
    loggers = LoggerProvider(resource)
    loggers.add_log_record_processor(SimpleLogRecordProcessor(logs))
    loggers.get_logger("app").emit(
        LogRecord(timestamp=time.time_ns(), severity_number=SeverityNumber.INFO, severity_text="INFO", body="a line")
    )
    loggers.shutdown()


def test_the_stock_exporters_signals_arrive_as_rows_by_both_ways(
    start_collector: Make, store: Any, reader: StoreClient, eventually: Make, page: str
) -> None:
    address = store.address("writer")
    collector = start_collector(
        store_url=address.url,
        store_user=address.user,
        store_password=address.password,
        collector_scrape=page,
    )
    tenant = f"tenant-{uuid.uuid4().hex[:12]}"
    for way in ("http", "grpc"):
        send(collector, way, tenant)
    eventually(lambda: collector.health()["spool_bytes"] == 0, "the export")
    bound = {"tenant": tenant}
    spans = reader.query("SELECT service, name, attributes FROM traces WHERE tenant = {tenant:String}", bound)
    assert sorted(row["service"] for row in spans) == ["app-grpc", "app-http"]  # type: ignore[type-var]
    assert spans[0]["attributes"] == {"gen_ai.provider.name": "openai", "gen_ai.usage.input_tokens": "120"}
    points = reader.query(
        "SELECT service, name, value, count FROM metrics WHERE tenant = {tenant:String} ORDER BY service, name", bound
    )
    assert [(row["service"], row["name"], row["value"], row["count"]) for row in points] == [
        ("app-grpc", "calls", 2.0, None),
        ("app-grpc", "seconds", None, 1),
        ("app-http", "calls", 2.0, None),
        ("app-http", "seconds", None, 1),
    ]
    lines = reader.query("SELECT service, body, severity FROM logs WHERE tenant = {tenant:String}", bound)
    assert sorted((row["service"], row["body"], row["severity"]) for row in lines) == [
        ("app-grpc", "a line", "INFO"),
        ("app-http", "a line", "INFO"),
    ]
    scraped = reader.query(
        "SELECT DISTINCT value FROM metrics WHERE name = 'vllm:num_requests_running' "
        "AND resource_attributes['url.full'] = {page:String}",
        {"page": page},
    )
    assert scraped == [{"value": 3.0}]
