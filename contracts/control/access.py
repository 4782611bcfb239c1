"""Access: API keys and identity providers of applications, accounts of the control plane, and their roles."""

from datetime import datetime
from enum import StrEnum
from typing import Final

from sqlalchemy import JSON, BigInteger, Boolean, Enum, ForeignKey, Index, String, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from contracts.control.base import Base, UtcDateTime


class Role(StrEnum):
    """Roles. `OWNER` and `ADMIN` change everything, `FINANCE` reads costs, `TEAM_LEAD` manages one team, `DEVELOPER`
    has own keys. `DIRECTORY` is for tokens of identity providers that provision accounts by SCIM.
    """

    OWNER = "owner"
    ADMIN = "admin"
    FINANCE = "finance"
    TEAM_LEAD = "team_lead"
    DEVELOPER = "developer"
    DIRECTORY = "directory"


# Stored by value and validated on write: an unknown value could not be read back.
_ROLE: Final = Enum(
    Role,
    native_enum=False,
    length=20,
    validate_strings=True,
    values_callable=lambda roles: [role.value for role in roles],
)


class ApiKey(Base):
    """An application's key. The secret is shown once; HMAC-SHA-256(pepper, key) is stored.

    The key is an identity that outlives its secrets: records, limits and budgets name its id, `digest` belongs to the
    current secret, and secrets that a rotation replaced expire as `FormerSecret` states. `user_id` is the account that
    created it for itself, and with which the key ends; empty: no account.
    """

    __tablename__ = "api_keys"
    __table_args__ = (
        Index("ix_api_keys_tenant_id", "tenant_id"),
        Index("ix_api_keys_changed_revision", "changed_revision"),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id", ondelete="CASCADE"))
    team_id: Mapped[str] = mapped_column(String(63), default="")
    project_id: Mapped[str] = mapped_column(String(63), default="")
    name: Mapped[str] = mapped_column(String(200))
    digest: Mapped[str] = mapped_column(String(64), unique=True)  # hex
    hint: Mapped[str] = mapped_column(String(8))  # the last four characters, to distinguish keys
    is_service_account: Mapped[bool] = mapped_column(Boolean, default=False)
    scopes: Mapped[dict[str, object]] = mapped_column(JSON, default=dict)  # restrictions; see backends/control/scopes
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime, default=None)
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime, default=None)
    user_id: Mapped[str] = mapped_column(String(40), default="", server_default=text("''"))
    rotated_at: Mapped[datetime | None] = mapped_column(UtcDateTime, default=None)
    # The revision that last changed the key: a gateway that knows an older one reads this row again.
    changed_revision: Mapped[int] = mapped_column(BigInteger, default=0, server_default=text("0"))


class FormerSecret(Base):
    """A secret that a rotation replaced: it is valid for the same key until it expires. `revision` set the expiry.

    A row may be deleted some time after its expiry, once `Revision.keys_floor` shows that no gateway can have missed
    it.
    """

    __tablename__ = "former_secrets"
    __table_args__ = (Index("ix_former_secrets_key_id", "key_id"),)

    digest: Mapped[str] = mapped_column(String(64), primary_key=True)  # hex
    key_id: Mapped[str] = mapped_column(ForeignKey("api_keys.id", ondelete="CASCADE"))
    hint: Mapped[str] = mapped_column(String(8))
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
    revision: Mapped[int] = mapped_column(BigInteger)


