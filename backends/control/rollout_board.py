"""Measurements of rollouts that gateways share through the control database."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from algorithms.rollouts.rollout_tally import ArmTally, RolloutTotals, from_plain, to_plain
from backends.control.alert_log import alert_facts, write_delivery
from backends.control.budget_states import insert_into
from contracts.control import Alert, AlertChannel, Rollout, RolloutObservation
from contracts.recording.ids import uuid7
from contracts.recording.moments import unix_ns

ALERT_KIND: Final = "rollout"
_FRESH: Final = timedelta(seconds=15)  # older measurements are out of date
_MAX_SUMMARY: Final = 500


def publish_observation(
    session: Session,
    gateway: str,
    rollout_id: str,
    term: int,
    observed: RolloutTotals,
    *,
    shadow_day: str,
    shadow_pico_usd: int,
    at: datetime,
) -> None:
    """Store a gateway's measurements of a rollout, replacing earlier ones."""
    if session.get(Rollout, rollout_id) is None:
        return
    values = {
        "term": term,
        "seen": to_plain(observed),
        "shadow_day": shadow_day,
        "shadow_pico_usd": shadow_pico_usd,
        "updated_at": at,
    }
    insert: Any = insert_into(session, RolloutObservation)
    row = insert.values(rollout_id=rollout_id, gateway=gateway, **values)
    session.execute(row.on_conflict_do_update(index_elements=("rollout_id", "gateway"), set_=values))


def others_observed(session: Session, gateway: str, rollout_id: str, term: int, at: datetime) -> list[RolloutTotals]:
    """Return the other gateways' measurements of a rollout in a term. Unreadable ones are left out.

    Of gateways that no longer run, only the incumbent's results count: a candidate at 100 % is still compared with
    them.
    """
    found: list[RolloutTotals] = []
    for row in observations_of(session, rollout_id):
        seen = None if row.gateway == gateway else read_seen(row)
        if seen is None:
            continue
        if is_fresh(row, at):
            found += [seen] if row.term == term else []
        elif seen.incumbent_before.requests:
            found.append(RolloutTotals(incumbent_before=seen.incumbent_before))
    return found


def incumbent_before(session: Session, gateway: str, rollout_id: str) -> ArmTally | None:
    """Return a gateway's stored results of the incumbent in total; `None` if there are none."""
    row = session.get(RolloutObservation, (rollout_id, gateway))
    seen = None if row is None else read_seen(row)
    return None if seen is None else seen.incumbent_before


def read_seen(row: RolloutObservation) -> RolloutTotals | None:
    """Return a gateway's stored measurements; `None` if they cannot be read, for example from another version."""
    try:
        return from_plain(row.seen)
    except msgspec.ValidationError:
        return None


def is_fresh(row: RolloutObservation, at: datetime) -> bool:
    """Return whether a gateway wrote the row within 15 seconds before `at`."""
    return row.updated_at > at - _FRESH


def shadow_spent(session: Session, rollout_id: str, day: str) -> Mapping[str, int]:
    """Return the cost of a rollout's shadow requests on a day (ISO 8601, UTC), by gateway, in pico-USD."""
    wanted = select(RolloutObservation).where(
        RolloutObservation.rollout_id == rollout_id, RolloutObservation.shadow_day == day
    )
    return {row.gateway: row.shadow_pico_usd for row in session.scalars(wanted)}


def observations_of(session: Session, rollout_id: str) -> list[RolloutObservation]:
    """Return every gateway's stored measurements of a rollout."""
    wanted = select(RolloutObservation).where(RolloutObservation.rollout_id == rollout_id)
    return list(session.scalars(wanted.order_by(RolloutObservation.gateway)))


def forget_observations(session: Session, before: datetime) -> None:
    """Remove measurements that were written before a time."""
    session.execute(
        delete(RolloutObservation).where(RolloutObservation.updated_at < before),
        execution_options={"synchronize_session": False},
    )


def raise_rollback_alert(session: Session, rollout: Rollout, reason: str, at: datetime) -> None:
    """Write a rollback into the alert log, with a notification to each of the installation's channels.

    The alert is resolved at once, because it describes an event. It needs no rule.
    """
    number = f"{rollout.id}/{rollout.term}"
    alert = Alert(
        id=f"alt_{uuid7(unix_ns(at)).hex}",
        rule_id=ALERT_KIND,
        kind=ALERT_KIND,
        fingerprint=number,
        open_key=f"{ALERT_KIND}|{number}",
        severity="page",
        summary=f"rollout {rollout.id} of {rollout.candidate} was rolled back: {reason}"[:_MAX_SUMMARY],
        facts={
            "rollout": rollout.id,
            "route": rollout.route,
            "incumbent": rollout.incumbent,
            "candidate": rollout.candidate,
            "step": rollout.step,
            "reason": reason,
        },
        opened_at=at,
        last_seen_at=at,
        resolved_at=at,
        notified_at=at,
        tenant_id="",
        team_id="",
    )
    session.add(alert)
    session.flush()
    body: dict[str, object] = {
        "event": "firing",
        "rule": ALERT_KIND,
        "kind": ALERT_KIND,
        "severity": alert.severity,
        "at": at.isoformat(),
        "alerts": [alert_facts(alert)],
        "more": 0,
        "ids": [alert.id],
    }
    for channel in session.scalars(select(AlertChannel).where(AlertChannel.tenant_id == "")):
        write_delivery(session, channel, "firing", body, at)
