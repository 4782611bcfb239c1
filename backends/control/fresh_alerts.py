"""Inserts alerts raised in one evaluation of the rules, possibly thousands, in one statement."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Final

from sqlalchemy import insert
from sqlalchemy.orm import Session

from contracts.control import Alert


@dataclass(slots=True)
class FreshAlert:
    """An alert that is not in the database yet, with the columns of `Alert`, but not tracked by a session, which would
    be slow.
    """

    id: str
    rule_id: str
    kind: str
    tenant_id: str
    team_id: str
    fingerprint: str
    open_key: str
    severity: str
    summary: str
    facts: dict[str, object]
    opened_at: datetime
    last_seen_at: datetime
    resolved_at: datetime | None = None
    notified_at: datetime | None = None
    acknowledged_at: datetime | None = None
    acknowledged_by: str | None = None


_COLUMNS: Final = tuple(field.name for field in fields(FreshAlert))


def insert_alerts(session: Session, fresh: Sequence[FreshAlert]) -> None:
    """Insert alerts created in this transaction. Raises the database's error if one is open already."""
    if fresh:
        session.execute(insert(Alert), [{name: getattr(alert, name) for name in _COLUMNS} for alert in fresh])
