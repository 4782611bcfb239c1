"""What things cost and how much may be used: price cards, standard cost cards, budgets, limits."""

from datetime import datetime
from decimal import Decimal

from sqlalchemy import JSON, BigInteger, Boolean, ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from contracts.control.base import Base, ExactDecimal, UtcDateTime


class Price(Base):
    """A dated price card. `card` holds USD per million tokens by usage leaf, tiers and the request fee as text."""

    __tablename__ = "prices"
    __table_args__ = (Index("ix_prices_model_valid_from", "model", "valid_from"),)

    version: Mapped[str] = mapped_column(String(120), primary_key=True)
    model: Mapped[str] = mapped_column(String(200))
    provider: Mapped[str] = mapped_column(String(63), default="")
    tenant_id: Mapped[str] = mapped_column(String(63), default="")  # empty: for all
    card: Mapped[dict[str, object]] = mapped_column(JSON)
    valid_from: Mapped[datetime] = mapped_column(UtcDateTime)
    valid_to: Mapped[datetime | None] = mapped_column(UtcDateTime, default=None)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class StandardCost(Base):
    """A dated standard cost card of a model of our own, USD per million tokens."""

    __tablename__ = "standard_costs"
    __table_args__ = (Index("ix_standard_costs_model_valid_from", "model", "valid_from"),)

    version: Mapped[str] = mapped_column(String(120), primary_key=True)
    model: Mapped[str] = mapped_column(String(200))
    input_usd_per_mtok: Mapped[Decimal] = mapped_column(ExactDecimal)
    cached_input_usd_per_mtok: Mapped[Decimal] = mapped_column(ExactDecimal)
    output_usd_per_mtok: Mapped[Decimal] = mapped_column(ExactDecimal)
    origin: Mapped[str] = mapped_column(String(20), default="operator")  # or "fitted"
    evidence: Mapped[dict[str, object]] = mapped_column(JSON, default=dict)
    valid_from: Mapped[datetime] = mapped_column(UtcDateTime)
    valid_to: Mapped[datetime | None] = mapped_column(UtcDateTime, default=None)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class Budget(Base):
    """How much money or GPU time a level may use in a calendar period of its tenant's time zone.

    `level` is tenant | team | project | key | user | tag and `subject` the id within the tenant. Exactly one of
    `amount_usd` and `gpu_milliseconds` is set.
    """

    __tablename__ = "budgets"

    id: Mapped[str] = mapped_column(String(63), primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id", ondelete="CASCADE"))
    level: Mapped[str] = mapped_column(String(20))
    subject: Mapped[str] = mapped_column(String(200), default="")
    period: Mapped[str] = mapped_column(String(20))  # day | week | month | total
    amount_usd: Mapped[Decimal | None] = mapped_column(ExactDecimal, default=None)
    gpu_milliseconds: Mapped[int | None] = mapped_column(BigInteger, default=None)
    is_hard: Mapped[bool] = mapped_column(Boolean, default=True)
    thresholds: Mapped[list[int]] = mapped_column(JSON, default=list)  # percent
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class Limit(Base):
    """How much of a metric a level may use in a window. `model` empty means over all models."""

    __tablename__ = "limits"

    id: Mapped[str] = mapped_column(String(63), primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id", ondelete="CASCADE"))
    level: Mapped[str] = mapped_column(String(20))
    subject: Mapped[str] = mapped_column(String(200), default="")
    model: Mapped[str] = mapped_column(String(200), default="")
    metric: Mapped[str] = mapped_column(String(30))  # requests | input_tokens | output_tokens | tokens | ...
    window: Mapped[str] = mapped_column(String(20))  # second | minute | hour | day | concurrent
    amount: Mapped[int] = mapped_column(BigInteger)
    settings: Mapped[dict[str, object]] = mapped_column(JSON, default=dict)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
