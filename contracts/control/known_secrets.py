"""Fingerprints of an installation's secrets, so that replaced ones are detected."""

from datetime import datetime

from sqlalchemy import String, Text
from sqlalchemy.orm import Mapped, mapped_column

from contracts.control.base import Base, UtcDateTime


class KnownSecret(Base):
    """One file of the secrets directory. `public`: for the key that signs the audit log, its public keys as PEM."""

    __tablename__ = "known_secrets"

    name: Mapped[str] = mapped_column(String(63), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(64))
    public: Mapped[str] = mapped_column(Text, default="")
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
