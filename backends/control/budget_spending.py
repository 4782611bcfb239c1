"""Read the spending of all budgets in recent periods, for alerts."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from backends.control.budget_states import RECOUNT
from backends.control.rules import budget_spec
from contracts.control import Budget, BudgetState, Tenant
from contracts.errors import ConfigurationError
from contracts.recording.moments import unix_ns
from contracts.rules.limits import BudgetSpec
from contracts.rules.periods import budget_period


@dataclass(frozen=True, slots=True)
class BudgetSpending:
    """The usage of one subject of a budget in one period, in the budget's base unit; times in Unix nanoseconds.

    `end_ns` is `None` if the period has no end. `counts_since_ns` is when counting started in it.
    """

    spec: BudgetSpec
    subject: str
    team: str
    start_ns: int
    end_ns: int | None
    counts_since_ns: int
    used: int


def load_spending(session: Session, since: datetime) -> list[BudgetSpending]:
    """Return the usage of all budgets in periods that started since a time; one query for all tenants.

    Unreadable budgets are left out; gateways report them.
    """
    rows = session.execute(
        select(
            BudgetState.budget_id,
            BudgetState.subject,
            BudgetState.period_start,
            BudgetState.settled,
            BudgetState.overdraft,
            BudgetState.gateway,
        )
        .join(Budget, Budget.id == BudgetState.budget_id)
        .where(or_(BudgetState.period_start >= since, Budget.period == "total"))
    )
    used: dict[tuple[str, str, datetime], int] = {}
    from_ledger: set[tuple[str, str, datetime]] = set()
    for budget_id, subject, period_start, settled, overdraft, gateway in rows:  # a row for each gateway
        key = (budget_id, subject, period_start)
        if gateway == RECOUNT:
            from_ledger.add(key)
        used[key] = used.get(key, 0) + int(settled) + int(overdraft)
    budgets = _budgets(session)
    standings = []
    for (budget_id, subject, period_start), amount in used.items():
        known, start_ns = budgets.get(budget_id), unix_ns(period_start)
        bounds = None if known is None else budget_period(known[0], start_ns)
        if known is None or bounds is None:
            continue
        spec, created_ns = known
        team = subject.partition("/")[0] if spec.scope.level in ("team", "project") else ""
        is_whole = (budget_id, subject, period_start) in from_ledger  # includes usage from before the budget's creation
        counts_since_ns = start_ns if is_whole else max(start_ns, created_ns)
        standings.append(BudgetSpending(spec, subject, team, start_ns, bounds[1], counts_since_ns, amount))
    return standings


def _budgets(session: Session) -> dict[str, tuple[BudgetSpec, int]]:
    found: dict[str, tuple[BudgetSpec, int]] = {}
    for budget, time_zone in session.execute(select(Budget, Tenant.time_zone).join(Tenant)):
        try:
            found[budget.id] = (budget_spec(budget, time_zone), unix_ns(budget.created_at))
        except ConfigurationError:
            continue
    return found
