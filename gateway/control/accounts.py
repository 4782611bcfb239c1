"""Accounts of people over HTTP: who may sign in to the dashboard, with which role."""

from datetime import datetime
from typing import Annotated, Self

from fastapi import APIRouter, Path
from pydantic import Field, SecretStr, model_validator

from backends.control import accounts
from backends.control.accounts import Account, NewUser
from backends.secrets.passwords import MAX_LENGTH, MIN_LENGTH, hash_password
from contracts.control import Role
from gateway.control.access import Admin
from gateway.control.fields import Body, Database, Deleted, Name, Page, Resource, Slug, Wanted, page_of

router = APIRouter(prefix="/v1/accounts", tags=["accounts"])

AccountPath = Annotated[str, Path(max_length=320, description="The user's id, `usr_...`, or e-mail address")]
Password = Annotated[
    SecretStr, Field(min_length=MIN_LENGTH, max_length=MAX_LENGTH, description="Stored as an Argon2id hash")
]


class AccountBody(Body):
    """A new account."""

    email: str = Field(max_length=320, description="E-mail address that the user signs in with")
    name: Name
    role: Role
    tenant: Slug | None = Field(default=None, description="Restricted to this tenant; null: all")
    team: Slug | None = Field(default=None, description="Restricted to this team of it; for team leads")
    password: Password | None = Field(default=None, description="null: signs in only with the identity provider")


class AccountChange(Body):
    """Fields to change. A role is set together with its scope; a null `tenant` means all, and must be stated. A change
    of the other fields ends all sessions.
    """

    role: Role | None = None
    tenant: Slug | None = None
    team: Slug | None = None
    is_active: bool | None = Field(default=None, description="false disables the account")
    password: Password | None = None

    @model_validator(mode="after")
    def _check_reach(self) -> Self:
        if self.role is None and self.model_fields_set & {"tenant", "team"}:
            raise ValueError("tenant and team restrict a role; set role as well")
        if self.role is not None and "tenant" not in self.model_fields_set:
            raise ValueError("a role needs its reach; set tenant, or null for everything")
        return self


class AccountOut(Resource):
    """An account, without its password."""

    id: str
    email: str
    name: str
    role: Role
    tenant_id: str
    team_id: str
    is_active: bool
    has_password: bool
    created_at: datetime

    @classmethod
    def of(cls, account: Account) -> Self:
        """Convert an account."""
        user = account.user
        return cls(
            id=user.id,
            email=user.email,
            name=user.name,
            role=account.role,
            tenant_id=account.tenant_id,
            team_id=account.team_id,
            is_active=user.is_active,
            has_password=user.password_digest is not None,
            created_at=user.created_at,
        )


@router.post("", status_code=201, summary="Create an account")
def create(body: AccountBody, author: Admin, database: Database) -> AccountOut:
    """Create an account, with no role above the author's own; an author within a tenant only for that tenant."""
    digest = None if body.password is None else hash_password(body.password.get_secret_value())
    new = NewUser(body.email, body.name, body.role, body.tenant or "", body.team or "", digest)
    with database.session() as session:
        return AccountOut.of(accounts.create_user(session, author, author.role, new))


@router.get("", summary="List accounts")
def list_all(wanted: Wanted, author: Admin, database: Database) -> Page[AccountOut]:
    with database.session() as session:
        rows = accounts.list_users(session, tenant_id=author.tenant_id, after=wanted.after, limit=wanted.limit + 1)
        return page_of(rows, wanted, AccountOut.of)


@router.get("/{account}", summary="Get an account")
def get(account: AccountPath, author: Admin, database: Database) -> AccountOut:
    with database.session() as session:
        return AccountOut.of(accounts.get_account(session, account, tenant_id=author.tenant_id))


@router.patch("/{account}", summary="Change an account's role or password, or disable it")
def change(account: AccountPath, body: AccountChange, author: Admin, database: Database) -> AccountOut:
    """A role takes effect when the user next loads a page; a new password or disabling ends their sessions."""
    digest = None if body.password is None else hash_password(body.password.get_secret_value())
    with database.session() as session:
        found = accounts.get_account(session, account, tenant_id=author.tenant_id)
        if body.role is not None:
            found = accounts.grant_role(
                session, author, author.role, account, body.role, body.tenant or "", body.team or ""
            )
        if body.is_active is not None or digest is not None:
            accounts.change_user(
                session, author, author.role, account, is_active=body.is_active, password_digest=digest
            )
        return AccountOut.of(found)


@router.delete("/{account}", summary="Remove an account and end its sessions")
def delete(account: AccountPath, author: Admin, database: Database) -> Deleted:
    with database.session() as session:
        return Deleted(id=accounts.delete_user(session, author, author.role, account))
