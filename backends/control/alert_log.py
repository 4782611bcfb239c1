"""The alert log: each alert is opened and resolved once, in one transaction with its notifications."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlencode

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from backends.control.budget_states import insert_into
from backends.control.changes import Author, begin_change
from backends.control.fresh_alerts import FreshAlert, insert_alerts
from backends.control.row_names import row_name
from contracts.control import Alert, AlertChannel, AlertDelivery, AlertSilence
from contracts.errors import NotFound
from contracts.recording.ids import uuid7
from contracts.recording.moments import unix_ns
from contracts.rules.alert_channels import traits_of
from contracts.rules.alerts import Event, Finding, Rule

_MOST_TOLD: Final = 50  # alerts listed in one notification; the rest is counted
_CHUNK_ROWS: Final = 500
_SEEN_EVERY: Final = timedelta(minutes=5)  # precision of `last_seen_at`, which saves thousands of writes
_MAX_SUMMARY: Final = 500
_MAX_NAME: Final = 200
_MAX_FINGERPRINT: Final = 400
_SENT_LEVEL: Final = "sent_level"
_SENT_AS: Final = "sent_as"  # severities that it was sent with: channels for one of these get its end
_URGENCY: Final = "urgency"  # a finding's level, unlike the fact `level`, the scope of a budget or limit
_PAGE_LEVEL: Final = 1_000
_WORDS: Final = ("title", "condition", "value", "bound")
# Facts that are determined once, when an alert opens or becomes more severe.
_KEPT_FACTS: Final = ("cause", "cause_search", "cause_outcome", "began_at", "affected", _SENT_LEVEL, _SENT_AS)
_OWN_FACTS: Final = frozenset((*_WORDS, *_KEPT_FACTS, _URGENCY, "owner", "runbook", "ends_quietly"))


AnyAlert = Alert | FreshAlert


@dataclass(slots=True)
class Settled:
    """The changes by one evaluation of the rules: alerts opened and resolved, notifications queued."""

    opened: int = 0
    resolved: int = 0
    notices: int = 0


@dataclass(slots=True)
class _Notices:
    """The alerts that one rule has to send: opened, more severe, still open, and ended ones."""

    firing: list[AnyAlert] = field(default_factory=list)
    escalated: list[AnyAlert] = field(default_factory=list)
    repeated: list[AnyAlert] = field(default_factory=list)
    resolved: list[AnyAlert] = field(default_factory=list)

    def leave_out(self, rule: Rule, silences: Sequence[AlertSilence]) -> None:
        """Remove silenced alerts; an end is sent only if the start was."""
        for name in ("firing", "escalated", "repeated"):
            kept = [alert for alert in getattr(self, name) if not _is_silenced(alert, rule, silences)]
            setattr(self, name, kept)


def settle_alerts(
    session: Session, found: Sequence[tuple[Rule, Sequence[Finding]]], now: datetime, quiet_rules: Iterable[str] = ()
) -> Settled:
    """Update the alerts of these rules to match their findings, and queue notifications. Call it under a lease.

    A finding opens an alert or keeps its open one; an open alert without a finding is resolved. A finding that
    `ends_quietly` is raised once per fingerprint. Alerts of `quiet_rules`, which were removed, are resolved without a
    notification.
    """
    rules = [rule.id for rule, _ in found]
    gone = set(quiet_rules)
    known = _open_alerts(session, {*rules, *gone})
    once = [finding_key(rule.id, each) for rule, findings in found for each in findings if each.ends_quietly]
    known.update(_by_key(session, [key for key in once if key not in known]))
    by_rule: dict[str, dict[str, Alert]] = {}
    for key, held in known.items():
        by_rule.setdefault(held.rule_id, {})[key] = held
    channels = {row.id: row for row in session.scalars(select(AlertChannel))}
    in_force = (AlertSilence.starts_at <= now, AlertSilence.ends_at > now)
    silences = list(session.scalars(select(AlertSilence).where(*in_force)))
    settled, fresh = Settled(), list[FreshAlert]()
    for rule, findings in found:
        notices = _settle_rule(fresh, rule, findings, by_rule.get(rule.id, {}), now, settled)
        notices.leave_out(rule, silences)
        for alert in (*notices.firing, *notices.escalated, *notices.repeated):
            alert.notified_at = now
            sent_as = sorted({*_severities_of(alert), alert.severity})
            alert.facts = {**alert.facts, _SENT_LEVEL: _level_of(alert), _SENT_AS: sent_as}
        settled.notices += _write_notices(session, rule, notices, channels, now)
    for left in known.values():
        if left.rule_id in gone and left.resolved_at is None:
            _resolve(left, now, settled)
    session.flush()
    insert_alerts(session, fresh)
    return settled


def _settle_rule(
    fresh: list[FreshAlert],
    rule: Rule,
    findings: Sequence[Finding],
    known: Mapping[str, Alert],
    now: datetime,
    settled: Settled,
) -> _Notices:
    notices, held = _Notices(), set[str]()
    for finding in findings:
        key = finding_key(rule.id, finding)
        if key in held:
            continue  # findings with the same fingerprint are one alert
        held.add(key)
        alert: AnyAlert | None = known.get(key)
        if alert is None:
            alert = _opened(rule, finding, key, now)
            fresh.append(alert)
            settled.opened += 1
        elif alert.resolved_at is not None:
            continue  # raised before: only once per fingerprint
        else:
            _refresh(rule, alert, finding, now)
        if alert.notified_at is None:
            notices.firing.append(alert)
        elif _level_of(alert) > _number(alert.facts.get(_SENT_LEVEL)):
            notices.escalated.append(alert)
        elif _is_repeated(rule, alert, now):
            notices.repeated.append(alert)
    for key, alert in known.items():
        if key not in held and alert.resolved_at is None:
            _resolve(alert, now, settled)
            if alert.notified_at is not None and not alert.facts.get("ends_quietly"):
                notices.resolved.append(alert)
    return notices


def _level_of(alert: AnyAlert) -> int:
    """Return an alert's urgency: any page ranks above any ticket, then by level."""
    return _number(alert.facts.get(_URGENCY)) + (_PAGE_LEVEL if alert.severity == "page" else 0)


