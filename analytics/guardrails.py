"""Counts guardrail findings by stage: actions taken, and actions that dry-run stages would have taken."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from analytics.queries import query
from analytics.rows import number_of, text_of
from analytics.scope import Period
from backends.store.client import StoreClient
from contracts.guardrails.finding import VerdictFields, read_verdict


@dataclass(slots=True)
class StageCount:
    """One tenant's counts of one stage, on input or output: requests with findings, of all the tenant's requests.

    `findings` is the number of findings; `kinds` has the number of requests by kind of finding.
    """

    tenant: str
    stage: str
    direction: str
    action: str
    is_dry_run: bool
    of_requests: int
    requests: int = 0
    findings: int = 0
    kinds: dict[str, int] = field(default_factory=dict)


def stage_counts(store: StoreClient, period: Period, tenant: str | None = None) -> list[StageCount]:
    """Count verdicts of one tenant or all, sorted by tenant, then most findings first. Raises StoreUnavailable."""
    asked = {"start": period.start.timestamp(), "end": period.end.timestamp(), "tenant": tenant}
    totals: Mapping[str, int] = {
        text_of(row["tenant_label"]): number_of(row["request_count"])
        for row in store.query(query("guardrail_tenants"), asked)
    }
    found: dict[tuple[str, str, str, str, bool], StageCount] = {}
    for row in store.query(query("guardrail_verdicts"), asked):
        verdict = read_verdict(text_of(row["verdict_label"]))
        if verdict is not None:
            who = text_of(row["tenant_label"])
            _count(found, who, verdict, number_of(row["request_count"]), totals.get(who, 0))
    return sorted(found.values(), key=lambda one: (one.tenant, -one.requests, one.stage, one.direction))


def _count(
    found: dict[tuple[str, str, str, str, bool], StageCount],
    tenant: str,
    verdict: VerdictFields,
    requests: int,
    of_requests: int,
) -> None:
    key = (tenant, verdict.stage, verdict.direction, verdict.action, verdict.is_dry_run)
    one = found.get(key)
    if one is None:
        one = found[key] = StageCount(*key, of_requests=of_requests)
    one.requests += requests
    one.findings += requests * verdict.count
    for kind in verdict.kinds:
        one.kinds[kind] = one.kinds.get(kind, 0) + requests
