"""Findings about money: budget thresholds and forecasts, unusual spending, unpriced usage, bills, list prices."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

from analytics.alerts.sources import AlertInputs, Anomaly, ByTenant, Findings
from analytics.prices.refresh import ChangeCost, PriceChange, rates_changed
from analytics.queries import query
from analytics.rows import number_of, text_of, texts_of
from backends.control.budget_spending import BudgetSpending
from contracts.control import Reconciliation
from contracts.pricing.money import usd
from contracts.recording.moments import unix_ns, utc_moment
from contracts.rules.alerts import Finding, Rule
from contracts.rules.rule_words import amount_text, exact_text

DEFAULT_THRESHOLDS: Final = (80, 100)  # default thresholds in percent, for budgets without their own
_UNPRICED_SECONDS: Final = 86_400


def budget_thresholds(look: AlertInputs, rules: Sequence[Rule]) -> Findings:
    """Return, for each budget, the highest threshold that it has passed, or that it refuses requests.

    A threshold is reported once per period, even if the period has ended meanwhile, but not by a rule created after
    that. A hard budget that refuses requests is reported regardless of thresholds, and again when it stops refusing.
    """
    mine = ByTenant((standing.spec.scope.tenant, standing) for standing in look.standings)
    now_ns = unix_ns(look.now)
    found: dict[str, list[Finding]] = {}
    for rule in rules:
        made_ns = unix_ns(look.made_at[rule.id])
        told = (
            _passed_or_refusing(look, rule, standing, now_ns)
            for standing in mine.of(rule)
            if (standing.end_ns is None or standing.end_ns > made_ns) and rule.budget in ("", standing.spec.id)
        )
        found[rule.id] = [finding for finding in told if finding is not None]
    return found


def budget_forecasts(look: AlertInputs, rules: Sequence[Rule]) -> Findings:
    """Return the budgets that will exceed `at_percent` of their amount at the end of the period at the current rate."""
    mine = ByTenant((standing.spec.scope.tenant, standing) for standing in look.standings)
    now_ns = unix_ns(look.now)
    found: dict[str, list[Finding]] = {}
    for rule in rules:
        told = (_forecast(look, rule, standing, now_ns) for standing in mine.of(rule))
        found[rule.id] = [finding for finding in told if finding is not None]
    return found


def spend_anomalies(look: AlertInputs, rules: Sequence[Rule]) -> Findings:
    """Return the tenants with unusual spending (see `analytics.anomaly`)."""
    anomalies = [] if look.anomalies is None else look.anomalies(look.store, look.now)
    sorted_out = ByTenant((each.tenant, each) for each in anomalies)
    return {
        rule.id: [
            _unusual(each)
            for each in sorted_out.of(rule)
            if abs(each.observed_usd - each.expected_usd) >= rule.settings["least_usd"]
        ]
        for rule in rules
    }


def unpriced_usage(look: AlertInputs, rules: Sequence[Rule]) -> Findings:
    """Return tenants and models with unpriced requests, or unpriced kinds of tokens, in the last day."""
    start = (look.now_s - _UNPRICED_SECONDS) // 3_600 * 3_600
    # From the rollup by minute, which is partitioned by day: in that by hour, a day of all tenants is scattered.
    parameters = {"rollup": "requests_minute", "start": start, "end": look.now_s + 3_600, "tenant": None}
    found: dict[tuple[str, str], _Unpriced] = {}
    for row in look.store.query(query("unpriced_usage"), parameters):
        name = text_of(row["tenant"]), text_of(row["model"])
        requests, partly = number_of(row["unpriced_count"]), number_of(row["partly_unpriced_count"])
        found[name] = _Unpriced(*name, requests, number_of(row["unpriced_token_sum"]), partly)
    for row in look.store.query(query("unpriced_kinds"), parameters) if found else ():
        name = text_of(row["tenant"]), text_of(row["model"])
        known = found.get(name) or _Unpriced(*name, 0, 0)
        kinds, tiers = (tuple(texts_of(cast("list[object]", row[column]))) for column in ("leaves", "tiers"))
        found[name] = replace(known, kinds=kinds, tiers=tiers)
    sorted_out = ByTenant((one.tenant, one) for _, one in sorted(found.items()))
    return {
        rule.id: [
            _unpriced(one) for one in sorted_out.of(rule) if one.requests + one.partly >= rule.settings["requests"]
        ]
        for rule in rules
    }


def bill_mismatches(look: AlertInputs, rules: Sequence[Rule]) -> Findings:
    """Return provider bills that differ from recorded usage by more than a bound, without a known cause."""
    return {
        rule.id: [
            _mismatch(row) for row in look.reconciliations if float(row.unknown_usd) > rule.settings["unknown_usd"]
        ]
        for rule in rules
    }


def price_changes_told(look: AlertInputs, rules: Sequence[Rule]) -> Findings:
    """Return imported price cards whose list price has changed, with the change in cost at last month's usage."""
    found = None if look.prices is None else look.prices(look.store, look.now)
    changes = () if found is None else found.changes
    return {
        rule.id: [
            _price_change(change, found.costs[change.old.version], found.month)
            for change in changes
            if found is not None
            and float(abs(usd(found.costs[change.old.version].difference_pico_usd))) >= rule.settings["least_usd"]
        ]
        for rule in rules
    }