def _is_repeated(rule: Rule, alert: AnyAlert, now: datetime) -> bool:
    hours = rule.settings.get("repeat_hours", 0)
    is_due = alert.notified_at is not None and now - alert.notified_at >= timedelta(hours=hours)
    return hours > 0 and is_due and alert.acknowledged_at is None


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _facts_of(rule: Rule, finding: Finding) -> dict[str, object]:
    """Return the stored facts of a finding besides its summary, without empty texts."""
    said = {name: getattr(finding, name) for name in _WORDS if getattr(finding, name)}
    if finding.level:
        said[_URGENCY] = finding.level
    owned = {name: value for name, value in (("owner", rule.owner), ("runbook", rule.runbook)) if value}
    return {**finding.facts, **said, **owned, **({"ends_quietly": True} if finding.ends_quietly else {})}


def _opened(rule: Rule, finding: Finding, key: str, now: datetime) -> FreshAlert:
    facts = _facts_of(rule, finding)
    return FreshAlert(
        id=f"alt_{uuid7(unix_ns(now)).hex}",
        rule_id=rule.id,
        kind=rule.kind,
        tenant_id=finding.tenant,
        team_id=finding.team,
        fingerprint=finding.fingerprint[:_MAX_FINGERPRINT],
        open_key=key,
        severity=finding.severity,
        summary=finding.summary[:_MAX_SUMMARY],
        facts=facts,
        opened_at=now,
        last_seen_at=now,
    )


def _refresh(rule: Rule, alert: AnyAlert, finding: Finding, now: datetime) -> None:
    is_worse = finding_level(finding) > _level_of(alert)
    if now - alert.last_seen_at < _SEEN_EVERY and not is_worse:
        return
    alert.last_seen_at, alert.summary = now, finding.summary[:_MAX_SUMMARY]
    alert.severity = finding.severity
    found_before: dict[str, object] = {name: alert.facts[name] for name in _KEPT_FACTS if name in alert.facts}
    alert.facts = {**found_before, **_facts_of(rule, finding)}


def _resolve(alert: Alert, now: datetime, settled: Settled) -> None:
    alert.resolved_at = now
    if not alert.facts.get("ends_quietly"):  # else its key stays, so that it is not raised again
        alert.open_key = alert.id
    settled.resolved += 1


