"""Rows of alerting: rules, channels, silences, alerts and notifications."""

from datetime import datetime

from sqlalchemy import JSON, BigInteger, Boolean, Index, Integer, String, text
from sqlalchemy.orm import Mapped, mapped_column

from contracts.control.base import Base, UtcDateTime


class AlertRule(Base):
    """A condition and the channels to notify. An empty `tenant_id` means the whole installation: it covers all tenants,
    each evaluated separately.
    """

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
    """Where notifications go. `address` is a URL, an e-mail address or PagerDuty's routing key, encrypted, because it
    may be secret; `shown` is the part that may be shown.
    """

    __tablename__ = "alert_channels"
    __table_args__ = (Index("ix_alert_channels_tenant_id", "tenant_id"),)

    id: Mapped[str] = mapped_column(String(63), primary_key=True)
    tenant_id: Mapped[str] = mapped_column(String(63), default="")
    kind: Mapped[str] = mapped_column(String(20))
    address: Mapped[str] = mapped_column(String(1000))
    shown: Mapped[str] = mapped_column(String(500))
    severities: Mapped[list[str]] = mapped_column(JSON, default=list, server_default="[]")  # accepted; empty: all
    tenants: Mapped[list[str]] = mapped_column(JSON, default=list, server_default="[]")  # whose alerts; empty: all
    report: Mapped[str] = mapped_column(
        String(10), default="", server_default=text("''")
    )  # cost report each day|week|month
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class AlertSilence(Base):
    """A period in which alerts of a rule (empty: all rules) are raised but not sent.

    `subject` restricts it to alerts whose fingerprint starts with it.
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
    """A condition that held for a subject, from its start to its end.

    `open_key` is the rule and fingerprint while it is open, and the alert's own id afterwards: unique, so that two
    evaluators cannot open one twice. `notified_at` is when a notification was queued; `None`: silenced so far.
    """

    __tablename__ = "alerts"
    __table_args__ = (
        Index("ix_alerts_tenant_id", "tenant_id", "opened_at"),
        Index("ix_alerts_rule_id", "rule_id", "resolved_at"),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    rule_id: Mapped[str] = mapped_column(String(63))
    kind: Mapped[str] = mapped_column(String(30))
    tenant_id: Mapped[str] = mapped_column(String(63), default="")  # the tenant concerned; empty: the installation
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
    """A notification to one channel: queued with its alerts, sent afterwards, with the delivery's result.

    `id` is derived from the channel, the event and the alerts, so that the same notification cannot be queued twice.
    """

    __tablename__ = "alert_deliveries"
    __table_args__ = (
        Index("ix_alert_deliveries_next_attempt_at", "next_attempt_at"),
        Index("ix_alert_deliveries_tenant_id", "tenant_id", "created_at"),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    channel_id: Mapped[str] = mapped_column(String(63))
    tenant_id: Mapped[str] = mapped_column(String(63), default="")  # the rule owner's; empty: the whole installation
    event: Mapped[str] = mapped_column(String(10))  # firing | resolved | test | report
    body: Mapped[dict[str, object]] = mapped_column(JSON)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    state: Mapped[str] = mapped_column(String(10))  # waiting | sending | delivered | unknown | given_up
    attempts: Mapped[int] = mapped_column(Integer, default=0)
    next_attempt_at: Mapped[datetime | None] = mapped_column(UtcDateTime, default=None)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime, default=None)
    last_error: Mapped[str] = mapped_column(String(200), default="")


class Lease(Base):
    """Which process holds an exclusive task, and until when. `term` rises with every new holder."""

    __tablename__ = "leases"

    name: Mapped[str] = mapped_column(String(63), primary_key=True)
    holder: Mapped[str] = mapped_column(String(200))
    term: Mapped[int] = mapped_column(BigInteger, default=0)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
