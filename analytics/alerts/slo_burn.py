"""Findings about objectives: error budgets that burn too fast, and the holds that follow."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from analytics.alerts.sources import AlertInputs, ByTenant, Findings
from backends.control.slos import Hold
from contracts.rules.alerts import Finding, Rule
from contracts.rules.objectives import BURN_PAIRS, BurnPair, Counts, Objective, span_text


def slo_burns(look: AlertInputs, rules: Sequence[Rule]) -> Findings:
    """Return the objectives whose error budget burns, each with its most urgent pair of burn-rate windows."""
    burning = [
        (objective, _finding(objective, pairs[0], look.counts.get(objective.id, {})))
        for objective, pairs in look.burning()
    ]
    sorted_out = ByTenant((objective.tenant, (objective.id, finding)) for objective, finding in burning)
    return {rule.id: [finding for slo, finding in sorted_out.of(rule) if rule.slo in ("", slo)] for rule in rules}


def holds_of(look: AlertInputs) -> list[Hold]:
    """Return the holds (shed batches, freeze canaries) of objectives with hooks while a paging pair of windows burns.

    Objectives for one prompt length shed no batches: the length is known only after the answer, so all would be shed.
    """
    return [
        Hold(
            objective.id,
            hook,
            objective.tenant,
            objective.model,
            f"the error budget of {objective.id} burns at {pairs[0].name}",
            objective.route,
        )
        for objective, pairs in look.burning()
        if pairs[0].severity == "page"
        for hook in objective.hooks
        if not (hook == "shed_batch" and objective.prompt_class)
    ]


def _finding(objective: Objective, pair: BurnPair, counts: Mapping[timedelta, Counts]) -> Finding:
    target = format(objective.target_percent, "f")
    promised = f"{target} % {objective.indicator} in {objective.window_days} days"
    long = counts.get(pair.long, Counts())
    rate = long.burn_rate(objective)
    found = f"{long.bad:,} of {long.total:,} requests were bad in {span_text(pair.long)}"
    return Finding(
        fingerprint=objective.id,
        summary=f"SLO {objective.id} ({promised}) burns its error budget: {pair.name}",
        severity=pair.severity,
        tenant=objective.tenant,
        facts={
            "objective": objective.id,
            "indicator": objective.indicator,
            "pair": pair.name,
            "model": objective.model,
            "target_percent": target,
        },
        title=f"SLO {objective.id}: error budget burns at {float(rate or 0):.3g}x",
        condition=f"Error budget of SLO {objective.id} ({promised}) burns at {float(pair.factor):g}x or faster "
        f"over {span_text(pair.long)} and {span_text(pair.short)}",
        value=f"{float(rate or 0):.3g}x: {found}",
        bound=f"{float(pair.factor):g}x",
        level=len(BURN_PAIRS) - BURN_PAIRS.index(pair),
    )
