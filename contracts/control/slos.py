"""Rows of objectives, and of holds while an objective is at risk."""

from datetime import datetime
from decimal import Decimal

from sqlalchemy import JSON, Boolean, Index, Integer, String
from sqlalchemy.orm import Mapped, mapped_column

from contracts.control.base import Base, ExactDecimal, UtcDateTime


class Slo(Base):
    """A service level objective: which requests count, which of them are good, and the required share.

    Empty `tenant_id`, `model`, `route` and `prompt_class` mean all. See `contracts.rules.objectives.Objective`.
    """

    __tablename__ = "slos"
    __table_args__ = (Index("ix_slos_tenant_id", "tenant_id"),)

    id: Mapped[str] = mapped_column(String(63), primary_key=True)
    tenant_id: Mapped[str] = mapped_column(String(63), default="")
    model: Mapped[str] = mapped_column(String(200), default="")
    route: Mapped[str] = mapped_column(String(200), default="")
    prompt_class: Mapped[str] = mapped_column(String(20), default="")
    indicator: Mapped[str] = mapped_column(String(20))
    thresholds_ms: Mapped[dict[str, str]] = mapped_column(JSON, default=dict)  # by indicator, as exact decimal text
    target_percent: Mapped[Decimal] = mapped_column(ExactDecimal)
    window_days: Mapped[int] = mapped_column(Integer, default=28)
    min_events: Mapped[int] = mapped_column(Integer, default=20)
    hooks: Mapped[list[str]] = mapped_column(JSON, default=list)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)


class PolicyHold(Base):
    """A hold set by an objective at risk: `freeze_canaries` or `shed_batch`, for a tenant, model, route or all.

    Written by the alert evaluator; an ended hold stays, with `is_active` false and its end. A hold that is not renewed
    ends at `until`.
    """

    __tablename__ = "policy_holds"

    slo_id: Mapped[str] = mapped_column(String(63), primary_key=True)
    hook: Mapped[str] = mapped_column(String(30), primary_key=True)
    tenant_id: Mapped[str] = mapped_column(String(63), default="")
    model: Mapped[str] = mapped_column(String(200), default="")
    route: Mapped[str] = mapped_column(String(200), default="")
    is_active: Mapped[bool] = mapped_column(Boolean)
    since: Mapped[datetime] = mapped_column(UtcDateTime)
    until: Mapped[datetime] = mapped_column(UtcDateTime)
    reason: Mapped[str] = mapped_column(String(300), default="")
