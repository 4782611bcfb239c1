"""A shortage becomes the answer to the caller: which limit, whose, its value, what is used, when to come back."""

from decimal import Decimal
from typing import Final

from contracts.errors import BudgetExhausted, CountersUnavailable, LimitExceeded, TollkeeperError
from contracts.limits import BudgetSpec, Metric, Rule
from contracts.money import usd
from gateway.limits.base import Shortage

# A client told to wait longer than this had better tell its user: the SDKs' automatic retries are called off.
_LONGEST_RETRY_SECONDS: Final = 120.0
_NANOSECONDS_PER_MILLISECOND: Final = 1_000_000
_UNITS: Final[dict[Metric, str]] = {
    "requests": "requests",
    "input_tokens": "input tokens",
    "output_tokens": "output tokens",
    "tokens": "tokens",
    "concurrency": "concurrent requests",
    "gpu_ns": "GPU milliseconds",
    "pico_usd": "USD",
}


def refusal_of(shortage: Shortage) -> TollkeeperError:
    """Give the error for a request that may not begin. Raises nothing."""
    counter = shortage.counter
    if shortage.reason:
        return CountersUnavailable(
            f"{describe(counter.rule, counter.subject)}: {shortage.reason}", retry_after_seconds=shortage.wait_seconds
        )
    state, metric = shortage.state, counter.rule.metric
    message = (
        f"{describe(counter.rule, counter.subject)} is reached: {in_units(metric, state.used)} of "
        f"{in_units(metric, state.amount)} {_UNITS[metric]} used{_per(counter.rule)}, "
        f"{in_units(metric, shortage.asked)} more asked for; {_when(shortage)}"
    )
    wait = shortage.wait_seconds
    should_retry = False if wait is None or wait > _LONGEST_RETRY_SECONDS else None
    if isinstance(counter.rule, BudgetSpec):
        return BudgetExhausted(message, retry_after_seconds=wait, should_retry=should_retry)
    return LimitExceeded(message, retry_after_seconds=wait, should_retry=should_retry)


def describe(rule: Rule, subject: str) -> str:
    """Name a rule and whom it counts: "limit 'lim_1' (level key 'key_7', model 'small')"."""
    kind = "budget" if isinstance(rule, BudgetSpec) else "limit"
    scope = rule.scope
    whom = f"level {scope.level}" + (f" {subject[:80]!r}" if subject else "")
    return f"{kind} {rule.id!r} ({whom}{f', model {scope.model!r}' if scope.model else ''})"


def in_units(metric: Metric, amount: int) -> str:
    """Give an amount as people read it: USD with its decimals, GPU time in milliseconds, else the number."""
    if metric == "pico_usd":
        return format(usd(amount).normalize(), "f")
    if metric == "gpu_ns":
        return format((Decimal(amount) / _NANOSECONDS_PER_MILLISECOND).normalize(), "f")
    return str(amount)


def _per(rule: Rule) -> str:
    if isinstance(rule, BudgetSpec):
        return " in all" if rule.period == "total" else f" this {rule.period}"
    if rule.window is not None:
        return f" in a {rule.window}"
    return " at once" if rule.metric == "concurrency" else " in this conversation"


def _when(shortage: Shortage) -> str:
    wait = shortage.wait_seconds
    if wait is None:
        rule = shortage.counter.rule
        if shortage.asked > shortage.state.amount:
            return "this is more than it ever allows; ask for less, or have it raised"
        return "it does not reset; have it raised" if isinstance(rule, BudgetSpec) else "begin a new one"
    return f"try again in {wait:.3f} s" + (", when a place is kept for you" if shortage.is_held else "")
