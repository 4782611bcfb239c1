"""Recounts of budgets: the difference between the ledger's spending and the gateways' counts.

A recount is stored as an additional gateway state, so that sums include it; gateways receive it with the budget
(`BudgetSpec.adjustments`). It is the whole difference for a period, so repeating a recount changes nothing, and later
counts of gateways are added to it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from backends.control.bounds import refuse_beyond_bounds
from backends.control.budget_states import RECOUNT, GatewayState, Spent, publish_states, spent_of
from backends.control.budgets import get_budget, spec_of
from backends.control.changes import Author, begin_change
from backends.control.rule_scope import is_each
from contracts.control import BudgetState
from contracts.errors import Conflict, InvalidRequest
from contracts.recording.moments import unix_ns, utc_moment
from contracts.rules.periods import budget_period
from contracts.rules.rule_words import exact_text


@dataclass(frozen=True, slots=True)
class Recounted:
    """The recount of one subject of a budget, in the budget's base unit. `adjustment` is, or would be, in force."""

    subject: str
    spent_before: int
    spent_after: int
    adjustment: int


def recount_budget(
    session: Session,
    author: Author,
    tenant_id: str,
    budget_id: str,
    period_start: datetime,
    adjustments: Mapping[str, int],
    *,
    applies: bool,
) -> list[Recounted]:
    """Set the difference to the gateways' counts, by subject; without `applies`, only compute it.

    Raises NotFound as `get_budget` does, Conflict if another period has started, and InvalidRequest for a budget of GPU
    time or if a subject's spending would be below zero.
    """
    if applies:
        entry = begin_change(session, author, "budget.recount", f"{tenant_id}/{budget_id}")
    row = get_budget(session, tenant_id, budget_id, team_id=author.team_id)
    refuse_beyond_bounds(session, author, row.level, row.subject)
    spec = spec_of(session, row)
    if spec.metric != "pico_usd":
        raise InvalidRequest(
            f"budget {budget_id!r} is in GPU milliseconds, and only budgets in USD can be recounted: records do not "
            "say what was charged of GPU time",
            param="budget_id",
        )
    bounds = budget_period(spec, unix_ns(author.at))
    start_ns = unix_ns(period_start)
    if bounds is None or bounds[0] != start_ns:
        now = "it counts nothing now" if bounds is None else f"its period began at {utc_moment(bounds[0]).isoformat()}"
        raise Conflict(
            f"the recount is for the period from {period_start.isoformat()}, and budget {budget_id!r} is in another: "
            f"{now}; compute the recount again",
            param="period_start",
        )
    unknown = sorted(adjustments.keys() - {spec.scope.subject}) if not is_each(spec.scope) else []
    if unknown:
        raise InvalidRequest(
            f"budget {budget_id!r} counts subject {spec.scope.subject!r}, not {unknown[0]!r}", param="subjects"
        )
    spent = spent_of(session, budget_id, start_ns)
    before = _adjustments_of(session, budget_id, start_ns)
    found = []
    for subject, adjustment in sorted(adjustments.items()):
        spent_before = spent.get(subject, Spent()).settled
        spent_after = spent_before - before.get(subject, 0) + adjustment
        if spent_after < 0:
            raise InvalidRequest(
                f"subject {subject!r} would have spent {exact_text(spec.metric, spent_after)} USD, which is below 0; "
                "gateways have reported less than the store holds: try again in a few seconds",
                param="subjects",
            )
        found.append(Recounted(subject, spent_before, spent_after, adjustment))
    if applies:
        states = [GatewayState(budget_id, one.subject, start_ns, one.adjustment) for one in found]
        publish_states(session, RECOUNT, states, author.at)
        entry.detail = {
            "period_start": period_start.isoformat(),
            "subjects": [
                {
                    "subject": one.subject,
                    "spent_before": exact_text(spec.metric, one.spent_before),
                    "spent_after": exact_text(spec.metric, one.spent_after),
                    "adjustment": exact_text(spec.metric, one.adjustment),
                }
                for one in found
            ],
        }
        session.flush()
    return found


def _adjustments_of(session: Session, budget_id: str, start_ns: int) -> dict[str, int]:
    wanted = select(BudgetState.subject, BudgetState.settled).where(
        BudgetState.budget_id == budget_id,
        BudgetState.period_start == utc_moment(start_ns),
        BudgetState.gateway == RECOUNT,
    )
    return {subject: int(settled) for subject, settled in session.execute(wanted)}
