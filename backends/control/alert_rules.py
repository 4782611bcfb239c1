"""Alert rules, channels and silences in the control database."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

from sqlalchemy import select
from sqlalchemy.orm import Session

from backends.control.changes import Author, begin_change
from backends.control.organisation import check_reach
from backends.control.row_names import row_name
from backends.control.sealer import Sealer
from contracts.control import AlertChannel, AlertRule, AlertSilence, Budget
from contracts.errors import Conflict, InvalidRequest, NotFound
from contracts.recording.ids import uuid7
from contracts.recording.moments import unix_ns
from contracts.rules.alert_channels import check_channel, check_report, shown_address
from contracts.rules.alerts import Rule

RowT = TypeVar("RowT", AlertRule, AlertChannel, AlertSilence)
_NOUNS = {AlertRule: "rule", AlertChannel: "channel", AlertSilence: "silence"}


@dataclass(frozen=True, slots=True)
class NewRule:
    """A rule to create; see `contracts.rules.alerts.Rule`."""

    id: str
    kind: str
    tenant: str = ""
    settings: Mapping[str, object] = field(default_factory=dict)
    channels: Sequence[str] = ()
    is_active: bool = True


@dataclass(frozen=True, slots=True)
class RuleChange:
    """New values for a rule; `None` leaves one unchanged. A rule keeps its kind and its tenant."""

    settings: Mapping[str, object] | None = None
    channels: Sequence[str] | None = None
    is_active: bool | None = None


@dataclass(frozen=True, slots=True)
class NewSilence:
    """Suppresses notifications between two times: of alerts of one rule, or all, whose fingerprint begins with
    `subject`.
    """

    tenant: str
    ends_at: datetime
    starts_at: datetime | None = None  # None: now
    rule_id: str = ""
    subject: str = ""
    comment: str = ""


def create_rule(session: Session, author: Author, new: NewRule) -> AlertRule:
    """Add a rule.

    Raises InvalidRequest on an unknown kind or setting, Conflict if the id is in use, NotFound on an unknown tenant or
    channel, and on another tenant than the author is restricted to.
    """
    entry = begin_change(session, author, "alert_rule.create", _subject(new.tenant, new.id))
    rule = Rule.of(new.id, new.kind, new.tenant, tuple(new.channels), new.settings)
    check_reach(session, author, new.tenant)
    check_channels(session, author, new.tenant, new.channels)
    if session.get(AlertRule, new.id) is not None:
        raise Conflict(f"rule {new.id!r} exists already; choose another id", param="id")
    row = AlertRule(
        id=new.id,
        tenant_id=new.tenant,
        kind=rule.kind,
        settings=dict(new.settings),
        channels=list(new.channels),
        is_active=new.is_active,
        created_at=author.at,
        updated_at=author.at,
    )
    entry.detail = {"kind": rule.kind, "settings": dict(new.settings), "channels": list(new.channels)}
    session.add(row)
    session.flush()
    return row


def update_rule(session: Session, author: Author, rule_id: str, change: RuleChange) -> AlertRule:
    """Change a rule. Its open alerts stay while their conditions hold; those of a deactivated rule end without
    notification.

    Raises as `create_rule` does, and NotFound on a rule that is not the author's.
    """
    entry = begin_change(session, author, "alert_rule.update", rule_id)
    row = get_row(session, AlertRule, rule_id, tenant=author.tenant_id)
    entry.subject = _subject(row.tenant_id, rule_id)
    before = _rule_values(row)
    settings = row.settings if change.settings is None else dict(change.settings)
    channels = row.channels if change.channels is None else list(change.channels)
    Rule.of(row.id, row.kind, row.tenant_id, tuple(channels), settings)
    if change.channels is not None:
        check_channels(session, author, row.tenant_id, channels)
    row.settings, row.channels = settings, channels
    if change.is_active is not None:
        row.is_active = change.is_active
    row.updated_at = author.at
    entry.detail = {"kind": row.kind, "before": before, "after": _rule_values(row)}
    session.flush()
    return row


def create_channel(
    session: Session,
    author: Author,
    channel_id: str,
    tenant: str,
    kind: str,
    address: str,
    sealer: Sealer,
    *,
    severities: Sequence[str] = (),
    tenants: Sequence[str] = (),
    report: str = "",
) -> AlertChannel:
    """Add a channel; its address is stored encrypted and is in no audit entry. Raises as `create_rule` does.

    It accepts alerts of these `severities` and `tenants` only; empty: all. `report` is the interval of cost reports:
    day, week, month, or never.
    """
    begin_change(session, author, "alert_channel.create", _subject(tenant, channel_id), {"kind": kind})
    known = check_channel(kind, address)
    check_report(known, report)
    check_reach(session, author, tenant)
    if session.get(AlertChannel, channel_id) is not None:
        raise Conflict(f"channel {channel_id!r} exists already; choose another id", param="id")
    row = AlertChannel(
        id=channel_id,
        tenant_id=tenant,
        kind=known,
        address=sealer.seal(address),
        shown=shown_address(known, address),
        severities=list(severities),
        tenants=list(tenants),
        report=report,
        created_at=author.at,
    )
    session.add(row)
    session.flush()
    return row


@dataclass(frozen=True, slots=True)
class ChannelChange:
    """New values for a channel; `None` leaves one as it is. Its kind and tenant stay."""

    address: str | None = field(default=None, repr=False)
    severities: Sequence[str] | None = None
    tenants: Sequence[str] | None = None
    report: str | None = None


def update_channel(
    session: Session, author: Author, channel_id: str, change: ChannelChange, sealer: Sealer
) -> AlertChannel:
    """Change a channel; its address is stored encrypted and is in no audit entry.

    Raises NotFound, InvalidRequest on an invalid address.
    """
    entry = begin_change(session, author, "alert_channel.update", channel_id)
    row = get_row(session, AlertChannel, channel_id, tenant=author.tenant_id)
    entry.subject = _subject(row.tenant_id, channel_id)
    if change.address is not None:
        kind = check_channel(row.kind, change.address)
        row.address, row.shown = sealer.seal(change.address), shown_address(kind, change.address)
    row.severities = row.severities if change.severities is None else list(change.severities)
    row.tenants = row.tenants if change.tenants is None else list(change.tenants)
    row.report = row.report if change.report is None else change.report
    check_report(row.kind, row.report)
    after = {"severities": row.severities, "tenants": row.tenants, "report": row.report}
    entry.detail = {"after": after, "has_new_address": change.address is not None}
    session.flush()
    return row


def create_silence(session: Session, author: Author, new: NewSilence) -> AlertSilence:
    """Add a silence. Raises InvalidRequest if it ends before it begins or in the past, NotFound on an unknown rule."""
    silence_id = f"sil_{uuid7(unix_ns(author.at)).hex}"
    begin_change(session, author, "alert_silence.create", _subject(new.tenant, silence_id), {"rule": new.rule_id})
    check_reach(session, author, new.tenant)
    starts_at = new.starts_at or author.at
    if new.ends_at <= max(starts_at, author.at):
        raise InvalidRequest(
            f"ends_at is {new.ends_at.isoformat()}, which is past or before it begins; name a later moment",
            param="ends_at",
        )
    if new.rule_id:
        get_row(session, AlertRule, new.rule_id, tenant=new.tenant)
    row = AlertSilence(
        id=silence_id,
        tenant_id=new.tenant,
        rule_id=new.rule_id,
        subject=new.subject,
        starts_at=starts_at,
        ends_at=new.ends_at,
        comment=new.comment,
        created_at=author.at,
    )
    session.add(row)
    session.flush()
    return row


def list_rows(
    session: Session, table: type[RowT], *, tenant: str = "", after: str = "", limit: int = 100
) -> list[RowT]:
    """Return up to `limit` rows after an id, of one tenant if it is not empty."""
    wanted = select(table).where(table.id > after).order_by(table.id).limit(limit)
    return list(session.scalars(wanted.where(table.tenant_id == tenant) if tenant else wanted))


def get_row(session: Session, table: type[RowT], row_id: str, *, tenant: str = "") -> RowT:
    """Return a rule, channel or silence. Raises NotFound, also for one of another tenant than named."""
    row = session.get(table, row_id)
    if row is None or tenant not in ("", row.tenant_id):
        noun = _NOUNS[table]
        raise NotFound(
            f"{noun} {row_id!r} does not exist; `tollkeeper alerts {noun}s list` shows those that do",
            rows=[row_name(table, row_id)],
        )
    return row


def delete_row(session: Session, author: Author, table: type[RowT], row_id: str) -> None:
    """Remove a rule, channel or silence. Raises NotFound, and Conflict on a channel that a rule names."""
    row = get_row(session, table, row_id, tenant=author.tenant_id)
    begin_change(session, author, f"alert_{_NOUNS[table]}.delete", _subject(row.tenant_id, row_id))
    if isinstance(row, AlertChannel):
        users = [rule.id for rule in session.scalars(select(AlertRule)) if row_id in rule.channels]
        if users:
            raise Conflict(f"rule {users[0]!r} tells channel {row_id!r}; delete the rule first")
        budgets = [budget.id for budget in session.scalars(select(Budget)) if row_id in budget.channels]
        if budgets:
            raise Conflict(
                f"budget {budgets[0]!r} notifies channel {row_id!r}; change its channels first "
                f"(`tollkeeper budgets set {budgets[0]} --no-channels`)"
            )
    session.delete(row)
    session.flush()


@dataclass(frozen=True, slots=True)
class LoadedRules:
    """The active rules with their creation times, and the faults of unreadable rules, by id."""

    rules: list[tuple[Rule, datetime]]
    faults: dict[str, str]


def load_rules(session: Session) -> LoadedRules:
    """Return the active rules, including one for each budget that names channels.

    An unreadable rule is left out and listed in the faults; the others stay active.
    """
    loaded = LoadedRules([], {})
    for row in session.scalars(select(AlertRule).where(AlertRule.is_active).order_by(AlertRule.id)):
        try:
            rule = Rule.of(row.id, row.kind, row.tenant_id, tuple(row.channels), row.settings)
        except InvalidRequest as error:
            loaded.faults[row.id] = error.message
        else:
            loaded.rules.append((rule, row.created_at))
    for budget in session.scalars(select(Budget).order_by(Budget.id)):
        if budget.channels:
            loaded.rules.append((_rule_of_budget(budget), budget.created_at))
    return loaded


def _rule_of_budget(budget: Budget) -> Rule:
    """Return the rule that a budget with channels implies. Its id is not a slug, so no stored rule has it."""
    stated = Rule.of(budget.id, "budget_threshold", budget.tenant_id, tuple(budget.channels), {})
    return replace(stated, budget=budget.id)


def _subject(tenant: str, row_id: str) -> str:
    return f"{tenant}/{row_id}" if tenant else row_id


def _whose(tenant: str) -> str:
    return f"tenant {tenant!r}" if tenant else "the whole installation"


def _rule_values(row: AlertRule) -> dict[str, object]:
    return {"settings": dict(row.settings), "channels": list(row.channels), "is_active": row.is_active}


def check_channels(session: Session, author: Author, tenant: str, channels: Sequence[str]) -> None:
    """Raise NotFound if a channel does not exist, or may not be notified by the tenant's rule or budget."""
    for channel in channels:
        found = session.get(AlertChannel, channel)
        # A tenant's alerts go only to its own channels: other people may read the installation's.
        if found is None or found.tenant_id not in ("", tenant) or (found.tenant_id == "" and author.tenant_id):
            raise NotFound(
                f"channel {channel!r} does not exist for {_whose(tenant)}; `tollkeeper channels list` shows all",
                param="channels",
                rows=[row_name(AlertChannel, channel)],
            )