def _price_change(change: PriceChange, cost: ChangeCost, month: str) -> Finding:
    old, more = change.old, usd(cost.difference_pico_usd)
    of = f" of {old.provider}" if old.provider else ""
    return Finding(
        fingerprint=f"{old.version}/{change.new.version}",
        summary=f"the list price of {old.model}{of} has changed: {rates_changed(change)}, which is {more:+.2f} USD a "
        f"month at the usage of {month} ({_requests(cost.requests)}). `tollkeeper prices refresh` replaces the card "
        f"{old.version}",
        facts={
            "model": old.model,
            "provider": old.provider,
            "replaces": old.version,
            "version": change.new.version,
            "month": month,
            "difference_usd": format(more, "f"),
        },
        ends_quietly=True,
    )


def _mismatch(row: Reconciliation) -> Finding:
    return Finding(
        fingerprint=f"{row.provider}/{row.month}",
        summary=f"the bill of {row.provider} for {row.month} differs from recorded usage by {row.unknown_usd:.2f} USD "
        f"without a cause: {row.billed_usd:.2f} USD are billed, {row.recorded_usd:.2f} USD recorded; see the page "
        f"Reconciliation, or tollkeeper reconcile show {row.provider} {row.month} --cause unknown",
        facts={
            "provider": row.provider,
            "month": row.month,
            "unknown_usd": format(row.unknown_usd, "f"),
            "billed_usd": format(row.billed_usd, "f"),
            "recorded_usd": format(row.recorded_usd, "f"),
        },
    )


def _unusual(anomaly: Anomaly) -> Finding:
    day, grown = anomaly.day.isoformat(), anomaly.contributor
    when = day if anomaly.until is None else f"{day} until {anomaly.until:%H:%M} UTC"
    said = [
        f"{anomaly.tenant} spent {anomaly.observed_usd:.2f} USD on {when}, where {anomaly.expected_usd:.2f} was to be "
        f"expected; driven by {anomaly.driver}"
    ]
    facts: dict[str, object] = {
        "day": day,
        "observed_usd": format(anomaly.observed_usd, "f"),
        "expected_usd": format(anomaly.expected_usd, "f"),
        "driver": anomaly.driver,
    }
    if grown is not None:
        who = ", ".join(
            f"{what} {name}"
            for what, name in (("key", grown.key), ("user", grown.user), ("model", grown.model))
            if name
        )
        said.append(
            f"{grown.more_usd:.2f} USD more by {who or 'requests without key, user and model'}, "
            f"{_requests(grown.requests)}"
        )
        said.append(grown.action)
        facts |= {"key": grown.key, "user": grown.user, "model": grown.model, "more_usd": format(grown.more_usd, "f")}
    return Finding(
        # The same key for today so far and for the finished day, so that they are one alert.
        fingerprint=f"{anomaly.tenant}/{day}",
        summary=". ".join(said),
        tenant=anomaly.tenant,
        facts=facts,
        ends_quietly=True,
    )


@dataclass(frozen=True, slots=True)
class _Unpriced:
    """Unpriced usage of a tenant and model: unpriced requests, and requests with unpriced kinds of tokens."""

    tenant: str
    model: str
    requests: int
    tokens: int
    partly: int = 0
    kinds: tuple[str, ...] = ()
    tiers: tuple[str, ...] = ()


def _unpriced(found: _Unpriced) -> Finding:
    model, said = found.model or "no model", []
    if found.requests:
        what, remedy = "have no price", "add a price card"
        if found.tiers:
            names = ", ".join(found.tiers)
            what = f"have no price (service tiers without one: {names})"
            remedy = f"replace the price card by one with service_tiers {names}"
        elif found.kinds and not found.partly:
            what = f"have no price (kinds of tokens without one: {', '.join(found.kinds)})"
            remedy = "replace the price card by one that prices them"
        said.append(
            f"{_requests(found.requests)} of {found.tenant} to {model} in the last day {what}: "
            f"they are not billed; {remedy}"
        )
    if found.partly:
        kinds = ", ".join(found.kinds)
        said.append(
            f"{_requests(found.partly)} of {found.tenant} to {model} in the last day have no price for {kinds}: "
            f"the rest of them is billed; replace the price card by one that prices {kinds}"
        )
    return Finding(
        fingerprint=f"{found.tenant}/{found.model}",
        summary=". ".join(said),
        tenant=found.tenant,
        facts={
            "model": found.model,
            "requests": found.requests,
            "tokens": found.tokens,
            "partly_unpriced_requests": found.partly,
            "unpriced_kinds": list(found.kinds),
            "unpriced_service_tiers": list(found.tiers),
        },
    )


