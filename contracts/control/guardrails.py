"""Rows of guardrail policies."""

from datetime import datetime

from sqlalchemy import JSON, String
from sqlalchemy.orm import Mapped, mapped_column

from contracts.control.base import Base, UtcDateTime


class Guardrail(Base):
    """A policy by its name; `rules` are the arguments of `contracts.guardrails.policy`."""

    __tablename__ = "guardrails"

    id: Mapped[str] = mapped_column(String(63), primary_key=True)
    rules: Mapped[dict[str, object]] = mapped_column(JSON, default=dict)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
