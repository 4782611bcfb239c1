"""Leases: one process at a time runs an exclusive task, as long as it renews its lease."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import CursorResult, case, or_, select, update
from sqlalchemy.orm import Session

from backends.control.budget_states import insert_into
from contracts.control import Lease
from contracts.errors import Conflict


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A lease that this process holds. `term` counts the holders: two may have the same name."""

    name: str
    holder: str
    term: int


def take_lease(session: Session, name: str, holder: str, now: datetime, length: timedelta) -> HeldLease | None:
    """Acquire or renew a lease until `now + length`; `None` if another process holds it.

    A lease that ends more than twice that length from now was taken by a wrong clock, and counts as free.
    """
    free = or_(Lease.holder == holder, Lease.expires_at <= now, Lease.expires_at > now + 2 * length)
    term = case((Lease.holder == holder, Lease.term), else_=Lease.term + 1)
    taken = session.execute(
        update(Lease).where(Lease.name == name, free).values(holder=holder, expires_at=now + length, term=term),
        execution_options={"synchronize_session": False},
    )
    if not changed_one(taken):
        insert: Any = insert_into(session, Lease)
        row = insert.values(name=name, holder=holder, term=1, expires_at=now + length).on_conflict_do_nothing()
        if session.scalar(row.returning(Lease.name)) is None:
            return None
    found = session.execute(select(Lease.term).where(Lease.name == name, Lease.holder == holder)).scalar_one()
    return HeldLease(name, holder, found)


def require_lease(session: Session, lease: HeldLease, now: datetime) -> None:
    """Check that a lease is still held, and lock it until this transaction ends. Call it first in the transaction.

    The next holder then waits for this transaction's changes. Raises Conflict if the lease was lost; the transaction
    must then be rolled back.
    """
    mine = (Lease.name == lease.name, Lease.holder == lease.holder, Lease.term == lease.term)
    kept = session.execute(
        update(Lease).where(*mine, Lease.expires_at > now).values(term=lease.term),
        execution_options={"synchronize_session": False},
    )
    if not changed_one(kept):
        raise Conflict(f"the lease {lease.name!r} is another process's by now", code="lease_lost")


def give_back(session: Session, lease: HeldLease, now: datetime) -> None:
    """End a lease early, so that another process can take it at once."""
    mine = (Lease.name == lease.name, Lease.holder == lease.holder, Lease.term == lease.term)
    session.execute(update(Lease).where(*mine).values(expires_at=now), execution_options={"synchronize_session": False})


def changed_one(result: object) -> bool:
    """Return whether an INSERT or UPDATE changed exactly one row."""
    assert isinstance(result, CursorResult)
    return bool(result.rowcount == 1)
