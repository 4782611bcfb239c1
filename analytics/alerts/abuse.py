"""Findings about abuse: open incidents that gateways reported."""

from collections.abc import Sequence

from algorithms.abuse.incident import Incident
from analytics.alerts.sources import AlertInputs, ByTenant, Findings
from contracts.rules.alerts import Finding, Rule


def abuse(look: AlertInputs, rules: Sequence[Rule]) -> Findings:
    """Return a finding per abused key and kind of abuse, while at least one gateway reports an open incident."""
    together: dict[tuple[str, str, str], list[Incident]] = {}
    for incident in look.incidents:
        together.setdefault((incident.tenant, incident.key_id, incident.kind), []).append(incident)
    sorted_out = ByTenant((tenant, several) for (tenant, _, _), several in together.items())
    return {
        rule.id: [
            _finding(several)
            for several in sorted_out.of(rule)
            if sum(each.sightings for each in several) >= rule.settings["sightings"]
        ]
        for rule in rules
    }


def _finding(several: Sequence[Incident]) -> Finding:
    most = max(several, key=lambda incident: incident.peak)
    return Finding(
        fingerprint=f"{most.tenant}/{most.key_id}/{most.kind}",
        summary=most.summary,
        tenant=most.tenant,
        team=most.team,
        facts={
            "key": most.key_id,
            "kind": most.kind,
            "incidents": [each.id for each in several],
            "sightings": sum(each.sightings for each in several),
            "throttled": sum(each.throttled for each in several),
            "limit": most.limit,
            "window_seconds": most.window_seconds,
            "peak": most.peak,
        },
    )
