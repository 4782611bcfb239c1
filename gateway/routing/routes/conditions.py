"""Whether a route's entry may be used for a request, and if not, why not."""

from datetime import datetime
from typing import Final

from contracts.pricing.money import usd
from contracts.rules.periods import zone_of
from contracts.serving.configuration import ModelSpec
from contracts.serving.routes import ALWAYS, ANY_VALUE, DAYS, Condition, Hours
from gateway.routing.routes.facts import ModelState, Reading, RequestFacts

_SECOND_NS: Final = 1_000_000_000


def why_not(condition: Condition, asked: RequestFacts) -> str:
    """Return which part of a condition the request does not meet, apart from models; empty if it meets all."""
    if condition is ALWAYS:
        return ""
    if condition.tenants and asked.tenant not in condition.tenants:
        return f"tenant {asked.tenant!r} is not among its tenants"
    for name, wanted in condition.tags.items():
        value = asked.tags.get(name)
        if value is None or wanted not in (ANY_VALUE, value):
            return f"tag {name}={wanted} is not on the request"
    if condition.regions and asked.region not in condition.regions:
        return f"the gateway is in region {asked.region or 'unknown'!r}, not in {', '.join(condition.regions)}"
    if condition.days or condition.hours:
        return _why_not_now(condition, asked.at_ns)
    return ""


def why_not_read(condition: Condition, reading: Reading) -> str:
    """Return which condition on intent or complexity the prompt does not meet; empty if it meets all."""
    if condition.intent is not None and condition.intent != reading.intent:
        return f"the prompt's intent is {reading.intent or 'none'}, not {condition.intent}"
    if condition.complexity is not None and condition.complexity != reading.complexity:
        return f"the prompt's complexity is {reading.complexity or 'unknown'}, not {condition.complexity}"
    return ""


def why_not_there(condition: Condition, model: ModelSpec, standing: ModelState) -> str:
    """Return which part of a condition the model does not meet now, apart from latency; empty if it meets all.

    Unknown values exclude nothing, except the cost: a model without a price does not count as cheap.
    """
    low, high = condition.min_prompt_tokens, condition.max_prompt_tokens
    if low is not None or high is not None:
        tokens = standing.prompt_tokens(model)
        if tokens is not None and low is not None and tokens < low:
            return f"the prompt has {tokens} tokens; min_prompt_tokens is {low}"
        if tokens is not None and high is not None and tokens > high:
            return f"the prompt has {tokens} tokens; max_prompt_tokens is {high}"
    if condition.min_budget_left is not None:
        left = standing.budget_left(model)
        if left is not None and left < condition.min_budget_left:
            return f"a budget has {left:.0%} left; min_budget_left is {condition.min_budget_left:.0%}"
    most = condition.max_cost_pico_usd
    if most is not None:
        cost = standing.cost_pico_usd(model)
        if cost is None:
            return "the model has no price, and max_cost_usd bounds it"
        if cost > most:
            return f"it may cost {usd(cost).normalize():f} USD; max_cost_usd is {condition.max_cost_usd}"
    return ""


def why_too_slow(condition: Condition, model: ModelSpec, standing: ModelState) -> str:
    """Return why the model's recent times to first token violate a condition; empty if they do not."""
    objective_ms = condition.ttft_objective_ms
    if objective_ms is None:
        return ""
    bound_ms, ttft_seconds = objective_ms * (1 - (condition.slo_headroom or 0)), standing.ttft_seconds(model)
    if ttft_seconds is None or ttft_seconds * 1000 <= bound_ms:
        return ""
    return f"its time to first token is {ttft_seconds * 1000:.0f} ms; the objective allows {bound_ms:.0f} ms"


def _why_not_now(condition: Condition, at_ns: int) -> str:
    local = datetime.fromtimestamp(at_ns // _SECOND_NS, zone_of(condition.time_zone))
    if condition.days and DAYS[local.weekday()] not in condition.days:
        return f"it is {DAYS[local.weekday()]} in {condition.time_zone}; its days are {', '.join(condition.days)}"
    if condition.hours and not Hours.parse(condition.hours).holds_at(local.hour * 60 + local.minute):
        return f"it is {local:%H:%M} in {condition.time_zone}; its hours are {condition.hours}"
    return ""
