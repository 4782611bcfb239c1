"""The control database's audit as a chain: each entry carries the hash of the one before it.

Entries are chained as their transaction ends, under the lock that `begin_change` takes, so that the chain has the
order of the numbers and concurrent writers wait for each other. What an entry is about may have to be erased; so the
hash covers a salted hash of it, which stays, and the erasure's own entry says which entries it emptied.
"""

import hashlib
import json
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from contracts.control import AuditEntry

CHAIN: Final = "control"
WITNESS_BEGINS: Final = "audit.witness_begins"  # its subject is the chain of files that vouches from then on
ERASED: Final = "erased"
ERASED_ENTRIES: Final = "entries"  # in the detail of an erasure's entry
BEGINNING: Final = hashlib.sha256(b"tollkeeper audit chain\n" + CHAIN.encode()).hexdigest()
_PENDING: Final = "audit_entries"  # in a session's info
_AT_ONCE: Final = 1000
_SALT_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class AuditRow:
    """An entry as it lies in the database."""

    id: int
    at: datetime
    actor: str
    action: str
    subject: str
    address: str
    detail: Mapping[str, object]
    salt: str
    facts_hash: str
    prev: str
    hash: str


@dataclass(frozen=True, slots=True)
class RowFault:
    """The first entry that is wrong, by its number, and what is wrong with it."""

    entry: int
    what: str


@dataclass(slots=True)
class RowsReport:
    """What was found in the database: how many entries, up to which, and what is wrong."""

    entries: int = 0
    last: int = 0
    last_hash: str = ""
    erased: int = 0
    begun: dict[str, int] = field(default_factory=dict)  # chains that vouch for the entries, by the entry that names it
    fault: RowFault | None = None


def note_entry(session: Session, entry: AuditEntry) -> None:
    """Have an entry chained when its transaction ends."""
    session.info.setdefault(_PENDING, []).append(entry)


def chain_pending(session: Session) -> None:
    """Chain the transaction's entries, in the order of their numbers. For a session's `before_commit`."""
    pending: list[AuditEntry] = session.info.pop(_PENDING, [])
    entries = sorted((entry for entry in pending if entry in session), key=lambda entry: entry.id)
    if not entries:
        return
    session.flush()
    before = select(AuditEntry.hash).where(AuditEntry.id < entries[0].id).order_by(AuditEntry.id.desc()).limit(1)
    prev = session.scalar(before) or BEGINNING
    for entry in entries:
        entry.salt = secrets.token_hex(_SALT_BYTES)
        entry.facts_hash = facts_hash(entry.salt, entry.subject, entry.detail)
        entry.prev = prev
        prev = entry.hash = entry_hash(
            entry.id, entry.at, entry.actor, entry.action, entry.address, entry.facts_hash, prev
        )
    session.flush()


def drop_pending(session: Session) -> None:
    """Forget the entries of a transaction that was rolled back. For a session's `after_rollback`."""
    session.info.pop(_PENDING, None)


def facts_hash(salt: str, subject: str, detail: Mapping[str, object]) -> str:
    """Give the hash of what an entry is about; without its salt, nobody can compare it with guesses."""
    return hashlib.sha256(_canonical([salt, subject, detail])).hexdigest()


def entry_hash(entry: int, at: datetime, actor: str, action: str, address: str, facts: str, prev: str) -> str:
    """Give an entry's hash: SHA-256 of canonical JSON (sorted keys, no blanks, UTF-8), the moment in microseconds."""
    moment = at.astimezone(UTC).isoformat(timespec="microseconds")
    stated = {"id": entry, "at": moment, "actor": actor, "action": action, "address": address}
    return hashlib.sha256(_canonical({**stated, "facts": facts, "prev": prev})).hexdigest()


def read_rows(session: Session, *, after: int = 0) -> Iterator[AuditRow]:
    """Give the entries behind a number, in their order, some at a time."""
    columns = (
        *(AuditEntry.id, AuditEntry.at, AuditEntry.actor, AuditEntry.action, AuditEntry.subject, AuditEntry.address),
        *(AuditEntry.detail, AuditEntry.salt, AuditEntry.facts_hash, AuditEntry.prev, AuditEntry.hash),
    )
    while True:
        wanted = select(*columns).where(AuditEntry.id > after).order_by(AuditEntry.id).limit(_AT_ONCE)
        rows = session.execute(wanted).all()
        for row in rows:
            yield AuditRow(*row)
        if len(rows) < _AT_ONCE:
            return
        after = rows[-1][0]


def begun_chains(session: Session) -> set[str]:
    """Return the names of the chains of files that the entries say vouch for them."""
    return set(session.scalars(select(AuditEntry.subject).where(AuditEntry.action == WITNESS_BEGINS)))


def verify_rows(rows: Iterator[AuditRow]) -> RowsReport:
    """Walk the chain to its end, or to the first entry that is wrong. It begins with the first entry of all."""
    report, prev = RowsReport(), BEGINNING
    emptied: dict[int, None] = {}  # entries without what they are about, until an erasure's entry names them
    for row in rows:
        what = _fault(row, prev)
        if what:
            report.fault = RowFault(row.id, what)
            return report
        if row.facts_hash != facts_hash(row.salt, row.subject, row.detail):
            if row.subject != ERASED or row.detail or row.salt:
                report.fault = RowFault(row.id, "what the entry is about was changed")
                return report
            emptied[row.id] = None
        named = row.detail.get(ERASED_ENTRIES) if row.action.endswith(".erase") else None
        for number in named if isinstance(named, list) else ():
            report.erased += emptied.pop(number, 0) is None
        if row.action == WITNESS_BEGINS:
            report.begun[row.subject] = row.id
        prev, report.last, report.last_hash = row.hash, row.id, row.hash
        report.entries += 1
    if emptied:
        first = next(iter(emptied))
        report.fault = RowFault(first, "what the entry is about was taken out, and no erasure says so")
    return report


def _fault(row: AuditRow, prev: str) -> str:
    if not row.hash:
        return "the entry was never chained: something else than Tollkeeper wrote it"
    found = entry_hash(row.id, row.at, row.actor, row.action, row.address, row.facts_hash, row.prev)
    if row.hash != found:
        return "the entry was changed: its hash is another one"
    if row.prev != prev:
        return "an entry is missing before it, or it is out of its place"
    return ""


def _canonical(stated: Any) -> bytes:
    return json.dumps(stated, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()
