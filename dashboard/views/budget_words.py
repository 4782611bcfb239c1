"""Texts about budgets: their scope, amount and state."""

from collections.abc import Mapping
from typing import Final

from analytics.budget_bars import BudgetBar, State
from contracts.pricing.money import usd
from contracts.rules.limits import EACH, BudgetSpec
from dashboard.formats import UNKNOWN, Formats
from dashboard.panels import Tone

STATE_WORDS: Final[Mapping[State, str]] = {
    "fine": "within its limit",
    "near": "close to its limit",
    "used_up": "used up",
    "not_counting": "inactive",
}
STATE_TONES: Final[Mapping[State, Tone | None]] = {
    "fine": "good",
    "near": "warn",
    "used_up": "bad",
    "not_counting": None,
}
PERIOD_WORDS: Final = {"day": "per day", "week": "per week", "month": "per month", "total": "in all"}


def whom(bar: BudgetBar) -> str:
    """Return a budget's scope: "acme", "acme / team search", "acme / key key_1 (each)"."""
    scope = bar.spec.scope
    subject = bar.subject
    parts = [scope.tenant]
    if scope.level != "tenant":
        parts.append(f"every {scope.level}" if subject == EACH else f"{scope.level} {subject}")
    if scope.model:
        parts.append(scope.model)
    return " / ".join(parts)


def amount(formats: Formats, spec: BudgetSpec, value: int | None) -> str:
    """Format an amount in a budget's unit: money or GPU time."""
    if value is None:
        return UNKNOWN
    return formats.money(usd(value)) if spec.metric == "pico_usd" else f"{formats.duration(value)} GPU"


def allowed(formats: Formats, spec: BudgetSpec) -> str:
    """Return a budget's amount and period: "$50.00 per month, hard"."""
    return f"{amount(formats, spec, spec.amount)} {PERIOD_WORDS[spec.period]}, {'hard' if spec.is_hard else 'soft'}"
