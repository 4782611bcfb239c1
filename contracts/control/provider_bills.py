"""Providers' bills, the meaning of names in them, and the results of reconciling them with recorded usage."""

from datetime import datetime
from decimal import Decimal
from typing import Final

from sqlalchemy import JSON, Index, Integer, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from contracts.control.base import Base, ExactDecimal, UtcDateTime, one_of

BILL_NAME_KINDS: Final = ("key", "model")


class ProviderBill(Base):
    """One imported file. `lines` are all of its lines, packed: they are written and read together.

    `digest` is of the file, which can be imported once. `usd_rate` is the USD value of one unit of its currency.
    """

    __tablename__ = "provider_bills"
    __table_args__ = (UniqueConstraint("digest"), Index("ix_provider_bills_provider_month", "provider", "month"))

    id: Mapped[str] = mapped_column(String(40), primary_key=True)  # "bill_..." in the order of import
    provider: Mapped[str] = mapped_column(String(63))
    month: Mapped[str] = mapped_column(String(7))
    format: Mapped[str] = mapped_column(String(20))
    name: Mapped[str] = mapped_column(String(200), default="")
    currency: Mapped[str] = mapped_column(String(3))
    usd_rate: Mapped[Decimal] = mapped_column(ExactDecimal)
    line_count: Mapped[int] = mapped_column(Integer)
    skipped: Mapped[int] = mapped_column(Integer)
    billed_usd: Mapped[Decimal] = mapped_column(ExactDecimal)
    digest: Mapped[str] = mapped_column(String(64))
    author: Mapped[str] = mapped_column(String(300))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    lines: Mapped[str] = mapped_column(Text, deferred=True)


class ProviderBillName(Base):
    """The meaning of a name in a provider's bills: for a key (or project, account, resource) the target that uses it,
    empty for any of the provider's; for a model the name that applications use.
    """

    __tablename__ = "provider_bill_names"
    __table_args__ = (one_of("kind", BILL_NAME_KINDS),)

    provider: Mapped[str] = mapped_column(String(63), primary_key=True)
    kind: Mapped[str] = mapped_column(String(10), primary_key=True)
    name: Mapped[str] = mapped_column(String(300), primary_key=True)
    meaning: Mapped[str] = mapped_column(String(200), default="")


class Reconciliation(Base):
    """The latest result of reconciling a provider's month; `causes` are USD by cause. `bills` is a digest of the files
    and names that it is based on.
    """

    __tablename__ = "reconciliations"

    provider: Mapped[str] = mapped_column(String(63), primary_key=True)
    month: Mapped[str] = mapped_column(String(7), primary_key=True)
    computed_at: Mapped[datetime] = mapped_column(UtcDateTime)
    bills: Mapped[str] = mapped_column(String(64))
    billed_usd: Mapped[Decimal] = mapped_column(ExactDecimal)
    recorded_usd: Mapped[Decimal] = mapped_column(ExactDecimal)
    unknown_usd: Mapped[Decimal] = mapped_column(ExactDecimal)
    causes: Mapped[dict[str, str]] = mapped_column(JSON, default=dict)
    differences: Mapped[str] = mapped_column(Text, deferred=True)  # packed
