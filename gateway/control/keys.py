"""API keys over HTTP. The secret stands in the answer that creates it and nowhere else, ever."""

import os
from datetime import datetime
from typing import Annotated, Self

from fastapi import APIRouter, Path, Request
from pydantic import Field, StringConstraints

from backends.control import keys
from backends.control.keys import KeyRequest
from contracts.control import ApiKey
from contracts.keys import KEY_RANDOM_BYTES, new_key
from gateway.control.access import Admin
from gateway.control.fields import (
    Body,
    Database,
    ModelId,
    Moment,
    Name,
    Page,
    Resource,
    Slug,
    TenantPath,
    Wanted,
    page_of,
)

router = APIRouter(prefix="/v1/tenants/{tenant}/keys", tags=["keys"])

KeyPath = Annotated[str, Path(max_length=40, description="The key's id, `key_...`")]
Endpoint = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z_]*(\.[a-z_]+)*$", max_length=60)]


class KeyBody(Body):
    """A new key."""

    name: Name
    team: Slug | None = None
    project: Slug | None = Field(default=None, description="Needs `team`")
    expires_at: Moment | None = Field(default=None, description="Refused from then on; null: never")
    models: list[ModelId] | None = Field(default=None, max_length=200, description="May use only these; null: all")
    endpoints: list[Endpoint] | None = Field(
        default=None, max_length=50, description="May use only these, such as `chat.completions`; null: all"
    )
    is_service_account: bool = False


class KeyPatch(Body):
    """What to change."""

    expires_at: Moment


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


class NewKeyOut(KeyOut):
    """A key just made. `secret` is shown this once: the gateway keeps only a digest of it."""

    secret: str

    @classmethod
    def of(cls, key: ApiKey, secret: str) -> Self:
        """Join a row with the secret that its caller alone knows."""
        return cls(secret=secret, **KeyOut.model_validate(key).model_dump())


@router.post("", status_code=201, summary="Create a key; its secret is shown once")
def create(tenant: TenantPath, body: KeyBody, author: Admin, database: Database, request: Request) -> NewKeyOut:
    wanted = KeyRequest(
        tenant_id=tenant,
        name=body.name,
        team_id=body.team or "",
        project_id=body.project or "",
        expires_at=body.expires_at,
        models=body.models,
        endpoints=body.endpoints,
        is_service_account=body.is_service_account,
    )
    secret = new_key(os.urandom(KEY_RANDOM_BYTES))
    pepper: bytes = request.app.state.key_pepper
    with database.session() as session:
        return NewKeyOut.of(keys.create_key(session, author, wanted, secret, pepper), secret)


@router.get("", summary="List a tenant's keys, revoked ones too")
def list_all(tenant: TenantPath, wanted: Wanted, author: Admin, database: Database) -> Page[KeyOut]:
    with database.session() as session:
        rows = keys.list_keys(session, tenant, after=wanted.after, limit=wanted.limit + 1)
        return page_of(rows, wanted, KeyOut.model_validate)


@router.get("/{key}", summary="Get a key, without its secret")
def get(tenant: TenantPath, key: KeyPath, author: Admin, database: Database) -> KeyOut:
    with database.session() as session:
        return KeyOut.model_validate(keys.get_key(session, tenant, key))


@router.patch("/{key}", summary="Set when a key expires")
def expire(tenant: TenantPath, key: KeyPath, body: KeyPatch, author: Admin, database: Database) -> KeyOut:
    with database.session() as session:
        return KeyOut.model_validate(keys.expire_key(session, author, tenant, key, body.expires_at))


@router.delete("/{key}", summary="Revoke a key, on every gateway within a second")
def revoke(tenant: TenantPath, key: KeyPath, author: Admin, database: Database) -> KeyOut:
    """The key stays listed with its `revoked_at`; it cannot be brought back."""
    with database.session() as session:
        return KeyOut.model_validate(keys.revoke_key(session, author, tenant, key))