class Issuer(Base):
    """An identity provider whose tokens are accepted in place of keys; see
    `contracts.serving.configuration.IssuerSpec`.
    """

    __tablename__ = "issuers"
    __table_args__ = (UniqueConstraint("issuer", "audience"),)

    id: Mapped[str] = mapped_column(String(63), primary_key=True)
    issuer: Mapped[str] = mapped_column(String(500))
    audience: Mapped[str] = mapped_column(String(500))
    keys_url: Mapped[str] = mapped_column(String(500), default="")
    algorithms: Mapped[list[str]] = mapped_column(JSON, default=list)
    tenant_id: Mapped[str] = mapped_column(String(63), default="")  # empty: `tenant_claim` names the claim with it
    tenant_claim: Mapped[str] = mapped_column(String(200), default="")
    team_claim: Mapped[str] = mapped_column(String(200), default="")
    project_claim: Mapped[str] = mapped_column(String(200), default="")
    user_claim: Mapped[str] = mapped_column(String(200), default="sub")
    scopes: Mapped[dict[str, object]] = mapped_column(JSON, default=dict)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class User(Base):
    """A person who signs in to the dashboard or the control plane."""

    __tablename__ = "users"

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    email: Mapped[str] = mapped_column(String(320), unique=True)
    name: Mapped[str] = mapped_column(String(200), default="")
    password_digest: Mapped[str | None] = mapped_column(String(200), default=None)  # None: the user signs in by OIDC
    is_active: Mapped[bool] = mapped_column(Boolean, default=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class DirectoryEntry(Base):
    """A user or group that an identity provider has provisioned into a tenant by SCIM (RFC 7643).

    A user's `id` is its account's; a group's `team_id` is its team. `document` is the resource as the provider sent it,
    without id, meta and password.
    """

    __tablename__ = "directory_entries"
    __table_args__ = (Index("ix_directory_entries_tenant_kind", "tenant_id", "kind", "name"),)

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id", ondelete="CASCADE"))
    kind: Mapped[str] = mapped_column(String(10))  # "User" or "Group"
    name: Mapped[str] = mapped_column(String(320))  # userName or displayName, in lower case
    team_id: Mapped[str] = mapped_column(String(63), default="")
    document: Mapped[dict[str, object]] = mapped_column(JSON)
    version: Mapped[int] = mapped_column(BigInteger, default=1)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    changed_at: Mapped[datetime] = mapped_column(UtcDateTime)


class RoleGrant(Base):
    """A user's role: on the whole installation if `tenant_id` is empty, else in a tenant, or in one of its teams."""

    __tablename__ = "role_grants"

    user_id: Mapped[str] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), primary_key=True)
    tenant_id: Mapped[str] = mapped_column(String(63), primary_key=True, default="")
    team_id: Mapped[str] = mapped_column(String(63), primary_key=True, default="")
    role: Mapped[Role] = mapped_column(_ROLE)


class UserSession(Base):
    """A user's browser session, stored as a digest like an API key's secret. It ends at `expires_at` at the latest.

    `method` is how the user signed in: "password" or "oidc".
    """

    __tablename__ = "user_sessions"
    __table_args__ = (Index("ix_user_sessions_user_id", "user_id"),)

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    method: Mapped[str] = mapped_column(String(20))
    address: Mapped[str] = mapped_column(String(64), default="")
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime, default=None)


class AdminToken(Base):
    """A token for the control plane's API, stored as a digest like an API key's secret.

    It is valid everywhere if `tenant_id` is empty, else in that tenant, or in one of its teams. `user_id` is the
    account that created it, directly or through another token, and is empty for the installation's owner: rights that
    an account can no longer grant, its tokens no longer have. `parent_id` is the token that created it, empty for none:
    if that one is refused, so is this.
    """

    __tablename__ = "admin_tokens"

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    name: Mapped[str] = mapped_column(String(200))
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    hint: Mapped[str] = mapped_column(String(8), default="", server_default=text("''"))
    role: Mapped[Role] = mapped_column(_ROLE)
    tenant_id: Mapped[str] = mapped_column(String(63), default="", server_default=text("''"))
    team_id: Mapped[str] = mapped_column(String(63), default="", server_default=text("''"))
    user_id: Mapped[str] = mapped_column(String(40), default="", server_default=text("''"))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime, default=None)
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime, default=None)
    parent_id: Mapped[str] = mapped_column(String(40), default="", server_default=text("''"), index=True)
