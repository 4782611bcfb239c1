"""The current state of budgets as bars: share used, forecast, and urgency."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from sqlalchemy.orm import Session

from analytics.query_time import QueryTime
from backends.control.budget_states import Spent
from backends.control.current_budgets import CurrentBudget, current_budgets
from backends.control.rule_scope import is_each
from contracts.recording.moments import unix_ns, utc_moment
from contracts.rules.limits import BudgetSpec
from contracts.rules.periods import budget_outlook

State = Literal["fine", "near", "used_up", "not_counting"]

NEAR_PERCENT: Final = 80  # share of the amount: the first default threshold of alerts
_MOST_SUBJECTS: Final = 5  # maximum number of subjects of a per-subject budget, those with most usage


@dataclass(frozen=True, slots=True)
class BudgetBar:
    """One subject's state in a budget. Amounts are in the budget's base unit: pico-USD or GPU nanoseconds.

    `subject`: who is counted; "" for the whole tenant. `projected`: forecast for the period at the mean rate since its
    start; `None` without an end, and in the first tenth of the period. `exhausted_at`: when the amount will be used up;
    `None` if not in this period or unknown. `reported_at`: time of the gateways' last report; `None` if there is none.
    """

    spec: BudgetSpec
    subject: str
    used: int
    reserved: int
    period_start: datetime | None
    period_end: datetime | None
    projected: int | None
    exhausted_at: datetime | None
    reported_at: datetime | None

    @property
    def used_share(self) -> float:
        """Return the used share of the amount; above 1 if a soft budget is overspent."""
        return self.used / self.spec.amount

    @property
    def projected_share(self) -> float | None:
        """Return the projected share of the amount; `None` if there is no forecast."""
        return None if self.projected is None else self.projected / self.spec.amount

    @property
    def state(self) -> State:
        """Return the budget's state; `near` from 80 % on, or if the forecast exceeds the amount."""
        if self.period_start is None:
            return "not_counting"
        if self.used >= self.spec.amount:
            return "used_up"
        will_exceed = self.projected is not None and self.projected > self.spec.amount
        return "near" if will_exceed or self.used * 100 >= self.spec.amount * NEAR_PERCENT else "fine"


def budget_bars(
    session: Session, asked: QueryTime, tenant: str | None = None, team: str | None = None
) -> tuple[BudgetBar, ...]:
    """Return the bars of one tenant, of one of its teams, or of all tenants, highest usage first.

    A per-subject budget has bars for the five subjects with most usage; a budget without usage has an empty bar.
    """
    now_ns = unix_ns(asked.moment)
    found = current_budgets(session, asked.moment, tenant=tenant or "", team=team or "")
    bars = [bar for budget in found for bar in _bars(budget, now_ns)]
    ordered = sorted(bars, key=lambda bar: (bar.state == "not_counting", -bar.used_share, bar.spec.id, bar.subject))
    return tuple(ordered)


def _bars(budget: CurrentBudget, now_ns: int) -> Iterator[BudgetBar]:
    spent = dict(budget.spent)
    if not is_each(budget.spec.scope):
        spent = {budget.spec.scope.subject: spent.get(budget.spec.scope.subject, Spent())}
    elif not spent:
        spent = {budget.spec.scope.subject: Spent()}
    most = sorted(spent.items(), key=lambda pair: (-pair[1].total, pair[0]))[:_MOST_SUBJECTS]
    for subject, each in most:
        yield _bar(budget, subject, each, now_ns)


def _bar(budget: CurrentBudget, subject: str, spent: Spent, now_ns: int) -> BudgetBar:
    if budget.start_ns is None:
        return BudgetBar(budget.spec, subject, 0, 0, None, None, None, None, None)
    since_ns = budget.start_ns if spent.recounted is not None else budget.created_ns
    outlook = budget_outlook(budget.spec.amount, spent.total, budget.start_ns, since_ns, now_ns, budget.end_ns)
    return BudgetBar(
        budget.spec,
        subject,
        spent.total,
        spent.reserved,
        _moment(budget.start_ns),
        _moment(budget.end_ns),
        outlook.projected,
        _moment(outlook.exhausted_at_ns),
        spent.since,
    )


def _moment(nanoseconds: int | None) -> datetime | None:
    if nanoseconds is None:
        return None
    try:
        return utc_moment(nanoseconds)
    except OverflowError:  # beyond the range of datetime
        return None
