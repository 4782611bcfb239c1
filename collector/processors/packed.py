"""Decode packed records, clamp their times, and sort them by table."""

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
_AT_A_MOMENT: Final = (KvRecord, DeviceRecord)  # tuples: a union would be made again for every record
_OF_SOMEBODY: Final = (RequestRecord, AttemptRecord)


def is_packed(record: LogRecord) -> bool:
    """Return whether a log record claims to carry a packed record."""
    return record.event_name.startswith(EVENT_PREFIX)


def is_plausible(record: LogRecord) -> bool:
    """Return whether a packed record's first bytes are those of the event it claims to be; cheap enough for receipt."""
    try:
        return event_name_of(record.body.bytes_value) == record.event_name
    except InvalidRecord:
        return False


def read_packed(index: int, record: LogRecord, received_at_ns: int, processed: Processed) -> None:
    """Decode one packed record into a row of its table, or note it as broken."""
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
    """Return the record itself, or one with its time clamped; a request's says so in its tags."""
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
