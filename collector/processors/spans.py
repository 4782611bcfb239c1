"""Processes third-party spans: rows of `traces`, with current names of GenAI attributes."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from collector.processors.attributes import (
    MAX_VALUE_CHARACTERS,
    TRUNCATED_VALUE,
    packed_attribute_map,
    packed_event_map,
)
from collector.processors.signal import SignalProcessor, Survey
from collector.processors.span_message import SpansMessage
from collector.processors.times import CLAMPED, NEGATIVE_DURATION, clamp_time
from collector.rows import BrokenRecord, Processed
from collector.spool import SpooledBatch
from contracts.recording.names import SERVICE_NAME, TENANT, TRACES
from contracts.recording.telemetry import SpanRow

INVALID_SPAN: Final = "invalid_span"
_INVALID: Final = "trace id must be 16 bytes and span id 8, neither all zero"
_NO_TRACE: Final = bytes(16)
_NO_SPAN: Final = bytes(8)
# Empty values of most spans, shared and never changed: steps copy a row before they change it.
_NO_EVENTS: Final[tuple[list[int], list[str], list[dict[str, str]]]] = ([], [], [])
_NO_LINKS: Final[tuple[list[bytes], list[bytes], list[str], list[dict[str, str]]]] = ([], [], [], [])
_KINDS: Final[dict[int, str]] = {
    number: name.removeprefix("SPAN_KIND_").lower() for name, number in Span.SpanKind.items() if number
}
_STATUSES: Final[dict[int, str]] = {
    number: name.removeprefix("STATUS_CODE_").lower() for name, number in Status.StatusCode.items()
}


class SpansProcessor(SignalProcessor[ExportTraceServiceRequest]):
    """Processor of /v1/traces."""

    signal = "traces"
    parts = "resource_spans"
    scopes = "scope_spans"
    records = "spans"
    request = ExportTraceServiceRequest

    def survey(self, message: ExportTraceServiceRequest) -> Survey:
        """Count the spans, and those with an invalid trace or span id."""
        valid = [_has_ids(span) for _, _, span in _spans(message)]
        return Survey(len(valid), valid.count(False))

    def response(self, rejected: int, reason: str) -> ExportTraceServiceResponse:
        """Return the OTLP response with the number of rejected spans."""
        response = ExportTraceServiceResponse()
        if rejected:
            response.partial_success.rejected_spans = rejected
            response.partial_success.error_message = reason
        return response

    def process(self, batch: SpooledBatch) -> Processed:
        """Return a row per span with valid ids."""
        processed = Processed()
        reader = _SpanReader(processed, batch.received_at_ns)
        try:
            self._read(SpansMessage.FromString(batch.payload), reader, processed)
        except (DecodeError, UnicodeDecodeError) as error:
            raise self._malformed(batch.payload) from error
        return processed

    def _read(self, message: Any, reader: "_SpanReader", processed: Processed) -> None:
        index = 0
        for resource_spans in message.resource_spans:
            reader.begin_resource(resource_spans.resource.attributes)
            for scope_spans in resource_spans.scope_spans:
                reader.begin_scope(scope_spans.scope)
                for span in scope_spans.spans:
                    if _has_ids(span):
                        processed.add(TRACES, reader.row(span))
                    else:
                        broken = BrokenRecord(index, INVALID_SPAN, _INVALID, span.SerializeToString())
                        processed.broken.append(broken)
                    index += 1


def _spans(message: ExportTraceServiceRequest) -> Iterator[tuple[ResourceSpans, ScopeSpans, Span]]:
    for resource_spans in message.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                yield resource_spans, scope_spans, span


def _has_ids(span: Any) -> bool:
    trace_id, span_id = span.trace_id, span.span_id
    return len(trace_id) == 16 and len(span_id) == 8 and trace_id != _NO_TRACE and span_id != _NO_SPAN


class _SpanReader:
    """Converts one batch's spans to rows; parses resource and scope attributes once."""

    def __init__(self, processed: Processed, received_at_ns: int) -> None:
        self._processed = processed
        self._received_at_ns = received_at_ns
        self._resource: dict[str, str] = {}
        self._tenant = self._service = self._scope_name = self._scope_version = ""

    def begin_resource(self, attributes: Iterable[bytes]) -> None:
        """Set the resource of the following spans."""
        noticed: list[str] = []
        self._resource = packed_attribute_map(attributes, noticed)
        self._tenant = self._resource.get(TENANT, "")
        self._service = self._resource.get(SERVICE_NAME, "")
        self._processed.notice(noticed)

    def begin_scope(self, scope: Any) -> None:
        """Set the scope of the following spans."""
        self._scope_name, self._scope_version = scope.name, scope.version

    def row(self, span: Any) -> SpanRow:
        """Return the row of a span with valid ids."""
        noticed: list[str] = []
        attributes = packed_attribute_map(span.attributes, noticed)
        started_at_ns, duration_ns = self._times(span, noticed)
        code, message = 0, ""
        if span.HasField("status"):
            code, message = span.status.code, span.status.message
            if len(message) > MAX_VALUE_CHARACTERS:
                noticed.append(TRUNCATED_VALUE)
                message = message[:MAX_VALUE_CHARACTERS]
        event_times_ns, event_names, event_attributes = self._events(span.events, noticed)
        link_trace_ids, link_span_ids, link_states, link_attributes = self._links(span.links, noticed)
        parent_span_id = span.parent_span_id
        row = SpanRow(
            attributes.get(TENANT) or self._tenant,
            started_at_ns,
            duration_ns,
            span.trace_id,
            span.span_id,
            parent_span_id if len(parent_span_id) == 8 else b"",
            span.trace_state,
            span.name,
            _KINDS.get(span.kind, ""),
            self._service,
            self._resource,
            self._scope_name,
            self._scope_version,
            attributes,
            _STATUSES.get(code, "unset"),
            message,
            event_times_ns,
            event_names,
            event_attributes,
            link_trace_ids,
            link_span_ids,
            link_states,
            link_attributes,
        )
        if noticed:
            self._processed.notice(noticed)
        return row

    def _times(self, span: Any, noticed: list[str]) -> tuple[int, int]:
        """Return the span's start (Unix ns, clamped) and duration (ns)."""
        stated_start_ns, stated_end_ns = span.start_time_unix_nano, span.end_time_unix_nano
        started_at_ns = clamp_time(stated_start_ns, self._received_at_ns)
        ended_at_ns = clamp_time(stated_end_ns, self._received_at_ns)
        if started_at_ns != stated_start_ns or ended_at_ns != stated_end_ns:
            noticed.append(CLAMPED)
        if ended_at_ns < started_at_ns:
            noticed.append(NEGATIVE_DURATION)
            ended_at_ns = started_at_ns
        return started_at_ns, ended_at_ns - started_at_ns

    def _events(self, events: Any, noticed: list[str]) -> tuple[list[int], list[str], list[dict[str, str]]]:
        if not events:
            return _NO_EVENTS
        return (
            [clamp_time(event.time_unix_nano, self._received_at_ns) for event in events],
            [event.name for event in events],
            [packed_event_map(event.name, event.attributes, noticed) for event in events],
        )

    def _links(
        self, links: Any, noticed: list[str]
    ) -> tuple[list[bytes], list[bytes], list[str], list[dict[str, str]]]:
        if not links:
            return _NO_LINKS
        return (
            [link.trace_id for link in links],
            [link.span_id for link in links],
            [link.trace_state for link in links],
            [packed_attribute_map(link.attributes, noticed) for link in links],
        )
