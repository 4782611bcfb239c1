"""Adjusts budgets to the ledger: a budget's spending is the recorded cost since the start of its period.

Gateways count from a budget's creation on. Earlier usage and later corrections are added here as a recount
(`backends/control/budget_recounts.py`), which gateways apply within seconds.
"""

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Final

from analytics.cost.budget_ledger import budget_ledger
from analytics.queries import query
from analytics.rows import number_of, text_of
from backends.control.budget_recounts import recount_budget
from backends.control.changes import Author
from backends.control.current_budgets import CurrentBudget, current_budgets
from backends.control.database import ControlDatabase
from backends.control.rule_scope import is_each
from backends.store.client import StoreClient
from contracts.errors import InvalidRequest
from contracts.recording.moments import utc_moment

_log = logging.getLogger(__name__)
_AUTHOR: Final = "books"
_MOST_SUBJECTS: Final = 10_000  # maximum number of subjects in one recount


class BudgetActuals:
    """Adds to budgets in USD the spending that gateways could not count. A chore of the analytics process.

    A budget is read again at the start of its period, and if its tenant's corrections have changed. Budgets without a
    start (period `total`, no `starts_at`) count from their creation.
    """

    def __init__(self, database: ControlDatabase, store: StoreClient, now: Callable[[], datetime]) -> None:
        self._database = database
        self._store = store
        self._now = now
        self._seen: dict[tuple[str, int], tuple[int, int]] = {}  # corrections at the last read, by budget and period

    def write_due(self, tenants: frozenset[str] | None = None) -> int:
        """Recount the budgets that need it, of all tenants or of `tenants`; return how many changed. Raises
        StoreUnavailable, ControlUnavailable."""
        now = self._now()
        with self._database.session() as session:
            budgets = current_budgets(session, now)
        corrections = {
            text_of(row["tenant_label"]): (number_of(row["entry_count"]), number_of(row["cost_pico_sum"]))
            for row in self._store.query(query("corrections_by_tenant"))
        }
        changed = 0
        for budget in budgets:
            spec, start_ns = budget.spec, budget.start_ns
            is_asked = tenants is None or spec.scope.tenant in tenants
            if spec.metric != "pico_usd" or not start_ns or not is_asked:
                continue
            mine, name = corrections.get(spec.scope.tenant, (0, 0)), (spec.id, start_ns)
            is_known = any(each.recounted is not None for each in budget.spent.values())
            is_whole = budget.created_ns <= start_ns or is_known
            if is_whole and (mine == self._seen.get(name) or (mine == (0, 0) and name not in self._seen)):
                self._seen[name] = mine
                continue
            try:
                changed += self._recount(budget, start_ns, now)
                self._seen[name] = mine
            except InvalidRequest as error:  # gateways have reported less than the store contains; retried
                _log.info("budget_not_recounted", extra={"budget": spec.id, "reason": error.message})
        return changed

    def _recount(self, budget: CurrentBudget, start_ns: int, now: datetime) -> int:
        spec = budget.spec
        ledger = budget_ledger(self._store, spec.scope, start_ns, budget.end_ns, budget.created_ns)
        wanted = {one.subject: one.adjustment for one in ledger}
        if not is_each(spec.scope):
            wanted = {spec.scope.subject: wanted.get(spec.scope.subject, 0)}
        known = {subject: each.recounted for subject, each in budget.spent.items()}
        adjustments = {subject: amount for subject, amount in wanted.items() if known.get(subject) != amount}
        # Subjects whose correction was reversed.
        adjustments |= {name: 0 for name, amount in known.items() if amount and name not in wanted}
        if not adjustments:
            return 0
        most = dict(sorted(adjustments.items(), key=lambda pair: -abs(pair[1]))[:_MOST_SUBJECTS])
        with self._database.session() as session:
            author = Author(_AUTHOR, now)
            start = utc_moment(start_ns)
            recount_budget(session, author, spec.scope.tenant or "", spec.id, start, most, applies=True)
        return 1