def _requests(count: int) -> str:
    return f"{count} request" if count == 1 else f"{count} requests"


def _passed_or_refusing(look: AlertInputs, rule: Rule, standing: BudgetSpending, now_ns: int) -> Finding | None:
    spec = standing.spec
    is_over = standing.end_ns is not None and standing.end_ns <= now_ns
    refused_at = look.refusing.get((spec.id, standing.subject, standing.start_ns))
    has_refused = spec.is_hard and (
        standing.used >= spec.amount or (refused_at is not None and refused_at >= spec.amount)
    )
    if has_refused:
        return None if is_over else _refusing(standing)
    passed = [
        threshold
        for threshold in rule.thresholds or spec.thresholds or DEFAULT_THRESHOLDS
        if standing.used * 100 >= spec.amount * threshold
    ]
    return _passed(standing, max(passed)) if passed else None


def _passed(standing: BudgetSpending, threshold: int) -> Finding:
    return Finding(
        fingerprint=f"{_name(standing)}/{threshold}",
        summary=f"{_budget(standing)}: {_percent(standing)} % used (threshold {threshold} %): {_amounts(standing)}",
        tenant=standing.spec.scope.tenant,
        team=standing.team,
        facts={**_facts(standing), "threshold_percent": threshold, "used_percent": _percent(standing)},
        ends_quietly=True,
    )


def _refusing(standing: BudgetSpending) -> Finding:
    """Return the finding that a hard budget refuses requests. Its end (new period or raised amount) is notified too."""
    return Finding(
        fingerprint=f"{_name(standing)}/refusing",
        summary=f"{_budget(standing)} refuses requests: {_percent(standing)} % used: {_amounts(standing)}. Raise it "
        "(tollkeeper budgets set), or wait for its next period",
        severity="page",
        tenant=standing.spec.scope.tenant,
        team=standing.team,
        facts={
            **_facts(standing),
            "threshold_percent": 100,
            "used_percent": _percent(standing),
            "is_refusing": True,
        },
    )


def _budget(standing: BudgetSpending) -> str:
    when = "in all" if standing.spec.period == "total" else f"this {standing.spec.period}"
    return f"budget {standing.spec.id} ({_whom(standing)}, {when})"


def _percent(standing: BudgetSpending) -> int:
    return standing.used * 100 // standing.spec.amount if standing.spec.amount else 0


def _amounts(standing: BudgetSpending) -> str:
    metric, amount = standing.spec.metric, standing.spec.amount
    return f"{exact_text(metric, standing.used)} of {amount_text(metric, amount)}"


def _forecast(look: AlertInputs, rule: Rule, standing: BudgetSpending, now_ns: int) -> Finding | None:
    spec, end_ns = standing.spec, standing.end_ns
    if end_ns is None or not standing.counts_since_ns < now_ns < end_ns:
        return None
    passed = now_ns - standing.counts_since_ns
    if passed * 100 < (end_ns - standing.start_ns) * rule.settings["after_percent"]:
        return None
    projected = look.project(spec.amount, standing.used, standing.counts_since_ns, now_ns, end_ns).projected
    if projected is None or projected * 100 <= spec.amount * rule.settings["at_percent"]:
        return None
    rounded = round(projected, 3 - len(str(projected)))  # three digits, as a forecast is not more exact
    amounts = f"{amount_text(spec.metric, rounded)} of {amount_text(spec.metric, spec.amount)}"
    return Finding(
        fingerprint=_name(standing),
        summary=f"{_whom(standing)} will have used {amounts} at the end of this {_period(standing)}, at this pace",
        tenant=spec.scope.tenant,
        team=standing.team,
        facts={**_facts(standing), "projected": exact_text(spec.metric, projected)},
        ends_quietly=True,
    )


def _name(standing: BudgetSpending) -> str:
    return f"{standing.spec.id}/{utc_moment(standing.start_ns):%Y%m%dT%H%M%S}/{standing.subject}"


def _whom(standing: BudgetSpending) -> str:
    scope = standing.spec.scope
    whom = f"{scope.tenant}'s {scope.level} {standing.subject}" if standing.subject else scope.tenant
    return f"{whom} on {scope.model}" if scope.model else whom


def _period(standing: BudgetSpending) -> str:
    return "budget" if standing.spec.period == "total" else standing.spec.period


def _facts(standing: BudgetSpending) -> dict[str, object]:
    spec = standing.spec
    return {
        "budget": spec.id,
        "level": spec.scope.level,
        "subject": standing.subject,
        "unit": "usd" if spec.metric == "pico_usd" else "gpu_milliseconds",
        "amount": exact_text(spec.metric, spec.amount),
        "used": exact_text(spec.metric, standing.used),
        "period_start": utc_moment(standing.start_ns).isoformat(),
    }
