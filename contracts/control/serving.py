"""Rows of models, pools, targets, routes and playbooks."""

from datetime import datetime

from sqlalchemy import JSON, Boolean, ForeignKey, Integer, String
from sqlalchemy.orm import Mapped, mapped_column

from contracts.control.base import Base, UtcDateTime


class Pool(Base):
    """A set of interchangeable replicas of one model. `policy` names how one is chosen."""

    __tablename__ = "pools"

    id: Mapped[str] = mapped_column(String(63), primary_key=True)
    policy: Mapped[str] = mapped_column(String(40), default="round_robin")
    region: Mapped[str] = mapped_column(String(63), default="")
    settings: Mapped[dict[str, object]] = mapped_column(JSON, default=dict)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class Target(Base):
    """One replica: its address and protocol.

    `kind` is an adapter of `backends/llm`: "scripted", "openai_http", ... `key_ref` names where the credential is
    stored ("env:NAME" or "file:PATH"), never the credential.
    """

    __tablename__ = "targets"

    pool_id: Mapped[str] = mapped_column(ForeignKey("pools.id", ondelete="CASCADE"), primary_key=True)
    id: Mapped[str] = mapped_column(String(63), primary_key=True)
    kind: Mapped[str] = mapped_column(String(40))
    url: Mapped[str] = mapped_column(String(500), default="")
    model: Mapped[str] = mapped_column(String(200), default="")  # its name upstream
    provider: Mapped[str] = mapped_column(String(63), default="")
    key_ref: Mapped[str] = mapped_column(String(200), default="")
    weight: Mapped[int] = mapped_column(Integer, default=1)
    settings: Mapped[dict[str, object]] = mapped_column(JSON, default=dict)


class Model(Base):
    """A name that applications ask for, and the pool that serves it."""

    __tablename__ = "models"

    id: Mapped[str] = mapped_column(String(200), primary_key=True)
    pool_id: Mapped[str] = mapped_column(ForeignKey("pools.id"))
    description: Mapped[str] = mapped_column(String(500), default="")
    context_tokens: Mapped[int | None] = mapped_column(Integer, default=None)
    is_active: Mapped[bool] = mapped_column(Boolean, default=True)
    settings: Mapped[dict[str, object]] = mapped_column(JSON, default=dict)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class Route(Base):
    """A name that resolves to ordered targets under conditions; the gateway validates `rules`."""

    __tablename__ = "routes"

    id: Mapped[str] = mapped_column(String(200), primary_key=True)
    rules: Mapped[dict[str, object]] = mapped_column(JSON, default=dict)
    is_active: Mapped[bool] = mapped_column(Boolean, default=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class OutagePlaybook(Base):
    """What happens while a whole provider is down; see `contracts.serving.failures.Playbook`."""

    __tablename__ = "playbooks"

    provider: Mapped[str] = mapped_column(String(63), primary_key=True)
    rules: Mapped[dict[str, object]] = mapped_column(JSON, default=dict)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
