"""The control database's audit log as a hash chain: each entry contains the hash of the previous one.

Entries are chained when their transaction ends, under the lock that `begin_change` takes, so that concurrent writers
chain them in the order of their numbers. Since an entry's content may have to be erased, its hash covers only a salted
hash of the content, which stays; the entry about the erasure lists the entries that it emptied.
"""

import hashlib
import json
import secrets
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.exc import DataError, OperationalError
from sqlalchemy.orm import Session

from backends.control.sound_rows import READS_ALL, UNSOUND
from contracts.control import AuditEntry

CHAIN: Final = "control"
WITNESS_BEGINS: Final = "audit.witness_begins"  # its subject is the chain of files that confirms entries from then on
ERASED: Final = "erased"
ERASED_ENTRIES: Final = "entries"  # in the detail of an erasure's entry
BEGINNING: Final = hashlib.sha256(b"tollkeeper audit chain\n" + CHAIN.encode()).hexdigest()
_PENDING: Final = "audit_entries"  # key in a session's info
_AT_ONCE: Final = 1000
_SALT_BYTES: Final = 16
_HASH_DIGITS: Final = 64
_ALL: Final = {READS_ALL: True}
_COLUMNS: Final = (
    *(AuditEntry.id, AuditEntry.at, AuditEntry.actor, AuditEntry.action, AuditEntry.subject, AuditEntry.address),
    *(AuditEntry.detail, AuditEntry.salt, AuditEntry.facts_hash, AuditEntry.prev, AuditEntry.hash),
)
_NOWHEN: Final = datetime.fromtimestamp(0, UTC)
# Errors of reading invalid rows. SQLite stores any value in any column, and bytes that are not UTF-8 as text;
# PostgreSQL stores times that Python cannot represent.
_UNREADABLE: Final = (*UNSOUND, DataError, OperationalError)


@dataclass(frozen=True, slots=True)
class AuditRow:
    """An entry as stored in the database."""

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
    unreadable: str = ""  # the fault if its values cannot be read; then only `id` is set

    @property
    def is_chained(self) -> bool:
        """Return whether the row carries a hash."""
        return len(self.hash) == _HASH_DIGITS


@dataclass(frozen=True, slots=True)
class RowFault:
    """The first invalid entry, by its number, and its fault."""

    entry: int
    what: str


@dataclass(slots=True)
class RowsReport:
    """The result for the database: the number of entries, the last one, and the faults."""

    entries: int = 0
    last: int = 0
    last_hash: str = ""
    erased: int = 0
    begun: dict[str, int] = field(default_factory=dict)  # confirming chains, by the entry that names each
    fault: RowFault | None = None


def note_entry(session: Session, entry: AuditEntry) -> None:
    """Queue an entry, which `chain_pending` adds to the chain when its transaction ends."""
    session.info.setdefault(_PENDING, []).append(entry)


def chain_pending(session: Session) -> None:
    """Add the transaction's entries to the hash chain, in order. For a session's `before_commit`."""
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
    """Return the salted hash of an entry's content; without the salt, guesses cannot be compared with it."""
    return hashlib.sha256(_canonical([salt, subject, detail])).hexdigest()


def entry_hash(entry: int, at: datetime, actor: str, action: str, address: str, facts: str, prev: str) -> str:
    """Return an entry's hash: SHA-256 of canonical JSON (sorted keys, no blanks, UTF-8), with its time in
    microseconds.
    """
    moment = at.astimezone(UTC).isoformat(timespec="microseconds")
    stated = {"id": entry, "at": moment, "actor": actor, "action": action, "address": address}
    return hashlib.sha256(_canonical({**stated, "facts": facts, "prev": prev})).hexdigest()


def read_rows(session: Session, *, after: int | None = None) -> Iterator[AuditRow]:
    """Yield every row of the table, ordered by number; with `after`, only those with greater numbers.

    Includes rows that cannot be read, with their fault, so no entry is left out.
    """
    while True:
        wanted = select(AuditEntry.id).order_by(AuditEntry.id)
        if after is not None:
            wanted = wanted.where(AuditEntry.id > after)
        last = after
        numbers = session.execute(wanted, execution_options={**_ALL, "yield_per": _AT_ONCE}).scalars()
        for part in numbers.partitions():
            yield from _rows_of(session, part)
            last = part[-1]
        if last == after or not isinstance(last, int):
            return
        after = last  # entries written meanwhile: one may be an erasure that explains emptied entries


def _rows_of(session: Session, numbers: Sequence[int | None]) -> Iterator[AuditRow]:
    """Yield rows by number; one by one if one of them cannot be read."""
    for _ in range(sum(number is None for number in numbers)):
        yield _unreadable(0, "the entry has no number")
    named = [number for number in numbers if number is not None]
    wanted = select(*_COLUMNS).order_by(AuditEntry.id)
    try:
        rows = session.execute(wanted.where(AuditEntry.id.in_(named)), execution_options=_ALL).all()
    except _UNREADABLE as error:
        _raise_if_away(error)
    else:
        yield from (_formed(tuple(row)) for row in rows)
        return
    for number in named:
        try:
            rows = session.execute(wanted.where(AuditEntry.id == number), execution_options=_ALL).all()
        except _UNREADABLE as error:
            _raise_if_away(error)
            yield _unreadable(number, "the entry cannot be read: something else than Tollkeeper wrote it")
        else:
            yield from (_formed(tuple(row)) for row in rows)


def _formed(row: Sequence[Any]) -> AuditRow:
    found = AuditRow(*row)
    texts = (found.actor, found.action, found.subject, found.address, found.salt, found.facts_hash, found.prev)
    is_formed = isinstance(found.at, datetime) and isinstance(found.detail, dict)
    if is_formed and type(found.id) is int and all(isinstance(value, str) for value in (*texts, found.hash)):
        return found
    what = "a value of the entry has another type than its column: something else than Tollkeeper wrote it"
    return _unreadable(found.id, what)


def _unreadable(number: object, what: str) -> AuditRow:
    number = number if type(number) is int else 0
    return AuditRow(number, _NOWHEN, "", "", "", "", {}, "", "", "", "", what)


def _raise_if_away(error: Exception) -> None:
    """Raise the error again if it is not about a row: the database is unavailable."""
    if isinstance(error, OperationalError) and not _is_of_python(error.orig):
        raise error


def _is_of_python(error: BaseException | None) -> bool:
    # SQLite's own errors have a code. One without is Python's, which could not decode a text.
    return isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", None) is None


def begun_chains(session: Session) -> set[str]:
    """Return the names of the chains of files that confirm the database's entries, as the entries state them."""
    return set(session.scalars(select(AuditEntry.subject).where(AuditEntry.action == WITNESS_BEGINS)))


def verify_rows(rows: Iterator[AuditRow]) -> RowsReport:
    """Verify the chain from its first entry, which must be the table's first row, to its end or its first invalid
    entry.
    """
    report, prev = RowsReport(), BEGINNING
    emptied: dict[int, None] = {}  # emptied entries that no erasure has listed yet
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
            report.erased += isinstance(number, int) and emptied.pop(number, 0) is None
        if row.action == WITNESS_BEGINS:
            report.begun[row.subject] = row.id
        prev, report.last, report.last_hash = row.hash, row.id, row.hash
        report.entries += 1
    if emptied:
        first = next(iter(emptied))
        report.fault = RowFault(first, "what the entry is about was taken out, and no erasure says so")
    return report


def _fault(row: AuditRow, prev: str) -> str:
    if row.unreadable:
        return row.unreadable
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
