"""OTLP messages with batches of packed records, which the gateway sends and the collector reads.

One ExportLogsServiceRequest is one batch: its resource has the sender's name and the batch id, which the sender creates
once and every hop keeps; each LogRecord contains one packed record as bytes. Transport is up to the callers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from contracts.errors import InvalidRequest
from contracts.recording import names
from contracts.recording.record_signature import digest_of_records, signature_of_batch
from contracts.recording.records import EVENT_PREFIX

CONTENT_TYPE: Final = "application/x-protobuf"
LOGS_PATH: Final = "/v1/logs"
TRACES_PATH: Final = "/v1/traces"
METRICS_PATH: Final = "/v1/metrics"

PackedRecord = tuple[str, int, bytes]  # event name, time in Unix nanoseconds, packed record


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """A batch of packed records. `batch_id` is empty if the sender set none."""

    batch_id: str
    service_name: str
    records: list[PackedRecord]


def build_export_request(
    batch_id: str, service_name: str, packed_records: Sequence[PackedRecord], key: bytes | None = None
) -> bytes:
    """Return a batch as bytes, signed if there is a key. The same arguments give the same bytes."""
    stated = {names.SERVICE_NAME: service_name, names.BATCH_ID: batch_id}
    if key is not None:
        stated[names.BATCH_SIGNATURE] = signature_of_batch(key, batch_id, digest_of_records(packed_records))
    request = ExportLogsServiceRequest()
    resource_logs = request.resource_logs.add()
    for name, value in stated.items():
        resource_logs.resource.attributes.add(key=name).value.string_value = value
    add = resource_logs.scope_logs.add().log_records.add
    for event_name, time_unix_nano, packed in packed_records:
        add(event_name=event_name, time_unix_nano=time_unix_nano).body.bytes_value = packed
    return request.SerializeToString()


def parse_export_request(body: bytes) -> PackedBatch:
    """Return the batch in a message; log records that are not packed records are skipped. Raises InvalidRequest."""
    request = parse_logs(body)
    first = request.resource_logs[0].resource if request.resource_logs else Resource()
    records = [
        (record.event_name, record.time_unix_nano, record.body.bytes_value)
        for resource_logs in request.resource_logs
        for scope_logs in resource_logs.scope_logs
        for record in scope_logs.log_records
        if record.event_name.startswith(EVENT_PREFIX)
    ]
    return PackedBatch(string_attribute(first, names.BATCH_ID), string_attribute(first, names.SERVICE_NAME), records)


def parse_logs(body: bytes) -> ExportLogsServiceRequest:
    """Parse the protobuf message only. Raises InvalidRequest."""
    try:
        return ExportLogsServiceRequest.FromString(body)
    except DecodeError as error:
        raise InvalidRequest(
            f"the body of {len(body)} bytes is not a protobuf ExportLogsServiceRequest", code="malformed_protobuf"
        ) from error


def rejected_records(response: bytes) -> tuple[int, str]:
    """Return, from a collector's response, how many records it rejects for ever, and the reason. Raises
    InvalidRequest.
    """
    try:
        partial = ExportLogsServiceResponse.FromString(response).partial_success
    except DecodeError as error:
        raise InvalidRequest(
            f"the answer of {len(response)} bytes is not a protobuf ExportLogsServiceResponse",
            code="malformed_protobuf",
        ) from error
    return partial.rejected_log_records, partial.error_message


def string_attribute(resource: Resource, key: str) -> str:
    """Return a resource's attribute if it is a string, otherwise ""."""
    for attribute in resource.attributes:
        if attribute.key == key:
            return attribute.value.string_value
    return ""
