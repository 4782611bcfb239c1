"""Adjustments of the books: corrections of recorded cost, booked once and never changed."""

from datetime import datetime
from decimal import Decimal

from sqlalchemy import BigInteger, ForeignKey, Index, Integer, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from contracts.control.base import Base, ExactDecimal, UtcDateTime, one_of
from contracts.pricing.book_entries import ADJUSTMENT_KINDS, ADJUSTMENT_STATES


class BookAdjustment(Base):
    """A correction as a whole: who made it, why, who approved it, and by which card.

    `tenant_id` and `model` are what it was limited to; empty: all. `reverses` is the adjustment that it undoes: one
    adjustment is undone at most once. `digest` is over its entries (`contracts.pricing.book_entries.entries_digest`).
    """

    __tablename__ = "book_adjustments"
    __table_args__ = (
        UniqueConstraint("reverses"),
        Index("ix_book_adjustments_tenant_id", "tenant_id"),
        one_of("kind", ADJUSTMENT_KINDS),
        one_of("state", ADJUSTMENT_STATES),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True)  # "adj_..." in the order of their making
    kind: Mapped[str] = mapped_column(String(20))
    state: Mapped[str] = mapped_column(String(20))
    tenant_id: Mapped[str] = mapped_column(String(63), default="")
    model: Mapped[str] = mapped_column(String(200), default="")
    starts_at: Mapped[datetime] = mapped_column(UtcDateTime)
    ends_at: Mapped[datetime] = mapped_column(UtcDateTime)
    card_version: Mapped[str] = mapped_column(String(120), default="")
    invoice: Mapped[str] = mapped_column(String(200), default="")  # that a credit is about
    reason: Mapped[str] = mapped_column(String(500))
    author: Mapped[str] = mapped_column(String(300))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    approved_by: Mapped[str] = mapped_column(String(300), default="")
    approved_at: Mapped[datetime | None] = mapped_column(UtcDateTime, default=None)
    reverses: Mapped[str | None] = mapped_column(String(40), default=None)
    entry_count: Mapped[int] = mapped_column(Integer)
    amount_usd: Mapped[Decimal] = mapped_column(ExactDecimal)
    digest: Mapped[str] = mapped_column(String(64))


class BookEntry(Base):
    """One line of an adjustment: a debit (above 0) or credit (below 0) of one group of requests.

    Counts are differences. `price_version` is the price as recorded, `period` the month that it is billed in.
    """

    __tablename__ = "book_entries"
    __table_args__ = (
        Index("ix_book_entries_tenant_id_period", "tenant_id", "period"),
        Index("ix_book_entries_used_at", "used_at"),
    )

    adjustment_id: Mapped[str] = mapped_column(ForeignKey("book_adjustments.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    tenant_id: Mapped[str] = mapped_column(String(200))
    team: Mapped[str] = mapped_column(String(200))
    project: Mapped[str] = mapped_column(String(200))
    key_id: Mapped[str] = mapped_column(String(200))
    model: Mapped[str] = mapped_column(String(200))
    provider: Mapped[str] = mapped_column(String(200))
    price_version: Mapped[str] = mapped_column(String(200))
    used_at: Mapped[datetime] = mapped_column(UtcDateTime)
    period: Mapped[str] = mapped_column(String(7))
    requests: Mapped[int] = mapped_column(BigInteger)
    amount_usd: Mapped[Decimal] = mapped_column(ExactDecimal)
    unpriced_requests: Mapped[int] = mapped_column(BigInteger)
    partly_unpriced_requests: Mapped[int] = mapped_column(BigInteger)
    unpriced_input_tokens: Mapped[int] = mapped_column(BigInteger)
    unpriced_output_tokens: Mapped[int] = mapped_column(BigInteger)
    estimated_usd: Mapped[Decimal] = mapped_column(ExactDecimal)
    estimated_requests: Mapped[int] = mapped_column(BigInteger)
