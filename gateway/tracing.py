"""A GenAI span for every request, made from its record, when tracing is on. Nothing on the request's way.

The span is built after the fact from the same facts as the row, so the two cannot disagree.
"""

from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from contracts.names import span_attributes, span_name
from contracts.records import RequestRecord

_SCOPE: Final = InstrumentationScope("tollkeeper.gateway")


class SpanEmitter:
    """Turns request records into spans and sends them in batches from a thread of the SDK's."""

    def __init__(self, traces_url: str, gateway: str) -> None:
        self._resource = Resource.create({"service.name": "tollkeeper-gateway", "service.instance.id": gateway})
        self._processor = BatchSpanProcessor(OTLPSpanExporter(endpoint=traces_url))

    def emit(self, record: RequestRecord) -> None:
        """Hand one request's span to the exporter's queue. A caller without a trace gets one named by the request."""
        trace_id = record.trace_id or record.request_id
        span_id = record.span_id or record.request_id[8:]
        context = SpanContext(
            trace_id=int.from_bytes(trace_id, "big"),
            span_id=int.from_bytes(span_id, "big"),
            is_remote=False,
            trace_flags=TraceFlags(TraceFlags.SAMPLED),
        )
        self._processor.on_end(
            ReadableSpan(
                name=span_name(record),
                context=context,
                resource=self._resource,
                attributes=span_attributes(record),
                kind=SpanKind.CLIENT,
                status=Status(StatusCode.ERROR if record.outcome == "error" else StatusCode.UNSET),
                start_time=record.started_at_ns,
                end_time=record.started_at_ns + record.duration_ns,
                instrumentation_scope=_SCOPE,
            )
        )

    def close(self) -> None:
        """Send what is queued and stop."""
        self._processor.shutdown()  # type: ignore[no-untyped-call]  # the SDK's own omission
