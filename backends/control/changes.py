"""Common steps of every change in the control plane: raise the revision and write an audit entry."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from sqlalchemy import CursorResult, select, update
from sqlalchemy.orm import Session

from backends.control.audit_chain import note_entry
from contracts.control import AuditEntry, Revision

_THE_ROW = 1
_MAX_SUBJECT = 300

Area = Literal["rules", "serving"]
_ALL_AREAS: Final[tuple[Area, ...]] = ("rules", "serving")
# What gateways must read again, besides changed keys, by the noun of an action; everything for other nouns.
_AREAS: Final[Mapping[str, tuple[Area, ...]]] = {
    "key": (),
    "token": (),
    "user": (),
    "directory": (),
    "session": (),
    "saved_view": (),
    "team": (),
    "project": (),
    "tenant": ("rules",),
    "limit": ("rules",),
    "budget": ("rules",),
    "pool": ("serving",),
    "target": ("serving",),
    "model": ("serving",),
    "route": ("serving",),
    "rollout": ("serving",),
    "guardrail": ("serving",),
    "mcp_server": ("serving",),
    "tool_rule": ("serving",),
    "playbook": ("serving",),
    "stored_key": ("serving",),
    "price": ("serving",),
    "standard_cost": ("serving",),
    "rate": (),
    "book": (),
    "issuer": ("serving",),
    "slo": (),
    "policy_hold": ("rules",),
    "alert_rule": (),
    "alert_channel": (),
    "alert_silence": (),
    "alert": (),
    "configuration": (),  # each change of a plan has its own entry
}


@dataclass(frozen=True, slots=True)
class Author:
    """The author of a change, their network address, and the time (UTC), which is also the row's `created_at`.

    `tenant_id` and `team_id` are what the author is restricted to; empty: unrestricted.
    """

    name: str
    at: datetime
    address: str = ""
    tenant_id: str = ""
    team_id: str = ""


@dataclass(frozen=True, slots=True)
class Revisions:
    """The database's revisions: the number that gateways poll, and the last change of each area; see `Revision`."""

    number: int = 0
    rules: int = 0
    serving: int = 0
    keys_floor: int = 0


def begin_change(
    session: Session, author: Author, action: str, subject: str, detail: dict[str, object] | None = None
) -> AuditEntry:
    """Start a change: raise the revision and write the audit entry, both rolled back if the transaction fails.

    Call it before reading what the change depends on: raising the revision takes the database's write lock, so later
    checks for duplicates and overlaps cannot race with another change. `detail` must never contain a secret. Previous
    values can be added to the returned entry.
    """
    areas = _AREAS.get(action.partition(".")[0], _ALL_AREAS)
    raise_all = {name: Revision.number + 1 for name in ("number", *areas)}
    raised = session.execute(update(Revision).where(Revision.id == _THE_ROW).values(raise_all))
    assert isinstance(raised, CursorResult)  # the result of an UPDATE
    if raised.rowcount == 0:
        session.add(Revision(id=_THE_ROW, number=1, rules=1, serving=1))
    entry = AuditEntry(
        at=author.at,
        actor=author.name,
        action=action,
        subject=subject[:_MAX_SUBJECT],
        address=author.address,
        detail=detail or {},
    )
    session.add(entry)
    note_entry(session, entry)
    session.flush()
    return entry


def read_revision(session: Session) -> int:
    """Return the number of the last change; 0 before the first."""
    return read_revisions(session).number


def read_revisions(session: Session) -> Revisions:
    """Return the numbers of the last changes, in total and by area; all 0 before the first."""
    columns = (Revision.number, Revision.rules, Revision.serving, Revision.keys_floor)
    row = session.execute(select(*columns).where(Revision.id == _THE_ROW)).first()
    return Revisions() if row is None else Revisions(*row)


def raise_keys_floor(session: Session, number: int) -> None:
    """Make gateways with a revision below `number` read all keys, since rows about changes up to it are about to be
    deleted.
    """
    behind = (Revision.id == _THE_ROW, Revision.keys_floor < number)
    session.execute(update(Revision).where(*behind).values(keys_floor=number))
