"""API keys over HTTP. The secret is only in the answer that creates it."""

import os
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Self

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field, model_validator

from backends.control import budgets, keys
from backends.control.budgets import NewBudget
from backends.control.keys import MAX_OVERLAP_SECONDS, KeyRequest
from contracts.access.keys import KEY_RANDOM_BYTES, new_key
from contracts.control import ApiKey, FormerSecret
from contracts.rules.limits import Period
from gateway.config.fields.rule_fields import BudgetUsd
from gateway.control.access import Admin
from gateway.control.fields import Body, Database, Moment, Name, Page, PageQuery, Resource, Slug, TenantPath, page_of
from gateway.control.scope_fields import ScopeFields

router = APIRouter(prefix="/v1/tenants/{tenant}/keys", tags=["keys"])

KeyPath = Annotated[str, Path(max_length=40, description="The key's id, `key_...`")]


class KeyQuery(PageQuery):
    """Filter of keys."""

    team: str = Field(default="", max_length=63, description="Only keys of this team")
    is_service_account: bool | None = Field(default=None, description="Only service accounts, or only others")


class KeyBody(ScopeFields):
    """A new key."""

    name: Name
    team: Slug | None = None
    project: Slug | None = Field(default=None, description="Needs `team`")
    expires_at: Moment | None = Field(default=None, description="Expiry; null: never")
    is_service_account: bool = Field(default=False, description="Used by a program, not by a person")
    budget_usd: BudgetUsd | None = Field(default=None, description="Hard budget of the key; see /budgets")
    budget_period: Period | None = Field(default=None, description="Period of that budget, in the tenant's time zone")

    @model_validator(mode="after")
    def _check_budget(self) -> Self:
        if (self.budget_usd is None) != (self.budget_period is None):
            raise ValueError("budget_usd and budget_period go together; give both or neither")
        return self


class KeyPatch(ScopeFields):
    """Fields to change: absent fields stay, null removes an expiry or a scope."""

    name: Name = ""
    expires_at: Moment | None = None


class RotationBody(Body):
    """Rotation of a key's secret."""

    overlap_seconds: int = Field(
        ge=0, le=MAX_OVERLAP_SECONDS, description="Seconds that the current secret keeps working"
    )


class KeyOut(Resource):
    """A key, without its secret. `hint` is the last four characters of it."""

    id: str
    tenant_id: str
    team_id: str
    project_id: str
    name: str
    hint: str
    is_service_account: bool
    scopes: dict[str, object]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    rotated_at: datetime | None


class FormerSecretOut(Resource):
    """A secret that a rotation replaced: it works until it ends, as long as the key does."""

    hint: str
    expires_at: datetime


class KeyDetailOut(KeyOut):
    """A key with the secrets that rotations replaced."""

    former_secrets: list[FormerSecretOut]

    @classmethod
    def of(cls, key: ApiKey, former: Sequence[FormerSecret]) -> Self:
        """Convert a row and its former secrets."""
        shown = [FormerSecretOut.model_validate(secret) for secret in former]
        return cls(former_secrets=shown, **KeyOut.model_validate(key).model_dump())


class NewKeyOut(KeyOut):
    """A key with a new secret. `secret` is shown once: the gateway stores only its digest."""

    secret: str

    @classmethod
    def of(cls, key: ApiKey, secret: str) -> Self:
        """Convert a row and its secret, which is shown to the caller once and not stored."""
        return cls(secret=secret, **KeyOut.model_validate(key).model_dump())


@router.post("", status_code=201, summary="Create a key; its secret is shown once")
def create(tenant: TenantPath, body: KeyBody, author: Admin, database: Database, request: Request) -> NewKeyOut:
    """With `budget_usd`, key and budget are created in one transaction."""
    stated = body.model_dump(exclude={"team", "project", "budget_usd", "budget_period"})
    wanted = KeyRequest(tenant_id=tenant, team_id=body.team or "", project_id=body.project or "", **stated)
    secret = new_key(os.urandom(KEY_RANDOM_BYTES))
    pepper: bytes = request.app.state.key_pepper
    with database.session() as session:
        made = keys.create_key(session, author, wanted, secret, pepper)
        if body.budget_usd is not None and body.budget_period is not None:
            new = NewBudget(tenant, "key", body.budget_period, amount_usd=body.budget_usd, subject=made.id)
            budgets.create_budget(session, author, new)
        return NewKeyOut.of(made, secret)


@router.get("", summary="List a tenant's keys, revoked ones too")
def list_all(
    tenant: TenantPath, wanted: Annotated[KeyQuery, Query()], author: Admin, database: Database
) -> Page[KeyOut]:
    """A team lead sees the team's keys."""
    with database.session() as session:
        rows = keys.list_keys(
            session,
            tenant,
            after=wanted.after,
            limit=wanted.limit + 1,
            team_id=author.team_id or wanted.team,
            is_service_account=wanted.is_service_account,
        )
        return page_of(rows, wanted, KeyOut.model_validate)


@router.get("/{key}", summary="Get a key, without its secret")
def get(tenant: TenantPath, key: KeyPath, author: Admin, database: Database) -> KeyDetailOut:
    with database.session() as session:
        found = keys.get_key(session, tenant, key, team_id=author.team_id)
        return KeyDetailOut.of(found, keys.list_former_secrets(session, key))


@router.patch("/{key}", summary="Change a key's name, expiry or scopes")
def update(tenant: TenantPath, key: KeyPath, body: KeyPatch, author: Admin, database: Database) -> KeyOut:
    """Every gateway applies the new scopes within a second. null removes an expiry or a scope."""
    with database.session() as session:
        changes = body.model_dump(exclude_unset=True)
        return KeyOut.model_validate(keys.update_key(session, author, tenant, key, changes))


@router.post("/{key}/rotate", summary="Rotate a key's secret; the new one is shown once")
def rotate(
    tenant: TenantPath, key: KeyPath, body: RotationBody, author: Admin, database: Database, request: Request
) -> NewKeyOut:
    """Id, scopes, limits and budgets stay. The current secret keeps working for the overlap.

    A rotation without overlap ends all other secrets at once.
    """
    secret = new_key(os.urandom(KEY_RANDOM_BYTES))
    pepper: bytes = request.app.state.key_pepper
    with database.session() as session:
        rotated = keys.rotate_key(
            session, author, tenant, key, secret=secret, pepper=pepper, overlap_seconds=body.overlap_seconds
        )
        return NewKeyOut.of(rotated, secret)


@router.delete("/{key}", summary="Revoke a key with all its secrets, on every gateway within a second")
def revoke(tenant: TenantPath, key: KeyPath, author: Admin, database: Database) -> KeyOut:
    """The key stays listed with its `revoked_at`; it cannot be restored."""
    with database.session() as session:
        return KeyOut.model_validate(keys.revoke_key(session, author, tenant, key))
