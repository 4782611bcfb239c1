"""Queued notifications: each is delivered by one process at a time, retried, and its result recorded."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import CursorResult, select, update
from sqlalchemy.orm import Session

from backends.control.budget_events import wait_after
from contracts.control import AlertChannel, AlertDelivery
from contracts.rules.alert_channels import traits_of

GIVE_UP_AFTER: Final = timedelta(days=1)
# Longer than any attempt may last (see backends/channels): a notice still being sent after this was interrupted.
ATTEMPT_LASTS: Final = timedelta(seconds=60)
_UNDER_WAY: Final = ("waiting", "sending")
_MAX_ERROR: Final = 200
_CUT_OFF: Final = "the process ended while it was being sent; whether it arrived is not known"
_LATE: Final = "no answer came in time; whether it arrived is not known"


@dataclass(frozen=True, slots=True)
class DueNotice:
    """A notification to send, with the data of its rows, so that no database connection is held during the call."""

    id: str
    attempts: int
    kind: str
    address: str
    event: str
    body: Mapping[str, object]
    created_at: datetime


def due_notices(session: Session, now: datetime, *, limit: int = 50) -> list[DueNotice]:
    """Return due notifications, oldest first; those that cannot be sent are marked as failed.

    A notification waits while an earlier one about the same alert is being sent to the same channel, so that an end
    does not arrive before its start.
    """
    if session.scalar(select(AlertDelivery.id).where(AlertDelivery.next_attempt_at <= now).limit(1)) is None:
        return []  # called every second: queued notices are read only if one is due
    rows = session.scalars(
        select(AlertDelivery)
        .where(AlertDelivery.next_attempt_at.is_not(None))
        .order_by(AlertDelivery.created_at, AlertDelivery.event, AlertDelivery.id)
    )
    found: list[DueNotice] = []
    ahead: dict[str, set[str]] = {}
    for row in rows:
        ids = _alert_ids(row)
        is_first = not ids & ahead.setdefault(row.channel_id, set())
        ahead[row.channel_id] |= ids
        if not is_first or row.next_attempt_at is None or row.next_attempt_at > now:
            continue
        channel = session.get(AlertChannel, row.channel_id)
        # Another tenant's channel with the same id was created after this notice's channel was deleted.
        if channel is None or channel.tenant_id != row.tenant_id:
            _end(row, "given_up", now, "the channel is gone")
        elif row.state == "sending" and not traits_of(channel.kind).is_repeatable:
            _end(row, "unknown", now, _CUT_OFF)
        elif len(found) < limit:
            found.append(
                DueNotice(row.id, row.attempts, channel.kind, channel.address, row.event, row.body, row.created_at)
            )
    session.flush()
    return found


def claim_notice(session: Session, notice: DueNotice, now: datetime) -> bool:
    """Reserve a notification for one attempt; False if another process took it since it was read."""
    claimed = session.execute(
        update(AlertDelivery)
        .where(
            AlertDelivery.id == notice.id,
            AlertDelivery.attempts == notice.attempts,
            AlertDelivery.state.in_(_UNDER_WAY),
            AlertDelivery.next_attempt_at <= now,
        )
        .values(attempts=notice.attempts + 1, state="sending", next_attempt_at=now + ATTEMPT_LASTS)
    )
    assert isinstance(claimed, CursorResult)  # the result of an UPDATE
    return bool(claimed.rowcount == 1)


def finish_notice(session: Session, notice_id: str, now: datetime) -> None:
    """Mark a notice as delivered."""
    row = session.get(AlertDelivery, notice_id)
    if row is not None:
        _end(row, "delivered", now, "")


def fail_notice(
    session: Session, notice: DueNotice, fault: str, now: datetime, *, may_have_arrived: bool, is_final: bool
) -> str:
    """Record why an attempt failed; return the notification's new state.

    It is retried, unless it may have arrived at a receiver that cannot detect duplicates, the receiver refused it
    permanently, or a day has passed.
    """
    row = session.get(AlertDelivery, notice.id)
    if row is None:
        return "given_up"
    if may_have_arrived and not traits_of(notice.kind).is_repeatable:
        _end(row, "unknown", now, f"{fault}; {_LATE}")
        return row.state
    next_at = now + wait_after(row.attempts)
    if is_final or next_at > notice.created_at + GIVE_UP_AFTER:
        _end(row, "given_up", now, fault)
        return row.state
    row.state, row.next_attempt_at, row.last_error = "waiting", next_at, fault[:_MAX_ERROR]
    return row.state


def list_deliveries(
    session: Session, *, tenant: str = "", channel: str = "", before: str = "", limit: int = 100
) -> list[tuple[AlertDelivery, str]]:
    """Return up to `limit` notifications with their channels' kinds, latest first; of one tenant or channel
    if named.
    """
    wanted = (
        select(AlertDelivery, AlertChannel.kind)
        .outerjoin(AlertChannel, AlertChannel.id == AlertDelivery.channel_id)
        .order_by(AlertDelivery.created_at.desc(), AlertDelivery.id.desc())
        .limit(limit)
    )
    if tenant:
        wanted = wanted.where(AlertDelivery.tenant_id == tenant)
    if channel:
        wanted = wanted.where(AlertDelivery.channel_id == channel)
    if before:
        row = session.get(AlertDelivery, before)
        if row is not None:
            earlier = (AlertDelivery.created_at == row.created_at) & (AlertDelivery.id < before)
            wanted = wanted.where((AlertDelivery.created_at < row.created_at) | earlier)
    return [(row[0], row[1] or "") for row in session.execute(wanted)]


@dataclass(frozen=True, slots=True)
class ChannelFault:
    """A channel whose latest notification failed, or may not have arrived."""

    channel: str
    kind: str
    state: str
    fault: str
    at: datetime


def channel_faults(session: Session) -> list[ChannelFault]:
    """Return the channels whose latest attempted notification did not arrive, by id."""
    found = []
    for channel in session.scalars(select(AlertChannel).order_by(AlertChannel.id)):
        tried = (
            select(AlertDelivery)
            .where(AlertDelivery.channel_id == channel.id, AlertDelivery.tenant_id == channel.tenant_id)
            .where(AlertDelivery.attempts > 0, AlertDelivery.state != "sending")
            .order_by(AlertDelivery.created_at.desc(), AlertDelivery.id.desc())
            .limit(1)
        )
        row = session.scalars(tried).first()
        if row is not None and row.last_error:
            found.append(ChannelFault(channel.id, channel.kind, row.state, row.last_error, row.created_at))
    return found


def _alert_ids(row: AlertDelivery) -> set[str]:
    ids = row.body.get("ids")
    return {str(each) for each in ids} if isinstance(ids, list) else set()


def _end(row: AlertDelivery, state: str, now: datetime, error: str) -> None:
    row.state, row.ended_at, row.next_attempt_at, row.last_error = state, now, None, error[:_MAX_ERROR]
