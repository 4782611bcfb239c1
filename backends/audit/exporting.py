"""Exports entries of a period as JSON lines, each with its hash and the chain it is from."""

import json
from collections.abc import Iterator

import msgspec

from backends.audit.entries import HASH_DIGITS, body_of
from backends.audit.places import ChainPlace
from backends.audit.verification import kept_segments
from backends.control.audit_chain import CHAIN, AuditRow
from contracts.recording.moments import unix_ns


class _Moment(msgspec.Struct, frozen=True, gc=False):
    at_ns: int


def export_chain(place: ChainPlace, since_ns: int, until_ns: int) -> Iterator[bytes]:
    """Yield a chain's entries from a time (inclusive) to another (exclusive), unchanged, with `place` and `hash`.

    These are the entries that `verify_chain` reads: without removed segments and incomplete entries.
    """
    name = json.dumps(place.name).encode()
    for segment in kept_segments(place):
        for line in place.lines(segment):
            body = body_of(line)
            if not line.endswith(b"\n"):
                continue  # an incomplete entry, which the next one records
            try:
                at_ns = msgspec.json.decode(body, type=_Moment).at_ns
            except msgspec.MsgspecError:
                continue  # not an entry; `tollkeeper audit verify` reports it
            if since_ns <= at_ns < until_ns:
                yield b'{"place":%b,"hash":"%b",%b\n' % (name, line[:HASH_DIGITS], body[1:])


def export_rows(rows: Iterator[AuditRow], since_ns: int, until_ns: int) -> Iterator[bytes]:
    """Yield the control database's entries of a period, and all rows that cannot be parsed, as these have no time."""
    for row in rows:
        if row.unreadable:
            yield json.dumps({"place": CHAIN, "seq": row.id, "unreadable": row.unreadable}).encode() + b"\n"
            continue
        at_ns = unix_ns(row.at)
        if since_ns <= at_ns < until_ns:
            stated = {
                "place": CHAIN,
                "hash": row.hash,
                "prev": row.prev,
                "seq": row.id,
                "kind": "change",
                "at_ns": at_ns,
            }
            about = {"actor": row.actor, "action": row.action, "subject": row.subject, "address": row.address}
            more = {"detail": row.detail, "salt": row.salt, "facts_hash": row.facts_hash}
            yield json.dumps({**stated, **about, **more}).encode() + b"\n"
