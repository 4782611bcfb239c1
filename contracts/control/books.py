"""The books: corrections of recorded cost, closed months, and issued invoices and credit notes."""

from datetime import datetime
from decimal import Decimal

from sqlalchemy import JSON, BigInteger, Boolean, ForeignKey, Index, Integer, String, Text, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from contracts.control.base import Base, ExactDecimal, UtcDateTime, one_of
from contracts.pricing.book_entries import ADJUSTMENT_KINDS, ADJUSTMENT_STATES, DOCUMENT_KINDS, PERIOD_STATES


class BookAdjustment(Base):
    """A complete correction: who made it, why, who approved it, and by which card.

    `tenant_id` and `model` restrict it; empty: all. `reverses` is the adjustment that it undoes: each adjustment is
    undone at most once. `digest` covers its entries (`contracts.pricing.book_entries.entries_digest`).
    """

    __tablename__ = "book_adjustments"
    __table_args__ = (
        UniqueConstraint("reverses"),
        Index("ix_book_adjustments_tenant_id", "tenant_id"),
        one_of("kind", ADJUSTMENT_KINDS),
        one_of("state", ADJUSTMENT_STATES),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True)  # "adj_..." in order of creation
    kind: Mapped[str] = mapped_column(String(20))
    state: Mapped[str] = mapped_column(String(20))
    tenant_id: Mapped[str] = mapped_column(String(63), default="")
    model: Mapped[str] = mapped_column(String(200), default="")
    starts_at: Mapped[datetime] = mapped_column(UtcDateTime)
    ends_at: Mapped[datetime] = mapped_column(UtcDateTime)
    card_version: Mapped[str] = mapped_column(String(120), default="")
    invoice: Mapped[str] = mapped_column(String(200), default="")  # that a credit belongs to
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
    """One line of an adjustment: a debit (above 0) or credit (below 0) for one group of requests.

    Counts are differences. `price_version` is the recorded price, `period` the month in which it is billed.
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


class BookProfile(Base):
    """A tenant's details on invoices, or (`tenant_id` empty) the issuer's.

    `taxes` are names and percents, such as {"VAT": "19"}. `is_two_person` is set on the issuer only: corrections,
    closing and reopening need a second person, and so does ending this, which `one_person_asked_by` has requested.
    """

    __tablename__ = "book_profiles"

    tenant_id: Mapped[str] = mapped_column(String(63), primary_key=True)
    legal_name: Mapped[str] = mapped_column(String(200), default="")
    address: Mapped[str] = mapped_column(String(1000), default="")  # lines
    tax_id: Mapped[str] = mapped_column(String(60), default="")
    purchase_order: Mapped[str] = mapped_column(String(100), default="")
    currency: Mapped[str] = mapped_column(String(3), default="USD")
    due_days: Mapped[int] = mapped_column(Integer, default=30)
    taxes: Mapped[dict[str, str]] = mapped_column(JSON, default=dict)
    is_two_person: Mapped[bool] = mapped_column(Boolean, default=False)
    one_person_asked_by: Mapped[str] = mapped_column(String(300), default="", server_default=text("''"))
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)


class BookPeriod(Base):
    """A month of a tenant's calendar that is in review or closed; a month without a row is a draft.

    `version` counts how often it was closed. `wish` is a change requested by one person that another must confirm.
    """

    __tablename__ = "book_periods"
    __table_args__ = (one_of("state", PERIOD_STATES),)

    tenant_id: Mapped[str] = mapped_column(String(63), primary_key=True)
    month: Mapped[str] = mapped_column(String(7), primary_key=True)
    state: Mapped[str] = mapped_column(String(20))
    version: Mapped[int] = mapped_column(Integer, default=0)
    invoice: Mapped[str] = mapped_column(String(40), default="")  # issued when it was closed
    changed_by: Mapped[str] = mapped_column(String(300))
    changed_at: Mapped[datetime] = mapped_column(UtcDateTime)
    reason: Mapped[str] = mapped_column(String(500), default="")
    wish: Mapped[str] = mapped_column(String(20), default="")
    wished_by: Mapped[str] = mapped_column(String(300), default="")


class BookDocument(Base):
    """An invoice, credit note or cancellation as it was issued; never changed.

    `net_usd` is the amount for usage and corrections before terms, currency and tax, `net_by_month` the same by the
    month of the usage. `digest` covers `html` and the PDF.
    """

    __tablename__ = "book_documents"
    __table_args__ = (
        Index("ix_book_documents_tenant_id_month", "tenant_id", "month"),
        one_of("kind", DOCUMENT_KINDS),
    )

    number: Mapped[str] = mapped_column(String(40), primary_key=True)
    kind: Mapped[str] = mapped_column(String(20))
    tenant_id: Mapped[str] = mapped_column(String(63))
    month: Mapped[str] = mapped_column(String(7))
    version: Mapped[int] = mapped_column(Integer)
    corrects: Mapped[str] = mapped_column(String(40), default="")  # the invoice that it credits or cancels
    adjustment_id: Mapped[str] = mapped_column(String(40), default="")
    reason: Mapped[str] = mapped_column(String(500), default="")
    author: Mapped[str] = mapped_column(String(300))
    issued_at: Mapped[datetime] = mapped_column(UtcDateTime)
    due_at: Mapped[datetime | None] = mapped_column(UtcDateTime, default=None)
    currency: Mapped[str] = mapped_column(String(3))
    usd_rate: Mapped[Decimal] = mapped_column(ExactDecimal)
    net_usd: Mapped[Decimal] = mapped_column(ExactDecimal)
    net_by_month: Mapped[dict[str, str]] = mapped_column(JSON)
    subtotal: Mapped[Decimal] = mapped_column(ExactDecimal)
    tax: Mapped[Decimal] = mapped_column(ExactDecimal)
    taxes: Mapped[list[list[str]]] = mapped_column(JSON)  # names with percent and amount
    payable: Mapped[Decimal] = mapped_column(ExactDecimal)
    # Amounts that the terms add, by name.
    terms: Mapped[list[list[str]]] = mapped_column(JSON, default=list, server_default="[]")
    html: Mapped[str] = mapped_column(Text)
    pdf_base64: Mapped[str] = mapped_column(Text)
    digest: Mapped[str] = mapped_column(String(64))
