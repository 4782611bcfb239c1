"""Turns a shortage into the error for the caller: which limit, whose, its value, its usage, when to retry."""

from typing import Final

from contracts.errors import BudgetExhausted, CountersUnavailable, LimitExceeded, TollkeeperError
from contracts.rules.limits import BudgetSpec, Rule
from contracts.rules.metrics import KIND_OF_METRIC
from contracts.rules.rule_words import exact_text
from gateway.limits.counters.base import Shortage
from gateway.limits.headers import duration

# Above this wait the SDKs' automatic retries are switched off, so that the application can inform its user.
_LONGEST_RETRY_SECONDS: Final = 120.0


def refusal_of(shortage: Shortage) -> TollkeeperError:
    """Return the error for a request that cannot start now."""
    counter = shortage.counter
    if shortage.reason:
        return CountersUnavailable(
            f"{describe(counter.rule, counter.subject)}: {shortage.reason}", retry_after_seconds=shortage.wait_seconds
        )
    message = f"{describe(counter.rule, counter.subject)} {_why(shortage)}"
    wait = shortage.wait_seconds
    should_retry = False if wait is None or wait > _LONGEST_RETRY_SECONDS else None
    if isinstance(counter.rule, BudgetSpec):
        return BudgetExhausted(message, retry_after_seconds=wait, should_retry=should_retry)
    return LimitExceeded(message, retry_after_seconds=wait, should_retry=should_retry)


def describe(rule: Rule, subject: str) -> str:
    """Return the name of a rule and what it covers: "limit 'lim_1' (level key 'key_7', model 'small')"."""
    kind = "budget" if isinstance(rule, BudgetSpec) else "limit"
    scope = rule.scope
    whom = f"level {scope.level}" + (f" {subject[:80]!r}" if subject else "")
    return f"{kind} {rule.id!r} ({whom}{f', model {scope.model!r}' if scope.model else ''})"


def _why(shortage: Shortage) -> str:
    """Return what is used and when there will be room, or that the request can never fit."""
    state, rule = shortage.state, shortage.counter.rule
    amount, asked = exact_text(rule.metric, state.amount), exact_text(rule.metric, shortage.asked)
    unit, per = KIND_OF_METRIC[rule.metric].unit, _per(rule)
    least = f", the least for {shortage.choices} choices" if shortage.choices else ""
    remedy = _remedy(shortage)
    is_too_much = shortage.wait_seconds is None and shortage.asked > state.amount
    if is_too_much and (rule.is_windowed or not state.used):
        return (
            f"allows {amount} {unit}{per}; this request needs {asked}{least}, which can never fit; "
            f"{remedy}, or ask an administrator to raise it"
        )
    used = f"{exact_text(rule.metric, state.used)} of {amount} {unit} used{per}"
    return f"is reached: {used}, requested {asked} more{least}{_withheld(shortage)}; {_when(shortage)}"


def _remedy(shortage: Shortage) -> str:
    return "request fewer choices" if shortage.choices else "request less"


def _per(rule: Rule) -> str:
    if isinstance(rule, BudgetSpec):
        return " in all" if rule.period == "total" else f" this {rule.period}"
    if rule.window is not None:
        return f" in a {rule.window}"
    return " at once" if rule.metric == "concurrency" else " in this conversation"


def _withheld(shortage: Shortage) -> str:
    """Return a note that the remaining room is reserved for other gateways or refused requests; else empty."""
    state, share = shortage.state, shortage.share
    if share is not None:
        share_text = exact_text(shortage.counter.rule.metric, share)
        return f"; this gateway's share is {share_text} while the shared counters are unavailable"
    is_free = state.used + shortage.asked <= state.amount
    return "; the rest is reserved for earlier requests that were told to retry" if is_free else ""


def _when(shortage: Shortage) -> str:
    wait = shortage.wait_seconds
    if wait is None:
        rule = shortage.counter.rule
        if shortage.asked > shortage.state.amount:
            return f"this can never fit; {_remedy(shortage)}, or ask an administrator to raise it"
        if isinstance(rule, BudgetSpec):
            return "it does not reset; ask an administrator to raise it"
        return "start a new conversation"
    return f"retry after {duration(wait).decode()}" + (" (capacity reserved for you)" if shortage.is_held else "")
