"""Views of the dashboard that someone has given a name."""

from datetime import datetime
from typing import Final

from sqlalchemy import JSON, Boolean, Index, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from contracts.control.base import Base, UtcDateTime

# By page, the parameters of an address that a view may keep: what is asked for, and never what may be seen.
VIEW_PARAMETERS: Final[dict[str, frozenset[str]]] = {
    "requests": frozenset(
        {"range", "from", "to", "tenant", "team", "project", "key", "model", "q", "outcome", "sort"},
    ),
}


class SavedView(Base):
    """A page's address under a name. It carries no rights: who opens it sees what they may see.

    `owner_id` is an account's id, a token's, or `installation`, whose owner needs no account. `tenant_id` is what the
    owner is bound to, empty for nothing; a shared view is shown to those who are bound to just that.
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
