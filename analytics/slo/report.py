"""State of objectives: share of good requests, rest of the error budget, burn rates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Final, Literal

from analytics.slo.indicators import count_windows
from backends.store.client import StoreClient
from contracts.rules.objectives import BURN_PAIRS, BURN_WINDOWS, BurnPair, Counts, ErrorBudget, Objective, burning_pairs

Status = Literal["met", "burning", "broken", "no_requests"]
STATUS_WORDS: Final[Mapping[Status, str]] = {
    "met": "met",
    "burning": "burning",
    "broken": "missed",
    "no_requests": "no requests",
}


@dataclass(frozen=True, slots=True)
class ObjectiveState:
    """State of one objective. `counts` is by burn window; `burning` are the exceeded pairs, most urgent first."""

    objective: Objective
    budget: ErrorBudget
    counts: Mapping[timedelta, Counts]
    burning: tuple[BurnPair, ...]

    @property
    def status(self) -> Status:
        """Return the worst state: broken (the budget is used up), burning, or met; no_requests without requests."""
        remaining = self.budget.remaining_share
        if remaining is None:
            return "no_requests"
        if remaining < 0:
            return "broken"
        return "burning" if self.burning else "met"

    def as_json(self) -> dict[str, object]:
        """Return the JSON values that the command line and the HTTP API return. Shares are in percent."""
        objective, counts = self.objective, self.budget.counts
        return {
            "id": objective.id,
            "indicator": objective.indicator,
            "thresholds_ms": {name: format(value, "f") for name, value in objective.thresholds_ms.items()},
            "tenant": objective.tenant or None,
            "model": objective.model or None,
            "route": objective.route or None,
            "prompt_class": objective.prompt_class or None,
            "target_percent": format(objective.target_percent, "f"),
            "window_days": objective.window_days,
            "status": self.status,
            "requests": counts.total,
            "bad_requests": counts.bad,
            "good_percent": _percent(counts.good_share()),
            "budget_requests": float(round(self.budget.allowed, 3)),
            "budget_remaining_percent": _percent(self.budget.remaining_share),
            "burn": [_pair_facts(objective, pair, self.counts, self.burning) for pair in BURN_PAIRS],
        }


def slo_report(store: StoreClient, objectives: Sequence[Objective], now: datetime) -> list[ObjectiveState]:
    """Return the state of objectives, in their order. Raises StoreUnavailable.

    Queries a rollup once for the burn rates' windows and once for each length of error budget.
    """
    counts = count_windows(store, objectives, BURN_WINDOWS, now)
    budgets: dict[str, Counts] = {}
    for days in sorted({objective.window_days for objective in objectives}):
        of_length = [objective for objective in objectives if objective.window_days == days]
        length = timedelta(days=days)
        for objective_id, windows in count_windows(store, of_length, [length], now).items():
            budgets[objective_id] = windows[length]
    return [
        ObjectiveState(
            objective,
            ErrorBudget.of(objective, budgets[objective.id]),
            counts[objective.id],
            burning_pairs(objective, counts[objective.id]),
        )
        for objective in objectives
    ]


def _pair_facts(
    objective: Objective, pair: BurnPair, counts: Mapping[timedelta, Counts], burning: Sequence[BurnPair]
) -> dict[str, object]:
    return {
        "pair": pair.name,
        "severity": pair.severity,
        "long_rate": _rounded(counts[pair.long].burn_rate(objective)),
        "short_rate": _rounded(counts[pair.short].burn_rate(objective)),
        "long_requests": counts[pair.long].total,
        "is_burning": pair in burning,
    }


def _percent(share: Fraction | None) -> float | None:
    return None if share is None else float(round(share * 100, 6))


def _rounded(rate: Fraction | None) -> float | None:
    return None if rate is None else float(round(rate, 4))