def _write_notices(
    session: Session, rule: Rule, notices: _Notices, channels: Mapping[str, AlertChannel], now: datetime
) -> int:
    written = 0
    told: tuple[tuple[Event, str, list[AnyAlert]], ...] = (
        ("firing", "opened", notices.firing),
        ("firing", "escalated", notices.escalated),
        ("firing", "repeated", notices.repeated),
        ("resolved", "resolved", notices.resolved),
    )
    for event, reason, alerts in told:
        for name in rule.channels if alerts else ():
            channel = channels.get(name)
            if channel is None or not (wanted := [alert for alert in alerts if _is_for(channel, alert, event)]):
                continue
            is_split = traits_of(channel.kind).has_notice_per_alert
            groups = [[alert] for alert in wanted] if is_split else [wanted]
            for group in groups:
                body = notice_body(event, rule, group, now, reason)
                written += write_delivery(session, channel, event, body, now)
    return written


def _is_for(channel: AlertChannel, alert: AnyAlert, event: Event) -> bool:
    """Return whether a channel accepts alerts of this severity and tenant; empty lists accept all.

    The end of an alert is sent to every channel that accepts one of the severities that it was sent with.
    """
    severities, tenants = channel.severities or (), channel.tenants or ()
    now = {*_severities_of(alert), alert.severity} if event == "resolved" else {alert.severity}
    return (not severities or bool(now & set(severities))) and (not tenants or alert.tenant_id in tenants)


def _severities_of(alert: AnyAlert) -> Sequence[str]:
    """Return the severities that an alert was sent with."""
    sent = alert.facts.get(_SENT_AS)
    return [str(each) for each in sent] if isinstance(sent, list) else []


def notice_body(
    event: Event, rule: Rule, alerts: Sequence[AnyAlert], now: datetime, reason: str = ""
) -> dict[str, object]:
    """Return the content of a notification, for every channel: plain values, times as ISO 8601 text in UTC.

    `reason` is why it is sent: opened, escalated (more severe), repeated (still open), resolved.
    """
    severities = {alert.severity for alert in alerts}
    return {
        "event": event,
        "reason": reason or event,
        "rule": rule.id,
        "kind": rule.kind,
        "severity": "page" if "page" in severities else "ticket",
        "at": now.isoformat(),
        "alerts": [alert_facts(alert) for alert in alerts[:_MOST_TOLD]],
        "more": max(len(alerts) - _MOST_TOLD, 0),
        "ids": [alert.id for alert in alerts],
    }


def alert_facts(alert: AnyAlert) -> dict[str, object]:
    """Return an alert as plain values, the same for notifications, the HTTP API and the command line."""
    return {
        "id": alert.id,
        "rule": alert.rule_id,
        "kind": alert.kind,
        "tenant": alert.tenant_id or None,
        "team": alert.team_id or None,
        "fingerprint": alert.fingerprint,
        "severity": alert.severity,
        "title": alert.facts.get("title") or alert.summary,
        "summary": alert.summary,
        **{name: alert.facts.get(name) for name in ("condition", "value", "bound", "cause", "owner", "runbook")},
        "affected": alert.facts.get("affected") or [],
        "began_at": alert.facts.get("began_at") or alert.opened_at.isoformat(),
        "link": f"/incident?alert={alert.id}",
        "requests_link": _requests_link(alert),
        "facts": {name: value for name, value in alert.facts.items() if name not in _OWN_FACTS},
        "opened_at": alert.opened_at.isoformat(),
        "resolved_at": None if alert.resolved_at is None else alert.resolved_at.isoformat(),
        "is_silenced": alert.notified_at is None,
        "acknowledged_at": None if alert.acknowledged_at is None else alert.acknowledged_at.isoformat(),
        "acknowledged_by": alert.acknowledged_by,
    }


def _requests_link(alert: AnyAlert) -> str:
    """Return the URL of the Requests page, filtered by the alert's cause; empty if no cause is known."""
    if not alert.facts.get("cause"):
        return ""
    wanted = {
        "q": alert.facts.get("cause_search"),
        "outcome": alert.facts.get("cause_outcome"),
        "tenant": alert.tenant_id,
    }
    return "/requests?" + urlencode({name: value for name, value in wanted.items() if value})


def write_delivery(
    session: Session, channel: AlertChannel, event: Event, body: Mapping[str, object], now: datetime
) -> int:
    """Queue a notification; return 0 if the same one is queued already, else 1."""
    ids = body.get("ids")
    again = [str(body["at"])] if body.get("reason") in ("escalated", "repeated") else []
    named = "|".join([channel.id, event, *again, *(str(each) for each in (ids if isinstance(ids, list) else ()))])
    insert: Any = insert_into(session, AlertDelivery)
    row = insert.values(
        id=f"ntf_{hashlib.sha256(named.encode()).hexdigest()[:32]}",
        channel_id=channel.id,
        tenant_id=channel.tenant_id,
        event=event,
        body=dict(body),
        created_at=now,
        state="waiting",
        attempts=0,
        next_attempt_at=now,
        last_error="",
    )
    return int(session.scalar(row.on_conflict_do_nothing().returning(AlertDelivery.id)) is not None)


