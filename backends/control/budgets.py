"""Budgets in the control database: create, list, change, delete. Their spending is in `budget_states`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from sqlalchemy import select
from sqlalchemy.orm import Session

from backends.control.alert_rules import check_channels
from backends.control.book_periods import needs_two_people
from backends.control.bounds import refuse_beyond_bounds, visible_rules
from backends.control.budget_events import PassedThreshold, record_event
from backends.control.budget_states import (
    GatewayState,
    Spent,
    forget_states,
    publish_states,
    spent_of,
    states_of,
)
from backends.control.changes import Author, begin_change
from backends.control.organisation import get_tenant
from backends.control.people import is_same_person
from backends.control.row_names import row_name
from backends.control.rule_scope import checked_scope
from backends.control.rules import budget_spec
from contracts.access.person import person_of
from contracts.control import Budget
from contracts.errors import ConfigurationError, Conflict, InvalidRequest, NotFound
from contracts.recording.ids import uuid7
from contracts.recording.moments import unix_ns
from contracts.rules.limits import BudgetSpec
from contracts.rules.periods import budget_period
from contracts.rules.rule_words import amount_text

__all__ = [
    "BudgetChange",
    "GatewayState",
    "NewBudget",
    "PassedThreshold",
    "Spent",
    "create_budget",
    "delete_budget",
    "forget_states",
    "get_budget",
    "list_budgets",
    "publish_states",
    "record_event",
    "spec_of",
    "spent_of",
    "states_of",
    "update_budget",
]


@dataclass(frozen=True, slots=True)
class NewBudget:
    """A budget to create, with either `amount_usd` or `gpu_milliseconds`."""

    tenant_id: str
    level: str
    period: str
    amount_usd: Decimal | None = None
    gpu_milliseconds: int | None = None
    subject: str = ""
    model: str = ""
    is_hard: bool = True
    thresholds: Sequence[int] = ()  # percent
    channels: Sequence[str] = ()  # alert channels that thresholds notify, by id
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    webhook_url: str = ""
    when_away: str = "refuse"
    when_unpriced: str = "refuse"
    id: str = ""  # empty: generated


@dataclass(frozen=True, slots=True)
class BudgetChange:
    """New values for a budget; `None` leaves one unchanged. `is_endless` removes its end."""

    amount_usd: Decimal | None = None
    gpu_milliseconds: int | None = None
    is_hard: bool | None = None
    thresholds: Sequence[int] | None = None
    channels: Sequence[str] | None = None
    ends_at: datetime | None = None
    is_endless: bool = False
    webhook_url: str | None = None
    when_away: str | None = None
    when_unpriced: str | None = None


def create_budget(session: Session, author: Author, new: NewBudget) -> Budget:
    """Add a budget.

    Raises NotFound on an unknown tenant or channel; InvalidRequest if a field is unknown, out of range, in the past or
    contradicts the others.
    """
    budget_id = new.id or f"bud_{uuid7(unix_ns(author.at)).hex}"
    entry = begin_change(session, author, "budget.create", f"{new.tenant_id}/{budget_id}")
    scope = checked_scope(session, new.tenant_id, new.level, new.subject, new.model)
    refuse_beyond_bounds(session, author, scope.level, scope.subject)
    if new.id and session.get(Budget, new.id) is not None:
        raise Conflict(f"a budget {new.id!r} exists already; choose another id", param="id")
    row = Budget(
        id=budget_id,
        tenant_id=new.tenant_id,
        level=scope.level,
        subject=scope.subject,
        model=scope.model,
        period=new.period,
        amount_usd=new.amount_usd,
        gpu_milliseconds=new.gpu_milliseconds,
        is_hard=new.is_hard,
        thresholds=list(new.thresholds),
        channels=list(new.channels),
        starts_at=new.starts_at,
        ends_at=new.ends_at,
        webhook_url=new.webhook_url,
        when_away=new.when_away,
        when_unpriced=new.when_unpriced,
        created_at=author.at,
        updated_at=author.at,
    )
    _checked_spec(session, row)
    _check_end(row, author.at)
    check_channels(session, author, new.tenant_id, new.channels)
    session.add(row)
    entry.detail = {**_scope_detail(row), "after": _values(row)}
    session.flush()
    return row


def list_budgets(
    session: Session, tenant_id: str, *, after: str = "", limit: int = 100, team_id: str = ""
) -> list[Budget]:
    """Return up to `limit` budgets of a tenant after an id, oldest first; of one team if it is named.

    Raises NotFound on the tenant.
    """
    get_tenant(session, tenant_id)
    wanted = select(Budget).where(visible_rules(Budget, tenant_id, team_id), Budget.id > after)
    return list(session.scalars(wanted.order_by(Budget.id).limit(limit)))


def get_budget(session: Session, tenant_id: str, budget_id: str, *, team_id: str = "") -> Budget:
    """Return a budget of this tenant, and of one team if it is named. Raises NotFound, also for any other's."""
    get_tenant(session, tenant_id)
    of_it = (Budget.id == budget_id, visible_rules(Budget, tenant_id, team_id))
    row = session.scalars(select(Budget).where(*of_it)).first()
    if row is None:
        raise NotFound(f"tenant {tenant_id!r} has no budget {budget_id!r}", rows=[row_name(Budget, budget_id)])
    return row


