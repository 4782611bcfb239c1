"""Rows of the audit log, and the revision number that gateways poll."""

from datetime import datetime

from sqlalchemy import JSON, BigInteger, Index, Integer, String, text
from sqlalchemy.orm import Mapped, mapped_column

from contracts.control.base import Base, UtcDateTime


class AuditEntry(Base):
    """One change made through the control plane: who did what to which object, when, from where. Append-only."""

    __tablename__ = "audit"
    __table_args__ = (Index("ix_audit_at", "at"),)

    id: Mapped[int] = mapped_column(BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True)
    at: Mapped[datetime] = mapped_column(UtcDateTime)
    actor: Mapped[str] = mapped_column(String(200))
    action: Mapped[str] = mapped_column(String(60))  # "key.revoke"
    subject: Mapped[str] = mapped_column(String(300))  # "acme/key_0193..."
    address: Mapped[str] = mapped_column(String(64), default="")
    detail: Mapped[dict[str, object]] = mapped_column(JSON, default=dict)  # never a secret
    # The hash that links it to the previous entry, in hexadecimal; see `backends.control.audit_chain`. Set once, on
    # write.
    salt: Mapped[str] = mapped_column(String(32), default="", server_default=text("''"))
    facts_hash: Mapped[str] = mapped_column(String(64), default="", server_default=text("''"))
    prev: Mapped[str] = mapped_column(String(64), default="", server_default=text("''"))
    hash: Mapped[str] = mapped_column(String(64), default="", server_default=text("''"))


class Revision(Base):
    """One row: a counter raised in the transaction of every change that gateways must see.

    A gateway polls this number, not the tables. When it has changed, the keys' own revisions show which keys to read
    again, and `rules` and `serving` whether anything else changed: each is the number at the last change of that area.
    A gateway that knows a number below `keys_floor` cannot update by single keys and reads all of them.
    """

    __tablename__ = "revision"

    id: Mapped[int] = mapped_column(Integer, primary_key=True, default=1, autoincrement=False)
    number: Mapped[int] = mapped_column(BigInteger, default=0)
    rules: Mapped[int] = mapped_column(BigInteger, default=0, server_default=text("0"))
    serving: Mapped[int] = mapped_column(BigInteger, default=0, server_default=text("0"))
    keys_floor: Mapped[int] = mapped_column(BigInteger, default=0, server_default=text("0"))
