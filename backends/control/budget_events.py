"""Passed budget thresholds: stored once each, and delivered by one control plane at a time."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from backends.control.budget_states import insert_into
from backends.control.leases import changed_one
from contracts.control import Budget, BudgetEvent
from contracts.recording.ids import uuid7
from contracts.recording.moments import unix_ns, utc_moment

# The first wait is longer than an attempt may last, so that no other control plane starts one meanwhile.
_FIRST_WAIT: Final = timedelta(seconds=10)
_LONGEST_WAIT: Final = timedelta(hours=1)
_GIVE_UP_AFTER: Final = timedelta(days=1)
_MAX_ERROR: Final = 200
NOW_REFUSING: Final = 100  # percent; for a hard budget, its first refusal, whatever was spent by then


@dataclass(frozen=True, slots=True)
class PassedThreshold:
    """A budget's subject has used `threshold_percent` of `amount` in a period; in pico-USD or GPU nanoseconds."""

    budget_id: str
    subject: str
    period_start_ns: int
    threshold_percent: int
    amount: int
    spent: int


def record_event(session: Session, passed: PassedThreshold, at: datetime) -> bool:
    """Record that a threshold was passed. Return False if it was recorded before, or the budget was deleted.

    After an increase of the budget, a threshold may be passed again in the same period: the new event replaces the old
    one.
    """
    webhook_url = session.scalar(select(Budget.webhook_url).where(Budget.id == passed.budget_id))
    if webhook_url is None:
        return False
    insert: Any = insert_into(session, BudgetEvent)
    written = session.scalar(
        insert.values(
            id=f"evt_{uuid7(unix_ns(at)).hex}",
            budget_id=passed.budget_id,
            subject=passed.subject,
            period_start=utc_moment(passed.period_start_ns),
            threshold_percent=passed.threshold_percent,
            at=at,
            amount=Decimal(passed.amount),
            spent=Decimal(passed.spent),
            attempts=0,
            next_attempt_at=at if webhook_url else None,
            last_error="",
        )
        .on_conflict_do_update(
            index_elements=("budget_id", "subject", "period_start", "threshold_percent"),
            set_={
                **{name: insert.excluded[name] for name in ("id", "at", "amount", "spent", "attempts")},
                **{name: insert.excluded[name] for name in ("next_attempt_at", "last_error")},
                "delivered_at": None,
            },
            where=BudgetEvent.amount < insert.excluded.amount,
        )
        .returning(BudgetEvent.id)  # not every database returns the number of rows
    )
    return written is not None


def refusing_budgets(session: Session, since: datetime) -> dict[tuple[str, str, int], int]:
    """Return the hard budgets that refused a request, by budget, subject and period start (Unix ns), with their amount
    then.

    Includes periods that started since a time, and budgets without periods.
    """
    rows = session.execute(
        select(BudgetEvent.budget_id, BudgetEvent.subject, BudgetEvent.period_start, BudgetEvent.amount)
        .join(Budget, Budget.id == BudgetEvent.budget_id)
        .where(
            BudgetEvent.threshold_percent == NOW_REFUSING,
            Budget.is_hard.is_(True),
            or_(BudgetEvent.period_start >= since, Budget.period == "total"),
        )
    )
    return {(budget, subject, unix_ns(start)): int(amount) for budget, subject, start, amount in rows}


def events_of(session: Session, budget_id: str, *, limit: int = 100) -> list[BudgetEvent]:
    """Return the latest `limit` events of a budget, the latest first."""
    of_budget = select(BudgetEvent).where(BudgetEvent.budget_id == budget_id)
    return list(session.scalars(of_budget.order_by(BudgetEvent.at.desc(), BudgetEvent.id.desc()).limit(limit)))


def due_events(session: Session, now: datetime, *, limit: int = 50) -> list[tuple[BudgetEvent, Budget]]:
    """Return events whose webhook is due, longest due first, with their budgets. Budgets without a webhook are left
    out.
    """
    wanted = (
        select(BudgetEvent, Budget)
        .join(Budget, Budget.id == BudgetEvent.budget_id)
        .where(BudgetEvent.next_attempt_at <= now, Budget.webhook_url != "")
        .order_by(BudgetEvent.next_attempt_at, BudgetEvent.id)
        .limit(limit)
    )
    return [(row[0], row[1]) for row in session.execute(wanted)]


def claim_event(session: Session, event_id: str, attempts: int, now: datetime) -> bool:
    """Reserve an event for one attempt; False if another control plane claimed it since it was read.

    If this process ends during the attempt, the event is due again after the wait.
    """
    claimed = session.execute(
        update(BudgetEvent)
        .where(BudgetEvent.id == event_id, BudgetEvent.attempts == attempts, BudgetEvent.next_attempt_at <= now)
        .values(attempts=attempts + 1, next_attempt_at=now + wait_after(attempts + 1))
    )
    return changed_one(claimed)


def finish_event(session: Session, event_id: str, at: datetime) -> None:
    """Mark an event as delivered."""
    session.execute(
        update(BudgetEvent)
        .where(BudgetEvent.id == event_id)
        .values(delivered_at=at, next_attempt_at=None, last_error="")
    )


def fail_event(session: Session, event_id: str, error: str) -> bool:
    """Record why an attempt failed. Return False if it was the last, because the event is a day old."""
    event = session.get(BudgetEvent, event_id)
    if event is None:
        return False
    event.last_error = error[:_MAX_ERROR]
    if event.next_attempt_at is not None and event.next_attempt_at > event.at + _GIVE_UP_AFTER:
        event.next_attempt_at = None
    session.flush()
    return event.next_attempt_at is not None


def wait_after(attempts: int) -> timedelta:
    """Return the wait after this many attempts: 10 s, doubled each time, at most an hour."""
    doubled = 1 << min(attempts - 1, 20)  # bounded: else the wait would exceed a timedelta
    return min(_FIRST_WAIT * doubled, _LONGEST_WAIT)