def spec_of(session: Session, row: Budget) -> BudgetSpec:
    """Return the budget in a row, in its tenant's time zone. Raises ConfigurationError if it is invalid."""
    return budget_spec(row, get_tenant(session, row.tenant_id).time_zone)


def update_budget(session: Session, author: Author, tenant_id: str, budget_id: str, change: BudgetChange) -> Budget:
    """Change a budget; its counts stay.

    If two people are needed, a change that loosens a hard budget is a proposal: the budget is unchanged until another
    person sends the same change. Raises as `create_budget` does, and Conflict if the amount would fall below the
    spending of this period, or the same person sends the change twice.
    """
    entry = begin_change(session, author, "budget.update", f"{tenant_id}/{budget_id}")
    row = get_budget(session, tenant_id, budget_id)
    refuse_beyond_bounds(session, author, row.level, row.subject)
    before = _values(row)
    check_channels(session, author, tenant_id, change.channels or ())
    with session.no_autoflush:  # the change must not be written before it is checked
        _apply(row, change)
        row.updated_at = author.at
        spec = _checked_spec(session, row)
        if change.ends_at is not None:
            _check_end(row, author.at)
        if change.amount_usd is not None or change.gpu_milliseconds is not None:
            _refuse_below_spent(session, spec, author.at)
        after = _values(row)
        if (
            _is_loosened(before, after)
            and needs_two_people(session)
            and not _is_confirmed(session, row, author, before, after)
        ):
            session.refresh(row)
            row.proposal, row.proposed_by = _asked(before, after), author.name
            entry.detail = {**_scope_detail(row), "before": before, "after": after, "is_proposal": True}
            session.flush()
            return row
        row.proposal, row.proposed_by = {}, ""
    entry.detail = {**_scope_detail(row), "before": before, "after": after}
    session.flush()
    return row


def _is_loosened(before: Mapping[str, object], after: Mapping[str, object]) -> bool:
    """Return whether a change of a hard budget permits more spending: a higher amount, an earlier end, or making it
    soft.
    """
    if not before["is_hard"]:
        return False
    is_raised = any(
        Decimal(str(after[name])) > Decimal(str(before[name]))
        for name in ("amount_usd", "gpu_milliseconds")
        if before[name] is not None
    )
    ends, ended = after["ends_at"], before["ends_at"]
    is_ended = ends is not None and (ended is None or str(ends) < str(ended))
    return is_raised or is_ended or not after["is_hard"]


def _is_confirmed(
    session: Session, row: Budget, author: Author, before: Mapping[str, object], after: Mapping[str, object]
) -> bool:
    if row.proposal != _asked(before, after):
        return False
    if is_same_person(session, row.proposed_by, author.name):
        person = person_of(row.proposed_by)
        raise Conflict(f"{person} asked for it; another person must make the same change of budget {row.id!r}")
    return True