def list_alerts(
    session: Session, *, tenant: str = "", team: str = "", is_open: bool = False, before: str = "", limit: int = 100
) -> list[Alert]:
    """Return up to `limit` alerts with ids below `before`, latest first, of one tenant or team if named."""
    wanted = select(Alert).order_by(Alert.id.desc()).limit(limit)
    conditions = [Alert.tenant_id == tenant] if tenant else []
    conditions += [Alert.team_id == team] if team else []
    conditions += [Alert.resolved_at.is_(None)] if is_open else []
    conditions += [Alert.id < before] if before else []
    return list(session.scalars(wanted.where(*conditions)))


def acknowledge_alert(session: Session, author: Author, alert_id: str) -> Alert:
    """Record who has acknowledged an alert; the first one stays. The alert stays open while its condition holds.

    Raises NotFound, also for an alert that does not concern the author's tenant or team.
    """
    entry = begin_change(session, author, "alert.acknowledge", alert_id)
    alert = session.get(Alert, alert_id)
    if alert is None or author.tenant_id not in ("", alert.tenant_id) or author.team_id not in ("", alert.team_id):
        raise NotFound(
            f"alert {alert_id!r} does not exist; `tollkeeper alerts list --all` shows those that do",
            rows=[row_name(Alert, alert_id)],
        )
    if alert.tenant_id:
        entry.subject = f"{alert.tenant_id}/{alert_id}"
    if alert.acknowledged_at is None:
        alert.acknowledged_at, alert.acknowledged_by = author.at, author.name[:_MAX_NAME]
    session.flush()
    return alert


def open_rules(session: Session) -> set[str]:
    """Return the ids of rules that have open alerts, including removed rules."""
    return set(session.scalars(select(Alert.rule_id).where(Alert.resolved_at.is_(None)).distinct()))


def forget_alerts(session: Session, before: datetime) -> None:
    """Remove alerts that were resolved before a time, and notifications that ended before it."""
    unsynchronised = {"synchronize_session": False}
    session.execute(delete(Alert).where(Alert.resolved_at < before), execution_options=unsynchronised)
    session.execute(delete(AlertDelivery).where(AlertDelivery.ended_at < before), execution_options=unsynchronised)


def known_levels(session: Session) -> dict[str, int]:
    """Return the level of every open alert by its key."""
    rows = session.scalars(select(Alert).where(Alert.resolved_at.is_(None)))
    return {row.open_key: _level_of(row) for row in rows}


def finding_level(finding: Finding) -> int:
    """Return how urgent a finding is: a page is more so than a ticket, whatever their levels within."""
    return finding.level + (_PAGE_LEVEL if finding.severity == "page" else 0)


def finding_key(rule_id: str, finding: Finding) -> str:
    """Return the key of a finding's alert while it is open."""
    return f"{rule_id}|{finding.fingerprint[:_MAX_FINGERPRINT]}"


def _open_alerts(session: Session, rules: Iterable[str]) -> dict[str, Alert]:
    wanted = set(rules)
    rows = session.scalars(select(Alert).where(Alert.resolved_at.is_(None)))
    return {row.open_key: row for row in rows if row.rule_id in wanted}


def _by_key(session: Session, keys: Sequence[str]) -> dict[str, Alert]:
    found: dict[str, Alert] = {}
    for start in range(0, len(keys), _CHUNK_ROWS):
        rows = session.scalars(select(Alert).where(Alert.open_key.in_(keys[start : start + _CHUNK_ROWS])))
        found.update({row.open_key: row for row in rows})
    return found


def _is_silenced(alert: AnyAlert, rule: Rule, silences: Sequence[AlertSilence]) -> bool:
    # A tenant's silence applies to its own rules: it must not silence the installation's alerts about the tenant.
    return any(
        silence.tenant_id in ("", rule.tenant)
        and silence.rule_id in ("", alert.rule_id)
        and alert.fingerprint.startswith(silence.subject)
        for silence in silences
    )
