"""Costs and limits: price cards, standard cost cards, budgets with their state, limits."""

from datetime import datetime
from decimal import Decimal
from typing import get_args

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    String,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from contracts.control.base import Base, ExactDecimal, UtcDateTime, one_of
from contracts.rules.limits import BUDGET_LEVELS, LEVELS, MAX_AMOUNT, PERIODS, WINDOWS, WhenAway, WhenUnpriced
from contracts.rules.rule_words import MAX_GPU_MILLISECONDS


class Price(Base):
    """A dated price card. `card` holds USD per million tokens by usage leaf, tiers and the request fee as text.

    Prices for batches are stored beside the prices that they replace, for the card and for each tier.
    """

    __tablename__ = "prices"
    __table_args__ = (Index("ix_prices_model_valid_from", "model", "valid_from"),)

    version: Mapped[str] = mapped_column(String(120), primary_key=True)
    model: Mapped[str] = mapped_column(String(200))
    provider: Mapped[str] = mapped_column(String(63), default="")
    region: Mapped[str] = mapped_column(String(63), default="", server_default=text("''"))  # of targets; empty: all
    tenant_id: Mapped[str] = mapped_column(String(63), default="")  # empty: for all
    card: Mapped[dict[str, object]] = mapped_column(JSON)
    valid_from: Mapped[datetime] = mapped_column(UtcDateTime)
    valid_to: Mapped[datetime | None] = mapped_column(UtcDateTime, default=None)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class StandardCost(Base):
    """A dated standard cost card of a self-hosted model, USD per million tokens.

    A batch price is `NULL` if the card's other price applies to batches too.
    """

    __tablename__ = "standard_costs"
    __table_args__ = (Index("ix_standard_costs_model_valid_from", "model", "valid_from"),)

    version: Mapped[str] = mapped_column(String(120), primary_key=True)
    model: Mapped[str] = mapped_column(String(200))
    input_usd_per_mtok: Mapped[Decimal] = mapped_column(ExactDecimal)
    cached_input_usd_per_mtok: Mapped[Decimal] = mapped_column(ExactDecimal)
    output_usd_per_mtok: Mapped[Decimal] = mapped_column(ExactDecimal)
    batch_input_usd_per_mtok: Mapped[Decimal | None] = mapped_column(ExactDecimal, default=None)
    batch_cached_input_usd_per_mtok: Mapped[Decimal | None] = mapped_column(ExactDecimal, default=None)
    batch_output_usd_per_mtok: Mapped[Decimal | None] = mapped_column(ExactDecimal, default=None)
    origin: Mapped[str] = mapped_column(String(20), default="operator")  # "operator" or "fitted"
    evidence: Mapped[dict[str, object]] = mapped_column(JSON, default=dict)
    valid_from: Mapped[datetime] = mapped_column(UtcDateTime)
    valid_to: Mapped[datetime | None] = mapped_column(UtcDateTime, default=None)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class Budget(Base):
    """How much money or GPU time a level may use in a calendar period of its tenant's time zone.

    `level` is tenant | team | project | key | user | tag and `subject` the id within the tenant; "*" (for a tag
    "name=*") gives each subject its own budget. Exactly one of `amount_usd` and `gpu_milliseconds` is set.
    """

    __tablename__ = "budgets"
    __table_args__ = (
        Index("ix_budgets_tenant_id", "tenant_id"),
        one_of("level", BUDGET_LEVELS),
        one_of("period", PERIODS),
        one_of("when_away", get_args(WhenAway)),
        one_of("when_unpriced", get_args(WhenUnpriced)),
        CheckConstraint("(amount_usd IS NULL) <> (gpu_milliseconds IS NULL)", name="one_amount"),
        CheckConstraint("CAST(amount_usd AS NUMERIC) > 0", name="amount_usd_positive"),
        CheckConstraint(f"gpu_milliseconds BETWEEN 1 AND {MAX_GPU_MILLISECONDS}", name="gpu_milliseconds_range"),
        CheckConstraint("ends_at > starts_at", name="ends_after_start"),
    )

    id: Mapped[str] = mapped_column(String(63), primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id", ondelete="CASCADE"))
    level: Mapped[str] = mapped_column(String(20))
    subject: Mapped[str] = mapped_column(String(300), default="")
    model: Mapped[str] = mapped_column(String(200), default="")  # empty: all models together
    period: Mapped[str] = mapped_column(String(20))
    amount_usd: Mapped[Decimal | None] = mapped_column(ExactDecimal, default=None)
    gpu_milliseconds: Mapped[int | None] = mapped_column(BigInteger, default=None)
    is_hard: Mapped[bool] = mapped_column(Boolean, default=True)
    thresholds: Mapped[list[int]] = mapped_column(JSON, default=list)  # percent
    channels: Mapped[list[str]] = mapped_column(JSON, default=list, server_default="[]")  # alert channels, by id
    starts_at: Mapped[datetime | None] = mapped_column(UtcDateTime, default=None)
    ends_at: Mapped[datetime | None] = mapped_column(UtcDateTime, default=None)
    # Encrypted (`backends.control.sealer`), because its path may be a secret.
    webhook_url: Mapped[str] = mapped_column("webhook_sealed", String(1000), default="", server_default=text("''"))
    when_away: Mapped[str] = mapped_column(String(20), default="refuse")
    when_unpriced: Mapped[str] = mapped_column(String(20), default="refuse")
    # A change requested by one person that another must confirm; empty: none.
    proposal: Mapped[dict[str, object]] = mapped_column(JSON, default=dict, server_default="{}")
    proposed_by: Mapped[str] = mapped_column(String(300), default="", server_default=text("''"))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)


