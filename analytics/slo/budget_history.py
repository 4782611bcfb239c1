"""An error budget over its window, by day."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from analytics.query_time import QueryTime
from analytics.slo.indicators import count_windows
from analytics.slo.objective_states import ObjectiveList
from backends.store.client import StoreClient
from contracts.errors import NotFound
from contracts.rules.objectives import Counts


@dataclass(frozen=True, slots=True)
class BudgetPoint:
    """Rest of an error budget at a time: 1 unused, 0 used up, negative overspent; `None` before any request."""

    at: datetime
    counts: Counts
    remaining_share: float | None


@dataclass(frozen=True, slots=True)
class BudgetHistory:
    """The points of one objective, the last of them now. The budget is for all requests of the window."""

    objective_id: str
    points: tuple[BudgetPoint, ...]


def budget_history(store: StoreClient, promised: ObjectiveList, objective_id: str, asked: QueryTime) -> BudgetHistory:
    """Return the history of one objective's error budget, by one query. Raises NotFound, StoreUnavailable."""
    objective = next((each for each in promised.objectives if each.id == objective_id), None)
    if objective is None:
        raise NotFound(f"objective {objective_id!r} does not exist; `tollkeeper slo list` shows those that do")
    days = [timedelta(days=number) for number in range(1, objective.window_days + 1)]
    since = count_windows(store, [objective], days, asked.moment)[objective_id]
    whole = since[days[-1]]
    allowed = whole.total * objective.bad_share
    points = []
    for day in (*reversed(days), timedelta()):
        later = since.get(day, Counts())
        used = Counts(whole.total - later.total, whole.bad - later.bad)
        left = float(1 - used.bad / allowed) if used.total else None
        points.append(BudgetPoint(asked.moment - day, used, left))
    return BudgetHistory(objective_id, tuple(points))
