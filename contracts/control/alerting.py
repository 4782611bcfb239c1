"""Rows of alerting: rules, channels, silences, alerts and notifications."""

from datetime import datetime

from sqlalchemy import JSON, BigInteger, Boolean, Index, Integer, String, text
from sqlalchemy.orm import Mapped, mapped_column

from contracts.control.base import Base, UtcDateTime


class AlertRule(Base):
    """A condition and who is told. An empty `tenant_id` is the platform's: it covers all tenants, each on its own."""

    __tablename__ = "alert_rules"
    __table_args__ = (Index("ix_alert_rules_tenant_id", "tenant_id"),)

    id: Mapped[str] = mapped_column(String(63), primary_key=True)
    tenant_id: Mapped[str] = mapped_column(String(63), default="")
    kind: Mapped[str] = mapped_column(String(30))
    settings: Mapped[dict[str, object]] = mapped_column(JSON, default=dict)  # see contracts.rules.alerts
    channels: Mapped[list[str]] = mapped_column(JSON, default=list)  # ids
    is_active: Mapped[bool] = mapped_column(Boolean, default=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)


class AlertChannel(Base):
    """Where notices go. `address` is a URL, an e-mail address or PagerDuty's routing key, sealed, as it may be secret;
    `shown` is what may be seen of it."""

    __tablename__ = "alert_channels"
    __table_args__ = (Index("ix_alert_channels_tenant_id", "tenant_id"),)

    id: Mapped[str] = mapped_column(String(63), primary_key=True)
    tenant_id: Mapped[str] = mapped_column(String(63), default="")
    kind: Mapped[str] = mapped_column(String(20))
    address: Mapped[str] = mapped_column(String(1000))
    shown: Mapped[str] = mapped_column(String(500))
    severities: Mapped[list[str]] = mapped_column(JSON, default=list, server_default="[]")  # it takes; empty: all
    tenants: Mapped[list[str]] = mapped_column(JSON, default=list, server_default="[]")  # whose alerts; empty: all
    report: Mapped[str] = mapped_column(
        String(10), default="", server_default=text("''")
    )  # cost report each day|week|month
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class AlertSilence(Base):
    """Alerts of a rule or, if it is empty, of all rules are raised but not sent, for a while.

    `subject` keeps to alerts whose fingerprint begins with it.
    """

    __tablename__ = "alert_silences"
    __table_args__ = (Index("ix_alert_silences_tenant_id", "tenant_id"),)

    id: Mapped[str] = mapped_column(String(63), primary_key=True)
    tenant_id: Mapped[str] = mapped_column(String(63), default="")
    rule_id: Mapped[str] = mapped_column(String(63), default="")
    subject: Mapped[str] = mapped_column(String(300), default="")
    starts_at: Mapped[datetime] = mapped_column(UtcDateTime)
    ends_at: Mapped[datetime] = mapped_column(UtcDateTime)
    comment: Mapped[str] = mapped_column(String(200), default="")
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class Alert(Base):
    """A condition that came true for a subject, from then until it was no longer.

    `open_key` is the rule and fingerprint while it is open, and the alert's own id after: unique, so that two
    evaluators cannot open one twice. `notified_at` is when a notice was put in the outbox; `None`: silenced so far.
    """

    __tablename__ = "alerts"
    __table_args__ = (
        Index("ix_alerts_tenant_id", "tenant_id", "opened_at"),
        Index("ix_alerts_rule_id", "rule_id", "resolved_at"),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    rule_id: Mapped[str] = mapped_column(String(63))
    kind: Mapped[str] = mapped_column(String(30))
    tenant_id: Mapped[str] = mapped_column(String(63), default="")  # whom it is about; empty: the platform
    team_id: Mapped[str] = mapped_column(String(63), default="")
    fingerprint: Mapped[str] = mapped_column(String(400))
    open_key: Mapped[str] = mapped_column(String(500), unique=True)
    severity: Mapped[str] = mapped_column(String(10))  # page | ticket
    summary: Mapped[str] = mapped_column(String(500))
    facts: Mapped[dict[str, object]] = mapped_column(JSON, default=dict)
    opened_at: Mapped[datetime] = mapped_column(UtcDateTime)
    last_seen_at: Mapped[datetime] = mapped_column(UtcDateTime)
    resolved_at: Mapped[datetime | None] = mapped_column(UtcDateTime, default=None)
    notified_at: Mapped[datetime | None] = mapped_column(UtcDateTime, default=None)
    acknowledged_at: Mapped[datetime | None] = mapped_column(UtcDateTime, default=None)
    acknowledged_by: Mapped[str | None] = mapped_column(String(200), default=None)


class AlertDelivery(Base):
    """A notice to one channel: written with the alerts it tells of, sent after, and what became of it.

    `id` is made of the channel, the event and the alerts, so that the same notice cannot be written twice.
    """

    __tablename__ = "alert_deliveries"
    __table_args__ = (
        Index("ix_alert_deliveries_next_attempt_at", "next_attempt_at"),
        Index("ix_alert_deliveries_tenant_id", "tenant_id", "created_at"),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    channel_id: Mapped[str] = mapped_column(String(63))
    tenant_id: Mapped[str] = mapped_column(String(63), default="")  # the rule's owner's; empty: the platform
    event: Mapped[str] = mapped_column(String(10))  # firing | resolved | test | report
    body: Mapped[dict[str, object]] = mapped_column(JSON)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    state: Mapped[str] = mapped_column(String(10))  # waiting | sending | delivered | unknown | given_up
    attempts: Mapped[int] = mapped_column(Integer, default=0)
    next_attempt_at: Mapped[datetime | None] = mapped_column(UtcDateTime, default=None)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime, default=None)
    last_error: Mapped[str] = mapped_column(String(200), default="")


class Lease(Base):
    """Which process does something that one alone may do, until when. `term` rises with every new holder."""

    __tablename__ = "leases"

    name: Mapped[str] = mapped_column(String(63), primary_key=True)
    holder: Mapped[str] = mapped_column(String(200))
    term: Mapped[int] = mapped_column(BigInteger, default=0)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
