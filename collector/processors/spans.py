"""Spans of anyone's: rows of `traces`, with GenAI attributes in one spelling."""

from collections.abc import Iterator
from typing import Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from collector.processors.attributes import (
    MAX_VALUE_CHARACTERS,
    TRUNCATED_VALUE,
    attribute_map,
    event_attribute_map,
)
from collector.processors.signal import SignalProcessor, Survey
from collector.processors.times import CLAMPED, NEGATIVE_DURATION, clamp_time
from collector.rows import BrokenRecord, Processed
from collector.spool import SpooledBatch
from contracts.names import SERVICE_NAME, TENANT, TRACES
from contracts.telemetry import SpanRow

INVALID_SPAN: Final = "invalid_span"
_KINDS: Final = {number: name.removeprefix("SPAN_KIND_").lower() for name, number in Span.SpanKind.items() if number}
_STATUSES: Final = {number: name.removeprefix("STATUS_CODE_").lower() for name, number in Status.StatusCode.items()}


class SpansProcessor(SignalProcessor[ExportTraceServiceRequest]):
    """Reads requests of /v1/traces."""

    signal = "traces"
    parts = "resource_spans"
    scopes = "scope_spans"
    records = "spans"
    request = ExportTraceServiceRequest

    def survey(self, message: ExportTraceServiceRequest) -> Survey:
        """Count spans, and those without the ids that make them spans."""
        valid = [_has_ids(span) for _, _, span in _spans(message)]
        return Survey(len(valid), valid.count(False))

    def response(self, rejected: int, reason: str) -> ExportTraceServiceResponse:
        """Say how many spans were rejected."""
        response = ExportTraceServiceResponse()
        if rejected:
            response.partial_success.rejected_spans = rejected
            response.partial_success.error_message = reason
        return response

    def process(self, batch: SpooledBatch) -> Processed:
        """Make a row of each span that has its ids."""
        processed = Processed()
        resource: dict[str, str] = {}
        last: ResourceSpans | None = None
        for index, (resource_spans, scope_spans, span) in enumerate(_spans(self.parse(batch.payload))):
            if resource_spans is not last:
                last, noticed = resource_spans, list[str]()
                resource = attribute_map(resource_spans.resource.attributes, noticed)
                processed.notice(noticed)
            if _has_ids(span):
                processed.add(TRACES, _row(resource, scope_spans, span, batch.received_at_ns, processed))
            else:
                reason = "trace id must be 16 bytes and span id 8, neither all zero"
                processed.broken.append(BrokenRecord(index, INVALID_SPAN, reason, span.SerializeToString()))
        return processed


def _spans(message: ExportTraceServiceRequest) -> Iterator[tuple[ResourceSpans, ScopeSpans, Span]]:
    for resource_spans in message.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                yield resource_spans, scope_spans, span


def _has_ids(span: Span) -> bool:
    return len(span.trace_id) == 16 and len(span.span_id) == 8 and any(span.trace_id) and any(span.span_id)


def _row(
    resource: dict[str, str], scope_spans: ScopeSpans, span: Span, received_at_ns: int, processed: Processed
) -> SpanRow:
    noticed: list[str] = []
    attributes = attribute_map(span.attributes, noticed)
    stated_start_ns, stated_end_ns = span.start_time_unix_nano, span.end_time_unix_nano
    started_at_ns = clamp_time(stated_start_ns, received_at_ns)
    ended_at_ns = clamp_time(stated_end_ns, received_at_ns)
    if started_at_ns != stated_start_ns or ended_at_ns != stated_end_ns:
        noticed.append(CLAMPED)
    if ended_at_ns < started_at_ns:
        noticed.append(NEGATIVE_DURATION)
        ended_at_ns = started_at_ns
    status_message = span.status.message
    if len(status_message) > MAX_VALUE_CHARACTERS:
        noticed.append(TRUNCATED_VALUE)
        status_message = status_message[:MAX_VALUE_CHARACTERS]
    parent_span_id = span.parent_span_id
    status, scope = span.status, scope_spans.scope
    events, links = list(span.events), list(span.links)
    row = SpanRow(
        tenant=attributes.get(TENANT) or resource.get(TENANT, ""),
        started_at_ns=started_at_ns,
        duration_ns=ended_at_ns - started_at_ns,
        trace_id=span.trace_id,
        span_id=span.span_id,
        parent_span_id=parent_span_id if len(parent_span_id) == 8 else b"",
        trace_state=span.trace_state,
        name=span.name,
        kind=_KINDS.get(span.kind, ""),
        service=resource.get(SERVICE_NAME, ""),
        resource_attributes=resource,
        scope_name=scope.name,
        scope_version=scope.version,
        attributes=attributes,
        status=_STATUSES.get(status.code, "unset"),
        status_message=status_message,
        event_times_ns=[clamp_time(event.time_unix_nano, received_at_ns) for event in events] if events else [],
        event_names=[event.name for event in events] if events else [],
        event_attributes=[event_attribute_map(event.name, event.attributes, noticed) for event in events]
        if events
        else [],
        link_trace_ids=[link.trace_id for link in links] if links else [],
        link_span_ids=[link.span_id for link in links] if links else [],
        link_trace_states=[link.trace_state for link in links] if links else [],
        link_attributes=[attribute_map(link.attributes, noticed) for link in links] if links else [],
    )
    if noticed:
        processed.notice(noticed)
    return row
