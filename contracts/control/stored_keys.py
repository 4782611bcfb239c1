"""Credentials of providers stored here, encrypted: targets refer to them as stored:NAME."""

from datetime import datetime

from sqlalchemy import Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from contracts.control.base import Base, UtcDateTime


class StoredKey(Base):
    """A provider's key, encrypted by `backends.control.sealer`. Its value is never shown again."""

    __tablename__ = "stored_keys"

    name: Mapped[str] = mapped_column(String(63), primary_key=True)
    sealed: Mapped[str] = mapped_column(Text)
    version: Mapped[int] = mapped_column(Integer, default=1)  # raised with every new value, not by re-encryption
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)
