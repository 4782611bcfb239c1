"""What every change to the control plane does: raise the revision that gateways poll, and leave an audit entry."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import CursorResult, select, update
from sqlalchemy.orm import Session

from contracts.control import AuditEntry, Revision

_THE_ROW = 1
_MAX_SUBJECT = 300


@dataclass(frozen=True, slots=True)
class Author:
    """Who makes a change, from which address, and when (UTC). The moment is also the row's `created_at`."""

    name: str
    at: datetime
    address: str = ""


def begin_change(
    session: Session, author: Author, action: str, subject: str, detail: dict[str, object] | None = None
) -> None:
    """Open a change: raise the revision and write the audit entry, both undone if the transaction fails.

    Call it before reading what the change depends on: raising the revision takes the write lock on either
    database, so checks for duplicates and overlaps that follow cannot race with another change.
    `detail` must never hold a secret.
    """
    raised = session.execute(update(Revision).where(Revision.id == _THE_ROW).values(number=Revision.number + 1))
    assert isinstance(raised, CursorResult)  # what an UPDATE gives
    if raised.rowcount == 0:
        session.add(Revision(id=_THE_ROW, number=1))
    session.add(
        AuditEntry(
            at=author.at,
            actor=author.name,
            action=action,
            subject=subject[:_MAX_SUBJECT],
            address=author.address,
            detail=detail or {},
        )
    )
    session.flush()


def read_revision(session: Session) -> int:
    """Give the number that moves with every change; 0 before the first."""
    return session.scalar(select(Revision.number).where(Revision.id == _THE_ROW)) or 0
