"""Tenant (= organisation), team, project. Ids are slugs that never change; names may.

The slug is on every record, so a report from last year can still be read.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from sqlalchemy import JSON, Boolean, ForeignKey, ForeignKeyConstraint, Integer, String
from sqlalchemy.orm import Mapped, mapped_column

from contracts.control.base import Base, UtcDateTime

CONTENT_SETTING: Final = "keeps_content"  # in a tenant's settings
AUDIT_SETTING: Final = "audits_requests"  # also in a tenant's settings
SLUG_PATTERN: Final = r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$"


class Tenant(Base):
    """An organisation: the top level for billing, and the boundary that no cache or row crosses."""

    __tablename__ = "tenants"

    id: Mapped[str] = mapped_column(String(63), primary_key=True)
    name: Mapped[str] = mapped_column(String(200))
    time_zone: Mapped[str] = mapped_column(String(64), default="UTC")  # of budgets' calendar
    weight: Mapped[int] = mapped_column(Integer, default=1)  # share under contention
    is_active: Mapped[bool] = mapped_column(Boolean, default=True)
    settings: Mapped[dict[str, object]] = mapped_column(JSON, default=dict)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)

    @property
    def keeps_content(self) -> bool:
        """Return whether its prompts and answers are stored, redacted. False unless it was switched on."""
        return keeps_content(self.settings)

    @property
    def audits_requests(self) -> bool:
        """Return whether each of its requests has an entry in the audit log. False unless it was switched on."""
        return audits_requests(self.settings)


def keeps_content(settings: Mapping[str, object]) -> bool:
    """Return whether a tenant's settings switch on content storage."""
    return settings.get(CONTENT_SETTING) is True


def audits_requests(settings: Mapping[str, object]) -> bool:
    """Return whether a tenant's settings switch on the audit of requests."""
    return settings.get(AUDIT_SETTING) is True


class Team(Base):
    """A group within a tenant, with its own budgets and lead."""

    __tablename__ = "teams"

    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id", ondelete="CASCADE"), primary_key=True)
    id: Mapped[str] = mapped_column(String(63), primary_key=True)
    name: Mapped[str] = mapped_column(String(200))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class Project(Base):
    """A project of one team: the lowest level for budgets."""

    __tablename__ = "projects"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "team_id"], ["teams.tenant_id", "teams.id"], ondelete="CASCADE"),
    )

    tenant_id: Mapped[str] = mapped_column(String(63), primary_key=True)
    team_id: Mapped[str] = mapped_column(String(63), primary_key=True)
    id: Mapped[str] = mapped_column(String(63), primary_key=True)
    name: Mapped[str] = mapped_column(String(200))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
