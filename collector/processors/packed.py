"""Decodes gateways' packed records into rows by table, and clamps their times."""

from typing import Any, Final

import msgspec
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from collector.processors.times import CLAMPED, clamp_time
from collector.rows import BrokenRecord, Processed
from contracts.errors import InvalidRecord
from contracts.recording.names import CLOCK_TAG, TABLES
from contracts.recording.records import (
    EVENT_NAMES,
    EVENT_PREFIX,
    AttemptRecord,
    DeviceRecord,
    KvRecord,
    Record,
    RequestRecord,
    decode_record,
    event_name_of,
)

UNDECODABLE = "undecodable_record"
_AT_A_MOMENT: Final = (KvRecord, DeviceRecord)  # tuples, because isinstance would build a union for every record
_OF_SOMEBODY: Final = (RequestRecord, AttemptRecord)


def is_packed(record: LogRecord) -> bool:
    """Return whether a log record is marked as a packed record."""
    return record.event_name.startswith(EVENT_PREFIX)


def is_plausible(record: LogRecord) -> bool:
    """Return whether a packed record's header matches its event name. Fast enough to run at receipt."""
    try:
        return event_name_of(record.body.bytes_value) == record.event_name
    except InvalidRecord:
        return False


def read_packed(index: int, record: LogRecord, received_at_ns: int, processed: Processed) -> None:
    """Decode one packed record and add it to `processed`: as a row of its table, or as broken."""
    packed = record.body.bytes_value
    try:
        decoded = decode_record(packed)
        kind = type(decoded)
        if EVENT_NAMES[kind] != record.event_name:
            raise InvalidRecord(f"a packed {EVENT_NAMES[kind]} came as {record.event_name!r}")
    except InvalidRecord as error:
        processed.broken.append(BrokenRecord(index, UNDECODABLE, error.message, packed))
        return
    row = _in_range(decoded, received_at_ns)
    if row is not decoded:
        processed.notice([CLAMPED])
    processed.add(TABLES[kind], row)


def _in_range(record: Record, received_at_ns: int) -> Record:
    """Return the record, with its time clamped if it is out of range; for a request, a tag has the original time."""
    if isinstance(record, _AT_A_MOMENT):
        at_ns = clamp_time(record.at_ns, received_at_ns)
        return record if at_ns == record.at_ns else msgspec.structs.replace(record, at_ns=at_ns)
    started_at_ns = clamp_time(record.started_at_ns, received_at_ns)
    if started_at_ns == record.started_at_ns:
        return record
    changes: dict[str, Any] = {"started_at_ns": started_at_ns}
    if isinstance(record, _OF_SOMEBODY):
        changes["who"] = record.who.with_caller("", {CLOCK_TAG: f"clamped from {record.started_at_ns}"})
    return msgspec.structs.replace(record, **changes)
