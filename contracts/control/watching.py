"""What is promised and who is told: service level objectives, alerts, and the audit trail."""

from datetime import datetime

from sqlalchemy import JSON, BigInteger, Boolean, Float, Index, Integer, String, text
from sqlalchemy.orm import Mapped, mapped_column

from contracts.control.base import Base, UtcDateTime


class Slo(Base):
    """A promise as data: which events count, which of them are good, and the target share."""

    __tablename__ = "slos"

    id: Mapped[str] = mapped_column(String(63), primary_key=True)
    indicator: Mapped[str] = mapped_column(String(30))  # ttft | inter_token | end_to_end | availability | goodput
    threshold_ms: Mapped[float | None] = mapped_column(Float, default=None)
    target: Mapped[float] = mapped_column(Float)  # 0 < target < 1
    window_days: Mapped[int] = mapped_column(Integer, default=28)
    match: Mapped[dict[str, object]] = mapped_column(JSON, default=dict)  # tenant, model, route, prompt class
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class Alert(Base):
    """A rule that notifies a channel. `rule` and `channel` are validated by analytics."""

    __tablename__ = "alerts"

    id: Mapped[str] = mapped_column(String(63), primary_key=True)
    tenant_id: Mapped[str] = mapped_column(String(63), default="")
    rule: Mapped[dict[str, object]] = mapped_column(JSON)
    channel: Mapped[dict[str, object]] = mapped_column(JSON, default=dict)
    is_active: Mapped[bool] = mapped_column(Boolean, default=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class AuditEntry(Base):
    """One change made through the control plane: who did what to which thing, when, from where. Append-only."""

    __tablename__ = "audit"
    __table_args__ = (Index("ix_audit_at", "at"),)

    id: Mapped[int] = mapped_column(BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True)
    at: Mapped[datetime] = mapped_column(UtcDateTime)
    actor: Mapped[str] = mapped_column(String(200))
    action: Mapped[str] = mapped_column(String(60))  # "key.revoke"
    subject: Mapped[str] = mapped_column(String(300))  # "acme/key_0193..."
    address: Mapped[str] = mapped_column(String(64), default="")
    detail: Mapped[dict[str, object]] = mapped_column(JSON, default=dict)  # never a secret


class Revision(Base):
    """One row: a counter raised in the transaction of every change the gateways must see.

    A gateway polls this number, not the tables. Once it has moved, the keys' own revisions say which keys to read
    again, and `rules` and `serving` whether anything else has to be: each is the number at the last change of that
    area. A gateway that knows a number below `keys_floor` cannot be told by the keys alone and reads them all.
    """

    __tablename__ = "revision"

    id: Mapped[int] = mapped_column(Integer, primary_key=True, default=1, autoincrement=False)
    number: Mapped[int] = mapped_column(BigInteger, default=0)
    rules: Mapped[int] = mapped_column(BigInteger, default=0, server_default=text("0"))
    serving: Mapped[int] = mapped_column(BigInteger, default=0, server_default=text("0"))
    keys_floor: Mapped[int] = mapped_column(BigInteger, default=0, server_default=text("0"))
