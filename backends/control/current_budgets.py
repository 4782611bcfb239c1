"""Reads all budgets with their usage in the current period, for pages that list them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from backends.control.bounds import visible_rules
from backends.control.budget_states import Spent, with_state
from backends.control.rules import budget_spec
from contracts.control import Budget, BudgetState, Tenant
from contracts.errors import ConfigurationError
from contracts.recording.moments import unix_ns, utc_moment
from contracts.rules.limits import BudgetSpec
from contracts.rules.periods import budget_period


@dataclass(frozen=True, slots=True)
class CurrentBudget:
    """A budget and its current period in Unix nanoseconds; `None` before the budget starts and after it has ended.

    `spent` is by subject; empty if no gateway has reported usage.
    """

    spec: BudgetSpec
    created_ns: int
    start_ns: int | None
    end_ns: int | None
    spent: Mapping[str, Spent]


def current_budgets(session: Session, now: datetime, *, tenant: str = "", team: str = "") -> list[CurrentBudget]:
    """Return the budgets of one tenant, or of one of its teams, or of all tenants, in order of creation.

    Always two queries. Unreadable budgets are left out; gateways report them.
    """
    wanted = select(Budget, Tenant.time_zone).join(Tenant).order_by(Budget.id)
    if tenant:
        wanted = wanted.where(visible_rules(Budget, tenant, team))
    now_ns = unix_ns(now)
    known: list[tuple[BudgetSpec, int, tuple[int, int | None] | None]] = []
    for row, time_zone in session.execute(wanted):
        try:
            spec = budget_spec(row, time_zone)
            known.append((spec, unix_ns(row.created_at), budget_period(spec, now_ns)))
        except ConfigurationError:
            continue
    spent = _spent(session, {spec.id: bounds[0] for spec, _, bounds in known if bounds is not None}, tenant)
    return [
        CurrentBudget(spec, created_ns, bounds and bounds[0], bounds and bounds[1], spent.get(spec.id, {}))
        for spec, created_ns, bounds in known
    ]


def _spent(session: Session, starts_ns: Mapping[str, int], tenant: str) -> dict[str, dict[str, Spent]]:
    """Return what is charged since the start of each budget's period, by budget and subject: the sum over gateways."""
    if not starts_ns:
        return {}
    # As in `load_spending`: the query is bounded by the oldest start; each budget's own period is selected below.
    recent = [start_ns for start_ns in starts_ns.values() if start_ns]
    columns = (BudgetState.budget_id, BudgetState.subject, BudgetState.period_start, BudgetState.settled)
    state = (BudgetState.reserved, BudgetState.overdraft, BudgetState.gateway, BudgetState.updated_at)
    wanted = select(*columns, *state).join(Budget, Budget.id == BudgetState.budget_id)
    if tenant:
        wanted = wanted.where(Budget.tenant_id == tenant)
    if len(recent) == len(starts_ns):  # else a total counts since Unix time began
        wanted = wanted.where(BudgetState.period_start >= utc_moment(min(recent)))
    found: dict[str, dict[str, Spent]] = {}
    for budget_id, subject, period_start, settled, reserved, overdraft, gateway, updated_at in session.execute(wanted):
        if starts_ns.get(budget_id) != unix_ns(period_start):
            continue
        of_budget = found.setdefault(budget_id, {})
        sofar = of_budget.get(subject, Spent())
        amounts = (int(settled), int(reserved), int(overdraft))
        of_budget[subject] = with_state(sofar, gateway, updated_at, *amounts)
    return found
