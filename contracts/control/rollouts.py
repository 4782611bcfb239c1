"""Rows of rollouts, and of each gateway's results."""

from datetime import datetime

from sqlalchemy import JSON, BigInteger, ForeignKey, Index, Integer, String
from sqlalchemy.orm import Mapped, mapped_column

from contracts.control.base import Base, UtcDateTime


class Rollout(Base):
    """A candidate that takes a share of a route's requests from an incumbent; see
    `contracts.serving.rollouts.RolloutSpec`.

    `rules` are the requested settings, validated by `contracts.serving.rollouts`; the other columns are its progress.
    `term` is raised with every change, so that only one of several gateways that act on the same state succeeds. `salt`
    (hex) keys the selection of participants.
    """

    __tablename__ = "rollouts"
    __table_args__ = (Index("ix_rollouts_route", "route"),)

    id: Mapped[str] = mapped_column(String(63), primary_key=True)
    route: Mapped[str] = mapped_column(String(200))
    incumbent: Mapped[str] = mapped_column(String(200))
    candidate: Mapped[str] = mapped_column(String(200))
    rules: Mapped[dict[str, object]] = mapped_column(JSON, default=dict)
    salt: Mapped[str] = mapped_column(String(64))
    state: Mapped[str] = mapped_column(String(20))
    step: Mapped[int] = mapped_column(Integer, default=0)
    term: Mapped[int] = mapped_column(Integer, default=1)
    reason: Mapped[str] = mapped_column(String(500), default="")  # of its last change
    stepped_at: Mapped[datetime] = mapped_column(UtcDateTime)  # start of its current step
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)


class RolloutObservation(Base):
    """What one gateway has measured of a rollout, written every second while it runs. It does not raise the revision.

    `seen` holds the tallies of both arms (`algorithms.rollouts.rollout_tally`), of the term `term`. `shadow_pico_usd`
    is the cost of its copies on `shadow_day` (UTC, ISO 8601), with the maximum cost of those in progress.
    """

    __tablename__ = "rollout_observations"

    rollout_id: Mapped[str] = mapped_column(ForeignKey("rollouts.id", ondelete="CASCADE"), primary_key=True)
    gateway: Mapped[str] = mapped_column(String(200), primary_key=True)
    term: Mapped[int] = mapped_column(Integer)
    seen: Mapped[dict[str, object]] = mapped_column(JSON, default=dict)
    shadow_day: Mapped[str] = mapped_column(String(10), default="")
    shadow_pico_usd: Mapped[int] = mapped_column(BigInteger, default=0)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)
