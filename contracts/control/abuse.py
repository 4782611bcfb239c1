"""Rows of abuse incidents: one per key, kind, period and gateway."""

from datetime import datetime

from sqlalchemy import JSON, BigInteger, Boolean, Index, Integer, String
from sqlalchemy.orm import Mapped, mapped_column

from contracts.control.base import Base, UtcDateTime


class AbuseIncident(Base):
    """See `algorithms.abuse.incident.Incident`. Written by the gateway that detected it; `is_open` is as of its last
    report.
    """

    __tablename__ = "abuse_incidents"
    __table_args__ = (
        Index("ix_abuse_incidents_tenant_id", "tenant_id", "last_at"),
        Index("ix_abuse_incidents_last_at", "last_at"),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    gateway: Mapped[str] = mapped_column(String(200), default="")
    tenant_id: Mapped[str] = mapped_column(String(63))
    team_id: Mapped[str] = mapped_column(String(63), default="")
    key_id: Mapped[str] = mapped_column(String(63))
    kind: Mapped[str] = mapped_column(String(30))
    action: Mapped[str] = mapped_column(String(20))
    limit_count: Mapped[int] = mapped_column(Integer)
    window_seconds: Mapped[int] = mapped_column(Integer)
    peak: Mapped[int] = mapped_column(BigInteger)
    sightings: Mapped[int] = mapped_column(BigInteger)
    throttled: Mapped[int] = mapped_column(BigInteger)
    first_at: Mapped[datetime] = mapped_column(UtcDateTime)
    last_at: Mapped[datetime] = mapped_column(UtcDateTime)
    is_open: Mapped[bool] = mapped_column(Boolean)
    facts: Mapped[dict[str, object]] = mapped_column(JSON, default=dict)  # no prompt text; networks, not addresses
