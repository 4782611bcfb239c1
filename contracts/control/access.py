"""Who may come in: API keys of applications, users of the control plane and dashboard, and their roles."""

from datetime import datetime
from enum import StrEnum
from typing import Final

from sqlalchemy import JSON, Boolean, Enum, ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from contracts.control.base import Base, UtcDateTime


class Role(StrEnum):
    """What a person may do. `OWNER` and `ADMIN` write, `FINANCE` reads money, `TEAM_LEAD` sees one team."""

    OWNER = "owner"
    ADMIN = "admin"
    FINANCE = "finance"
    TEAM_LEAD = "team_lead"


# Kept as the role's own word, and checked going in: a word that is no role could never be read again.
_ROLE: Final = Enum(
    Role,
    native_enum=False,
    length=20,
    validate_strings=True,
    values_callable=lambda roles: [role.value for role in roles],
)


class ApiKey(Base):
    """A key of an application. The secret is shown once; what is kept is HMAC-SHA-256(pepper, key)."""

    __tablename__ = "api_keys"
    __table_args__ = (Index("ix_api_keys_tenant_id", "tenant_id"),)

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id", ondelete="CASCADE"))
    team_id: Mapped[str] = mapped_column(String(63), default="")
    project_id: Mapped[str] = mapped_column(String(63), default="")
    name: Mapped[str] = mapped_column(String(200))
    digest: Mapped[str] = mapped_column(String(64), unique=True)  # hex
    hint: Mapped[str] = mapped_column(String(8))  # the last four characters, to tell keys apart
    is_service_account: Mapped[bool] = mapped_column(Boolean, default=False)
    scopes: Mapped[dict[str, object]] = mapped_column(JSON, default=dict)  # models, endpoints, addresses
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime, default=None)
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime, default=None)
    replaces_id: Mapped[str | None] = mapped_column(String(40), default=None)  # rotation with overlap


class User(Base):
    """A person who signs in to the dashboard or the control plane."""

    __tablename__ = "users"

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    email: Mapped[str] = mapped_column(String(320), unique=True)
    name: Mapped[str] = mapped_column(String(200), default="")
    password_digest: Mapped[str | None] = mapped_column(String(200), default=None)  # None: signs in by OIDC
    is_active: Mapped[bool] = mapped_column(Boolean, default=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class RoleGrant(Base):
    """A user's role: platform-wide where `tenant_id` is empty, else within a tenant, or one team of it."""

    __tablename__ = "role_grants"

    user_id: Mapped[str] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), primary_key=True)
    tenant_id: Mapped[str] = mapped_column(String(63), primary_key=True, default="")
    team_id: Mapped[str] = mapped_column(String(63), primary_key=True, default="")
    role: Mapped[Role] = mapped_column(_ROLE)


class AdminToken(Base):
    """A token for the control plane's API, made at first start; kept as a digest like an API key."""

    __tablename__ = "admin_tokens"

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    name: Mapped[str] = mapped_column(String(200))
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    role: Mapped[Role] = mapped_column(_ROLE)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime, default=None)
