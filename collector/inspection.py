"""Reads a spool and its dead letters while a collector may be running."""

import base64
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from backends.segment_log.segment_damage import Missing
from backends.segment_log.segment_reader import SegmentReader
from collector.spool import SpooledBatch

_LETTER_FILES: Final = ("letters.1.jsonl", "letters.jsonl")  # oldest first


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter: a record that could not be stored. `payload`: its bytes, possibly truncated."""

    at_ns: int
    cause: str
    reason: str
    batch_id: str
    index: int
    payload: bytes = field(repr=False)


@dataclass(slots=True)
class SpoolContents:
    """Summary of the batches queued for the store. Times are Unix nanoseconds; `None` if nothing is queued."""

    segments: int = 0
    disk_bytes: int = 0
    waiting_bytes: int = 0
    waiting_batches: Counter[str] = field(default_factory=Counter)  # by signal, or "unreadable"
    oldest_received_at_ns: int | None = None
    newest_received_at_ns: int | None = None
    damaged_stretches: int = 0
    missing: Missing = field(default_factory=Missing)


def inspect_spool(directory: Path) -> SpoolContents:
    """Return a summary of a spool. Raises ConfigurationError if it is missing or cannot be read."""
    reader = SegmentReader(directory)
    decoder = msgspec.msgpack.Decoder(SpooledBatch)
    found = SpoolContents(segments=reader.segments, disk_bytes=reader.disk_bytes)
    for entry in reader.waiting():
        found.waiting_bytes += entry.end.offset - entry.start.offset
        try:
            batch = decoder.decode(entry.payload)
        except msgspec.MsgspecError:
            found.waiting_batches["unreadable"] += 1
            continue
        found.waiting_batches[batch.signal] += 1
        at_ns = batch.received_at_ns
        found.oldest_received_at_ns = min(at_ns, found.oldest_received_at_ns or at_ns)
        found.newest_received_at_ns = max(at_ns, found.newest_received_at_ns or at_ns)
    found.damaged_stretches, found.missing = reader.damaged_stretches, reader.missing
    return found


def read_letters(directory: Path) -> Iterator[Letter]:
    """Yield the stored dead letters, oldest first. An unreadable line has the cause `unreadable`."""
    for name in _LETTER_FILES:
        try:
            file = open(directory / name, "rb")
        except FileNotFoundError:
            continue
        with file:
            for line in file:
                yield _letter(line)


def _letter(line: bytes) -> Letter:
    try:
        found: dict[str, Any] = json.loads(line)
        payload = base64.b64decode(found["payload"])
        return Letter(
            int(found["at_ns"]),
            str(found["cause"]),
            str(found["reason"]),
            str(found["batch_id"]),
            int(found["index"]),
            payload,
        )
    except (ValueError, LookupError, TypeError):  # damaged or truncated
        return Letter(0, "unreadable", "this line of the file is damaged or truncated", "", 0, line)
