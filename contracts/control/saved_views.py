"""Saved views of the dashboard."""

from datetime import datetime
from typing import Final

from sqlalchemy import JSON, Boolean, Index, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from contracts.control.base import Base, UtcDateTime

# By page, the URL parameters that a view may store: filters, never permissions.
VIEW_PARAMETERS: Final[dict[str, frozenset[str]]] = {
    "requests": frozenset(
        {"range", "from", "to", "tenant", "team", "project", "key", "model", "q", "outcome", "sort"},
    ),
}


class SavedView(Base):
    """A page's URL under a name. It grants no access: everyone who opens it sees what their own role allows.

    `owner_id` is the id of an account or token, or `installation` for the owner, who needs no account. `tenant_id` is
    the tenant that the owner is restricted to, empty for none; a shared view is shown to users with the same
    restriction.
    """

    __tablename__ = "saved_views"
    __table_args__ = (
        UniqueConstraint("owner_id", "page", "name"),
        Index("ix_saved_views_tenant_id", "tenant_id"),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    owner_id: Mapped[str] = mapped_column(String(40))
    tenant_id: Mapped[str] = mapped_column(String(63), default="")
    page: Mapped[str] = mapped_column(String(20))
    name: Mapped[str] = mapped_column(String(80))
    parameters: Mapped[dict[str, str]] = mapped_column(JSON, default=dict)
    is_shared: Mapped[bool] = mapped_column(Boolean, default=False)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)
