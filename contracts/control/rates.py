"""Dated rates for computing costs; the meaning of their values is in `contracts/pricing/rates.py`."""

from datetime import datetime

from sqlalchemy import JSON, CheckConstraint, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from contracts.control.base import Base, UtcDateTime
from contracts.pricing.rates import RATE_KINDS


class CostRate(Base):
    """The cost of a GPU hour, the value of a currency, or a tenant's terms, from a date on.

    `subject` is a GPU's UUID or model (empty: every GPU), a currency's code or a tenant. `rate` has numbers as text.
    """

    __tablename__ = "cost_rates"
    __table_args__ = (
        Index("ix_cost_rates_kind_subject", "kind", "subject"),
        CheckConstraint(f"kind IN ({', '.join(repr(kind) for kind in RATE_KINDS)})", name="kind"),
    )

    version: Mapped[str] = mapped_column(String(120), primary_key=True)
    kind: Mapped[str] = mapped_column(String(20))
    subject: Mapped[str] = mapped_column(String(200), default="")
    rate: Mapped[dict[str, object]] = mapped_column(JSON)
    valid_from: Mapped[datetime] = mapped_column(UtcDateTime)
    valid_to: Mapped[datetime | None] = mapped_column(UtcDateTime, default=None)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
