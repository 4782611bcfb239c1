"""One-line texts about objects, for tables and messages of commands."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from contracts.errors import ConfigurationError
from contracts.pricing.money import pico_usd
from contracts.rules.metrics import KIND_OF_WORD, MetricWord
from contracts.rules.rule_words import amount_text, base_amount, exact_text


def plain_usd(amount_usd: str) -> str:
    """Return an amount of USD exactly, without trailing zeros: "0.000001", "50"."""
    return exact_text("pico_usd", pico_usd(Decimal(amount_usd)))


def scope_text(rule: Mapping[str, Any]) -> str:
    """Return a rule's scope, as in refusals: "level key '*', model 'small'"."""
    whom = f"level {rule['level']}" + (f" {rule['subject']!r}" if rule["subject"] else "")
    return f"{whom}, model {rule['model']!r}" if rule["model"] else whom


def limit_allows(limit: Mapping[str, Any]) -> str:
    """Return a limit's amount and window: "120000 tokens per minute"."""
    word: MetricWord = limit["metric"]
    in_usd = None if limit["amount_usd"] is None else Decimal(limit["amount_usd"])
    amount = amount_text(KIND_OF_WORD[word].name, base_amount(word, limit["amount"], in_usd))
    return amount + (f" per {limit['window']}" if limit["window"] else "")


def budget_allows(budget: Mapping[str, Any]) -> str:
    """Return a budget's amount and period: "50 USD per month, hard"."""
    in_usd = budget["amount_usd"]
    amount = f"{plain_usd(in_usd)} USD" if in_usd is not None else f"{budget['gpu_milliseconds']} GPU milliseconds"
    per = "in all" if budget["period"] == "total" else f"per {budget['period']}"
    return f"{amount} {per}, {'hard' if budget['is_hard'] else 'soft'}"


def leads_to(route: Mapping[str, Any]) -> str:
    """Return the models and routes that a route leads to: "a, b; then c"."""
    rules = route["rules"]
    names = [str(entry.get("model") or entry.get("route")) for entry in rules.get("choose", [])]
    behind = [str(entry.get("model") or entry.get("route")) for entry in rules.get("fallbacks", [])]
    return ", ".join(names) + (f"; then {', '.join(behind)}" if behind else "")


def objective(slo: Mapping[str, Any]) -> str:
    """Return an objective as one line: "99.9 % ttft (ttft <= 500 ms) in 28 days"."""
    times = ", ".join(f"{name} <= {value} ms" for name, value in slo["thresholds_ms"].items())
    what = f"{slo['indicator']} ({times})" if times else str(slo["indicator"])
    return f"{slo['target_percent']} % {what} in {slo['window_days']} days"


def objective_scope(slo: Mapping[str, Any]) -> str:
    """Return an objective's scope: "tenant acme, model small", or "all requests"."""
    names = {"tenant": "tenant_id", "model": "model", "route": "route", "prompts": "prompt_class"}
    return ", ".join(f"{name} {slo[field]}" for name, field in names.items() if slo[field]) or "all requests"


def usd_per_mtok(rates: Mapping[str, str]) -> str:
    """Return prices as one line: "input_text=0.15 output_text=0.6"."""
    return " ".join(f"{leaf}={format(Decimal(price).normalize(), 'f')}" for leaf, price in rates.items())


def stages(guardrail: Mapping[str, Any]) -> str:
    """Return a guardrail's stages as one line: "cards (both pii: redact)"."""
    return ", ".join(
        f"{stage['name']} ({stage.get('direction', 'input')} {stage['detector']}: "
        f"{stage.get('action', 'block')}{', dry' if stage.get('dry_run') else ''})"
        for stage in guardrail["rules"]["stages"]
    )


def role_of(user: Mapping[str, Any]) -> str:
    """Return a role with its scope: "admin of acme"."""
    role = str(user["role"]).replace("_", " ")
    if user["team_id"]:
        return f"{role} of {user['tenant_id']}/{user['team_id']}"
    return f"{role} of {user['tenant_id']}" if user["tenant_id"] else role


def key_status(key: Mapping[str, Any]) -> str:
    """Return a key's status: active, expired or revoked."""
    if key["revoked_at"]:
        return "revoked"
    expires_at = key["expires_at"]
    return "expired" if expires_at and datetime.fromisoformat(expires_at) <= datetime.now(UTC) else "active"


def token_status(token: Mapping[str, Any]) -> str:
    """Return an admin token's status: active, or why it is refused."""
    return str(token["refused"] or "active")


def limit_line(limit: Mapping[str, Any]) -> str:
    """Return a limit's amount, window and scope."""
    return f"{limit_allows(limit)}, {scope_text(limit)}"


def budget_line(budget: Mapping[str, Any]) -> str:
    """Return a budget's amount, period and scope."""
    return f"{budget_allows(budget)}, {scope_text(budget)}"


def card_prices(price: Mapping[str, Any]) -> str:
    """Return a card's prices, unit prices, number of tiers and fee as one line."""
    card = price["card"]
    more = [f"{len(card['tiers'])} tiers"] if card.get("tiers") else []
    fee = Decimal(str(card.get("usd_per_request", "0")))
    more += [f"request={fee.normalize():f}"] if fee else []
    per_unit = usd_per_mtok(card.get("usd_per_unit", {}))
    return " ".join(filter(None, [usd_per_mtok(card["usd_per_mtok"]), per_unit, *more]))


def finite_number(name: str, text: str) -> float:
    """Parse the number of a --set option. Raises ConfigurationError unless it is finite."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ConfigurationError(f"--set {name}={text!r} is not NAME=NUMBER with a finite number")
    return value


def second_of(moment: str | None) -> str:
    """Return an ISO time without fractions of a second, with its offset; "" for `None`."""
    if moment is None:
        return ""
    whole, _, rest = moment.partition(".")
    return whole + rest.lstrip("0123456789")


def rollout_line(rollout: Mapping[str, Any]) -> str:
    """Return a rollout's current share: "large has 5 % of small on assistant"."""
    return f"{rollout['candidate']} has {rollout['percent']:g} % of {rollout['incumbent']} on {rollout['route']}"


def channel_receives(row: Mapping[str, Any]) -> str:
    """Return a channel's alerts and cost report: "page alerts of acme, weekly report"."""
    alerts = f"{' and '.join(row.get('severities', ())) or 'all'} alerts"
    if tenants := row.get("tenants"):
        alerts += f" of {' and '.join(tenants)}"
    return alerts + (f", {row['report']}ly report".replace("dayly", "daily") if row.get("report") else "")
