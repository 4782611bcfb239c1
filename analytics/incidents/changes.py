"""Changes around an incident from the audit log: configuration, prices, rollouts, keys and limits."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from contracts.control import AuditEntry

_DONE: Final = {
    "create": "created",
    "delete": "deleted",
    "update": "changed",
    "set": "changed",
    "put": "changed",
}
_ABBREVIATIONS: Final = {"slo": "SLO", "mcp": "MCP"}
# Nouns of actions that do not affect requests.
_BESIDE: Final = frozenset(
    {"session", "alert", "alert_rule", "alert_channel", "alert_silence", "saved_view", "user", "token", "book"}
)
_MOST: Final = 500


@dataclass(frozen=True, slots=True)
class Change:
    """One change: its time, its author, and what changed, in words."""

    at: datetime
    actor: str
    noun: str
    words: str


def changes_between(session: Session, start: datetime, end: datetime, tenant: str | None = None) -> tuple[Change, ...]:
    """Return the changes from `start` to `end`, oldest first; only those within `tenant` if given."""
    wanted = select(AuditEntry).where(AuditEntry.at >= start, AuditEntry.at <= end).order_by(AuditEntry.at).limit(_MOST)
    if tenant:
        subject = AuditEntry.subject
        wanted = wanted.where(or_(subject == tenant, subject.startswith(f"{tenant}/", autoescape=True)))
    return tuple(_change(entry) for entry in session.scalars(wanted) if entry.action.split(".")[0] not in _BESIDE)


def latest_before(changes: Iterable[Change], moment: datetime) -> Change | None:
    """Return the last change up to a time; `None` if there is none."""
    return max((one for one in changes if one.at <= moment), key=lambda one: one.at, default=None)


def _change(entry: AuditEntry) -> Change:
    noun, _, verb = entry.action.partition(".")
    past = _DONE.get(verb) or (f"{verb}d" if verb.endswith("e") else f"{verb}ed") if verb else "changed"
    name = " ".join(_ABBREVIATIONS.get(word, word) for word in noun.split("_"))
    words = f"{name[:1].upper()}{name[1:]} {entry.subject} was {past.replace('_', ' ')} by {entry.actor}"
    return Change(entry.at, entry.actor, noun, words)
