"""Copies finished segments to the sink, and compares the sink's copy with the local chain."""

from collections.abc import Mapping
from pathlib import Path

from backends.audit.places import DirectoryPlace, first_seq_of
from backends.audit.signing import AuditKeys
from backends.audit.sink import Sink, SinkPlace
from backends.audit.verification import ChainReport, Fault, verify_chain


def ship_finished(directory: Path, folder: str, sink: Sink) -> list[str]:
    """Copy the finished segments that the sink lacks; return their names. Blocks. Raises Unavailable or OSError."""
    place = DirectoryPlace(directory)
    known = set(sink.names(folder))
    sent = []
    for segment in place.segments()[:-1]:
        if segment not in known:
            sink.put(folder, segment, (directory / segment).read_bytes())
            sent.append(segment)
    return sent


def verify_sink(
    sink: Sink,
    folder: str,
    keys: AuditKeys,
    local: DirectoryPlace | None,
    first_kept: int,
    accepted: Mapping[str, int] | None = None,
) -> ChainReport:
    """Verify a sink's copy of a chain, and compare it with the local chain if that is given.

    Local entries may be missing before `first_kept` (removed and signed for), and after the entry with which the chain
    was `accepted` to end (by chain).
    """
    place = SinkPlace(sink, folder)
    report = verify_chain(place, keys, is_part=True)
    if report.fault is None and local is not None:
        report.fault = _difference(place, sink, folder, local, first_kept, (accepted or {}).get(report.chain))
    return report


def _difference(
    place: SinkPlace, sink: Sink, folder: str, local: DirectoryPlace, first_kept: int, accepted: int | None
) -> Fault | None:
    here = set(local.segments())
    for segment in place.segments():
        first = first_seq_of(segment)
        if segment not in here:
            if first >= first_kept and (accepted is None or first <= accepted):
                return Fault(local.name, "a segment that the sink has is gone here", segment, first)
            continue
        kept, found = sink.get(folder, segment), (local.directory / segment).read_bytes()
        if kept == found:
            continue
        lines = found.splitlines(keepends=True)
        if accepted is not None and kept.startswith(found) and first + len(lines) - 1 == accepted:
            continue
        pairs = zip(kept.splitlines(keepends=True), lines, strict=False)
        at = next((number for number, (one, other) in enumerate(pairs) if one != other), None)
        if at is None:
            return Fault(local.name, "the sink has entries that are gone here", segment, first + len(lines))
        return Fault(local.name, "the entry is another one than in the sink", segment, first + at)
    return None