def _asked(before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, object]:
    """Return a change's requested values, with amounts without trailing zeros."""
    amount = {} if after["amount_usd"] is None else {"amount_usd": f"{Decimal(str(after['amount_usd'])).normalize():f}"}
    return {name: amount.get(name, after[name]) for name in after if after[name] != before[name]}


def delete_budget(session: Session, author: Author, tenant_id: str, budget_id: str) -> None:
    """Remove a budget with its states and events. Raises NotFound, Conflict on a hard one if two people are needed."""
    entry = begin_change(session, author, "budget.delete", f"{tenant_id}/{budget_id}")
    row = get_budget(session, tenant_id, budget_id)
    refuse_beyond_bounds(session, author, row.level, row.subject)
    if row.is_hard and needs_two_people(session):
        raise Conflict(
            f"budget {budget_id!r} is hard, and changes that loosen it need two people: make it soft first "
            f"(`tollkeeper budgets set {budget_id} --soft`, by one and then another), then delete it"
        )
    entry.detail = {**_scope_detail(row), "before": _values(row)}
    session.delete(row)
    session.flush()


def _apply(row: Budget, change: BudgetChange) -> None:
    for name, other in (("amount_usd", "gpu_milliseconds"), ("gpu_milliseconds", "amount_usd")):
        if getattr(change, name) is not None and getattr(row, name) is None:
            raise InvalidRequest(
                f"budget {row.id!r} is in {other} and cannot change to {name}; make another one", param=name
            )
    for name in ("amount_usd", "gpu_milliseconds", "is_hard", "ends_at", "webhook_url", "when_away", "when_unpriced"):
        value = getattr(change, name)
        if value is not None:
            setattr(row, name, value)
    if change.thresholds is not None:
        row.thresholds = list(change.thresholds)
    if change.channels is not None:
        row.channels = list(change.channels)
    if change.is_endless:
        row.ends_at = None


def _checked_spec(session: Session, row: Budget) -> BudgetSpec:
    try:
        return spec_of(session, row)
    except ConfigurationError as error:
        # Without the id, which is unknown to the caller who creates a budget.
        amount_field = "gpu_milliseconds" if row.amount_usd is None else "amount_usd"
        field = amount_field if error.param in (None, "amount", "metric") else error.param
        raise InvalidRequest(error.fault, param=field) from error


def _check_end(row: Budget, now: datetime) -> None:
    if row.ends_at is not None and row.ends_at <= now:
        raise InvalidRequest(
            f"ends_at is {row.ends_at.isoformat()}, which is past: the budget would never hold; "
            "name a later moment, or delete the budget",
            param="ends_at",
        )


def _refuse_below_spent(session: Session, spec: BudgetSpec, now: datetime) -> None:
    bounds = budget_period(spec, unix_ns(now))
    if bounds is None:
        return
    spent = spent_of(session, spec.id, bounds[0])
    subject, most = max(
        ((subject, each.total) for subject, each in spent.items()), key=lambda pair: pair[1], default=("", 0)
    )
    if spec.amount < most:
        whom = f" by {subject!r}" if subject else ""
        raise Conflict(
            f"the budget would be {amount_text(spec.metric, spec.amount)}, but {amount_text(spec.metric, most)} are "
            f"spent{whom} in this period already; set at least that, or delete the budget",
            param="amount_usd" if spec.metric == "pico_usd" else "gpu_milliseconds",
        )


def _scope_detail(row: Budget) -> dict[str, object]:
    return {"level": row.level, "subject": row.subject, "model": row.model, "period": row.period}


def _values(row: Budget) -> dict[str, object]:
    # Only whether a webhook is set: its URL may contain a secret.
    return {
        "amount_usd": None if row.amount_usd is None else format(row.amount_usd, "f"),
        "gpu_milliseconds": row.gpu_milliseconds,
        "is_hard": row.is_hard,
        "thresholds": list(row.thresholds),
        "channels": list(row.channels),
        "starts_at": None if row.starts_at is None else row.starts_at.isoformat(),
        "ends_at": None if row.ends_at is None else row.ends_at.isoformat(),
        "has_webhook": bool(row.webhook_url),
        "when_away": row.when_away,
        "when_unpriced": row.when_unpriced,
    }