class BudgetState(Base):
    """What one gateway has charged to one subject of a budget in one period, in pico-USD or GPU nanoseconds.

    Gateways write it in the background; spending is the sum over gateways. `reserved` is in addition to `settled`, and
    so is `overdraft`: usage that could not be charged to the budget.
    """

    __tablename__ = "budget_states"
    __table_args__ = (ForeignKeyConstraint(["budget_id"], ["budgets.id"], ondelete="CASCADE"),)

    budget_id: Mapped[str] = mapped_column(String(63), primary_key=True)
    period_start: Mapped[datetime] = mapped_column(UtcDateTime, primary_key=True)
    subject: Mapped[str] = mapped_column(String(300), primary_key=True)
    gateway: Mapped[str] = mapped_column(String(200), primary_key=True)
    settled: Mapped[Decimal] = mapped_column(ExactDecimal)  # integers: a soft budget may exceed 64 bits
    reserved: Mapped[Decimal] = mapped_column(ExactDecimal)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)
    overdraft: Mapped[Decimal] = mapped_column(ExactDecimal, default=Decimal(0), server_default=text("'0'"))


class BudgetEvent(Base):
    """A passed threshold: once per budget, subject, period and threshold, whichever gateway detected it.

    `amount` and `spent` are in pico-USD or GPU nanoseconds. `next_attempt_at` is when the webhook is due; `NULL` if
    there is none, or it was delivered or given up; `last_error` is why the last attempt failed.
    """

    __tablename__ = "budget_events"
    __table_args__ = (
        UniqueConstraint("budget_id", "subject", "period_start", "threshold_percent"),
        ForeignKeyConstraint(["budget_id"], ["budgets.id"], ondelete="CASCADE"),
        Index("ix_budget_events_next_attempt_at", "next_attempt_at"),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True)  # "evt_..." in order of creation
    budget_id: Mapped[str] = mapped_column(String(63))
    subject: Mapped[str] = mapped_column(String(300))
    period_start: Mapped[datetime] = mapped_column(UtcDateTime)
    threshold_percent: Mapped[int] = mapped_column(Integer)
    at: Mapped[datetime] = mapped_column(UtcDateTime)
    amount: Mapped[Decimal] = mapped_column(ExactDecimal)
    spent: Mapped[Decimal] = mapped_column(ExactDecimal)
    delivered_at: Mapped[datetime | None] = mapped_column(UtcDateTime, default=None)
    attempts: Mapped[int] = mapped_column(Integer, default=0)
    next_attempt_at: Mapped[datetime | None] = mapped_column(UtcDateTime, default=None)
    last_error: Mapped[str] = mapped_column(String(200), default="")


class Limit(Base):
    """How much of a metric a level may use in a window. Empty `model`: all models together.

    `amount` is in the metric's unit (requests, tokens, slots, milliseconds); money is in `amount_usd` instead. The API
    and the reader of a row validate the metric, not the table: a new metric needs no migration.
    """

    __tablename__ = "limits"
    __table_args__ = (
        UniqueConstraint("tenant_id", "level", "subject", "model", "metric", "window"),
        one_of("level", LEVELS),
        one_of("window", ("", *WINDOWS)),
        one_of("when_away", get_args(WhenAway)),
        one_of("when_unpriced", get_args(WhenUnpriced)),
        CheckConstraint("(amount IS NULL) = (metric = 'usd')", name="amount_unless_usd"),
        CheckConstraint("(amount_usd IS NULL) = (metric <> 'usd')", name="amount_usd_where_usd"),
        CheckConstraint(f"amount BETWEEN 0 AND {MAX_AMOUNT}", name="amount_range"),
        CheckConstraint("CAST(amount_usd AS NUMERIC) >= 0", name="amount_usd_range"),
        CheckConstraint(
            "(\"window\" = '') = (metric = 'concurrency' OR level = 'conversation')", name="window_where_counted"
        ),
    )

    id: Mapped[str] = mapped_column(String(63), primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id", ondelete="CASCADE"))
    level: Mapped[str] = mapped_column(String(20))
    subject: Mapped[str] = mapped_column(String(300), default="")
    model: Mapped[str] = mapped_column(String(200), default="")
    metric: Mapped[str] = mapped_column(String(30))
    window: Mapped[str] = mapped_column(String(20), default="")
    amount: Mapped[int | None] = mapped_column(BigInteger, default=None)
    amount_usd: Mapped[Decimal | None] = mapped_column(ExactDecimal, default=None)
    when_away: Mapped[str] = mapped_column(String(20), default="share")
    when_unpriced: Mapped[str] = mapped_column(String(20), default="refuse")
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)
