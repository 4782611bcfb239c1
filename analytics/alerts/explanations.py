"""Finds an alert's top cause and affected tenants, once, when it opens or becomes more severe."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy.orm import Session

from analytics.incidents.causes import affected_tenants, causes_of
from analytics.incidents.changes import changes_between, latest_before
from analytics.incidents.evidence import read_evidence
from analytics.scope import Period
from backends.control.alert_log import finding_key, finding_level
from backends.store.client import StoreClient
from contracts.errors import TollkeeperError
from contracts.rules.alerts import Finding, Rule

_log = logging.getLogger(__name__)

_LOOKS_BACK: Final = timedelta(hours=1)
_CHANGED_WITHIN: Final = timedelta(minutes=15)  # changes earlier than this before the start are unlikely causes
_MOST_AT_ONCE: Final = 20  # limit of explained alerts per evaluation; each needs three queries
_MOST_TENANTS: Final = 10

Found = Sequence[tuple[Rule, Sequence[Finding]]]


def explained(
    found: Found,
    known: Mapping[str, int],
    store: StoreClient,
    session: Callable[[], AbstractContextManager[Session]],
    now: datetime,
) -> list[tuple[Rule, Sequence[Finding]]]:
    """Return the findings, with cause and affected tenants added to those that are new or more severe.

    `known`: level of every open alert by its key. If no cause can be found, a finding is unchanged.
    """
    left = _MOST_AT_ONCE
    result: list[tuple[Rule, Sequence[Finding]]] = []
    for rule, findings in found:
        told: list[Finding] = []
        for finding in findings:
            is_new = finding_level(finding) > known.get(finding_key(rule.id, finding), -1)
            if is_new and left > 0 and _has_requests(rule, finding):
                left -= 1
                finding = _explained(finding, store, session, now)
            told.append(finding)
        result.append((rule, told))
    return result


def _has_requests(rule: Rule, finding: Finding) -> bool:
    return rule.kind == "slo_burn" or bool(finding.facts.get("is_refusing"))


def _explained(
    finding: Finding, store: StoreClient, session: Callable[[], AbstractContextManager[Session]], now: datetime
) -> Finding:
    model = finding.facts.get("model")
    period = Period(now - _LOOKS_BACK, now + timedelta(minutes=1))
    try:
        evidence = read_evidence(
            store, period, now, finding.tenant or None, finding.team or None, str(model) if model else None
        )
        causes = causes_of(evidence)
        with session() as opened:
            changes = changes_between(opened, evidence.began - _CHANGED_WITHIN, evidence.began + timedelta(minutes=1))
    except TollkeeperError as error:
        _log.warning("alert_unexplained", extra={"fingerprint": finding.fingerprint, "reason": error.message})
        return finding
    facts: dict[str, object] = {"began_at": evidence.began.isoformat()}
    affected = affected_tenants(evidence)
    if affected:
        facts["affected"] = [
            {"tenant": tenant, "requests": count} for tenant, count in list(affected.items())[:_MOST_TENANTS]
        ]
    if causes:
        top = causes[0]
        change = latest_before(changes, evidence.began + timedelta(minutes=1))
        before = "" if change is None else f" {change.words} at {change.at:%H:%M:%S} UTC, shortly before."
        facts |= {"cause": top.text + before, "cause_search": top.search, "cause_outcome": top.outcome}
    return replace(finding, facts={**finding.facts, **facts})
