"""Processes requests of /v1/logs: gateways' packed records become rows of their tables, other logs rows of `logs`."""

from collections.abc import Iterator
from typing import Final

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs

from collector.processors.attributes import (
    DROPPED_CONTENT,
    TRUNCATED_VALUE,
    attribute_map,
    event_attribute_map,
    text_of,
)
from collector.processors.packed import is_packed, is_plausible, read_packed
from collector.processors.signal import SignalProcessor, Survey
from collector.processors.times import CLAMPED, clamp_time
from collector.rows import Processed
from collector.spool import SpooledBatch
from contracts.recording.dialects import CONTENT_EVENT_PREFIX
from contracts.recording.names import LOGS, SERVICE_NAME, TENANT
from contracts.recording.telemetry import LogRow

MAX_BODY_CHARACTERS: Final = 65_536


class LogsProcessor(SignalProcessor[ExportLogsServiceRequest]):
    """Processor of /v1/logs."""

    signal = "logs"
    parts = "resource_logs"
    scopes = "scope_logs"
    records = "log_records"
    request = ExportLogsServiceRequest

    def survey(self, message: ExportLogsServiceRequest) -> Survey:
        """Count the records of a batch, and packed records with an invalid header.

        Errors inside a record are found when it is decoded.
        """
        records = unreadable = 0
        for _, _, record in _records(message):
            records += 1
            unreadable += is_packed(record) and not is_plausible(record)
        return Survey(records, unreadable)

    def is_ours(self, record: LogRecord) -> bool:
        """Return whether a log record is a packed record."""
        return is_packed(record)

    def response(self, rejected: int, reason: str) -> ExportLogsServiceResponse:
        """Return the OTLP response with the number of rejected records."""
        response = ExportLogsServiceResponse()
        if rejected:
            response.partial_success.rejected_log_records = rejected
            response.partial_success.error_message = reason
        return response

    def process(self, batch: SpooledBatch) -> Processed:
        """Return the rows of a batch: packed records decoded, other records as rows of `logs`."""
        processed = Processed()
        resource: dict[str, str] = {}
        last: ResourceLogs | None = None
        for index, (resource_logs, scope_logs, record) in enumerate(_records(self.parse(batch.payload))):
            if is_packed(record):
                read_packed(index, record, batch.received_at_ns, processed)
                continue
            if resource_logs is not last:
                last, noticed = resource_logs, list[str]()
                resource = attribute_map(resource_logs.resource.attributes, noticed)
                processed.notice(noticed)
            processed.add(LOGS, _row(resource, scope_logs, record, batch.received_at_ns, processed))
        return processed


def _records(message: ExportLogsServiceRequest) -> Iterator[tuple[ResourceLogs, ScopeLogs, LogRecord]]:
    for resource_logs in message.resource_logs:
        for scope_logs in resource_logs.scope_logs:
            for record in scope_logs.log_records:
                yield resource_logs, scope_logs, record


def _row(
    resource: dict[str, str], scope_logs: ScopeLogs, record: LogRecord, received_at_ns: int, processed: Processed
) -> LogRow:
    noticed: list[str] = []
    attributes = event_attribute_map(record.event_name, record.attributes, noticed)
    stated_at_ns = record.time_unix_nano or record.observed_time_unix_nano or received_at_ns
    at_ns = clamp_time(stated_at_ns, received_at_ns)
    if at_ns != stated_at_ns:
        noticed.append(CLAMPED)
    body = text_of(record.body)
    if body and record.event_name.startswith(CONTENT_EVENT_PREFIX):
        noticed.append(DROPPED_CONTENT)
        body = ""
    if len(body) > MAX_BODY_CHARACTERS:
        noticed.append(TRUNCATED_VALUE)
        body = body[:MAX_BODY_CHARACTERS]
    processed.notice(noticed)
    return LogRow(
        tenant=attributes.get(TENANT) or resource.get(TENANT, ""),
        at_ns=at_ns,
        observed_at_ns=clamp_time(record.observed_time_unix_nano or received_at_ns, received_at_ns),
        trace_id=record.trace_id if len(record.trace_id) == 16 else b"",
        span_id=record.span_id if len(record.span_id) == 8 else b"",
        trace_flags=record.flags & 0xFF,
        severity=record.severity_text,
        severity_number=min(max(record.severity_number, 0), 255),
        service=resource.get(SERVICE_NAME, ""),
        event_name=record.event_name,
        body=body,
        attributes=attributes,
        resource_attributes=resource,
        scope_name=scope_logs.scope.name,
        scope_version=scope_logs.scope.version,
    )
