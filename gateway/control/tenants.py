"""Tenants over HTTP: the organisations that pay."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from backends.control import organisation
from backends.control.organisation import TenantChange
from gateway.control.access import Admin
from gateway.control.fields import Body, Database, Name, Page, Resource, Slug, TenantPath, TimeZone, Wanted, page_of

router = APIRouter(prefix="/v1/tenants", tags=["tenants"])

Weight = Annotated[int, Field(ge=1, le=1000, description="Share under contention, relative to other tenants")]


class TenantBody(Body):
    """A new tenant."""

    id: Slug
    name: Name
    time_zone: TimeZone = "UTC"
    weight: Weight = 1


class TenantPatch(Body):
    """Fields to change; absent fields stay."""

    name: Name | None = None
    time_zone: TimeZone | None = None
    weight: Weight | None = None
    is_active: bool | None = Field(default=None, description="false refuses all keys of the tenant within a second")
    keeps_content: bool | None = Field(default=None, description="true stores its prompts and answers, redacted")
    audits_requests: bool | None = Field(default=None, description="true writes each request into the audit log")


class TenantOut(Resource):
    """A tenant."""

    id: str
    name: str
    time_zone: str
    weight: int
    is_active: bool
    keeps_content: bool
    audits_requests: bool
    created_at: datetime


@router.post("", status_code=201, summary="Create a tenant")
def create(body: TenantBody, author: Admin, database: Database) -> TenantOut:
    with database.session() as session:
        tenant = organisation.create_tenant(
            session, author, body.id, body.name, time_zone=body.time_zone, weight=body.weight
        )
        return TenantOut.model_validate(tenant)


@router.get("", summary="List tenants")
def list_all(wanted: Wanted, author: Admin, database: Database) -> Page[TenantOut]:
    with database.session() as session:
        rows = organisation.list_tenants(session, after=wanted.after, limit=wanted.limit + 1, only=author.tenant_id)
        return page_of(rows, wanted, TenantOut.model_validate)


@router.get("/{tenant}", summary="Get a tenant")
def get(tenant: TenantPath, author: Admin, database: Database) -> TenantOut:
    with database.session() as session:
        return TenantOut.model_validate(organisation.get_tenant(session, tenant))


@router.patch("/{tenant}", summary="Change a tenant")
def update(tenant: TenantPath, body: TenantPatch, author: Admin, database: Database) -> TenantOut:
    change = TenantChange(**body.model_dump())
    with database.session() as session:
        return TenantOut.model_validate(organisation.update_tenant(session, author, tenant, change))


@router.delete("/{tenant}", summary="Deactivate a tenant")
def deactivate(tenant: TenantPath, author: Admin, database: Database) -> TenantOut:
    """Refuse all keys of the tenant within a second. Its records stay."""
    with database.session() as session:
        return TenantOut.model_validate(
            organisation.update_tenant(session, author, tenant, TenantChange(is_active=False))
        )
