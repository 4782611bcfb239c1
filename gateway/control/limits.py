"""Limits over HTTP: how much of a metric a scope may use in any window of a given length."""

from datetime import datetime
from decimal import Decimal
from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import Field, field_serializer

from backends.control import limits
from backends.control.limits import LimitChange, NewLimit
from contracts.control import Limit
from contracts.rules.limits import Level, WhenAway, WhenUnpriced, Window
from contracts.rules.metrics import MetricWord
from gateway.config.fields.rule_fields import Amount, Currency, LimitUsd, Subject
from gateway.control.access import Admin
from gateway.control.fields import Body, Database, Deleted, ModelId, Page, Resource, TenantPath, Wanted, page_of

router = APIRouter(prefix="/v1/tenants/{tenant}/limits", tags=["limits"])

LimitPath = Annotated[str, Path(max_length=63, description="The limit's id, `lim_...`")]


class LimitBody(Body):
    """A new limit. `amount_usd` for money, `amount` for all other metrics."""

    level: Level = "tenant"
    subject: Subject = ""
    model: ModelId | None = Field(default=None, description="Counts only this model; null: all models together")
    metric: MetricWord
    window: Window | None = Field(default=None, description="null for concurrency and for level conversation")
    amount: Amount | None = Field(default=None, description="In the metric's unit; 0 allows nothing")
    amount_usd: LimitUsd | None = Field(default=None, description="For metric usd: decimal text")
    currency: Currency = "USD"
    when_away: WhenAway = Field(
        default="share", description="If Redis is unreachable: share (each gateway allows its part), or refuse"
    )
    when_unpriced: WhenUnpriced = Field(default="refuse", description="If a model has no price: refuse or allow")


class LimitPatch(Body):
    """Fields to change; absent fields stay."""

    amount: Amount | None = None
    amount_usd: LimitUsd | None = None
    currency: Currency = "USD"
    when_away: WhenAway | None = None
    when_unpriced: WhenUnpriced | None = None


class LimitOut(Resource):
    """A limit."""

    id: str
    tenant_id: str
    level: str
    subject: str
    model: str | None
    metric: str
    window: str | None
    amount: int | None
    amount_usd: Decimal | None
    when_away: str
    when_unpriced: str
    created_at: datetime
    updated_at: datetime

    @field_serializer("amount_usd")
    def _plain(self, amount_usd: Decimal | None) -> str | None:
        return None if amount_usd is None else format(amount_usd, "f")  # never 1E-12

    @field_serializer("model", "window")
    def _null_where_empty(self, word: str | None) -> str | None:
        return word or None


@router.post("", status_code=201, summary="Create a limit")
def create(tenant: TenantPath, body: LimitBody, author: Admin, database: Database) -> LimitOut:
    """Refused if the scope has a limit of this metric and window, or if a longer window would allow less."""
    new = NewLimit(
        tenant_id=tenant,
        level=body.level,
        subject=body.subject,
        model=body.model or "",
        metric=body.metric,
        window=body.window,
        amount=body.amount,
        amount_usd=body.amount_usd,
        when_away=body.when_away,
        when_unpriced=body.when_unpriced,
    )
    with database.session() as session:
        return LimitOut.model_validate(limits.create_limit(session, author, new))


@router.get("", summary="List a tenant's limits")
def list_all(tenant: TenantPath, wanted: Wanted, author: Admin, database: Database) -> Page[LimitOut]:
    with database.session() as session:
        limit, team = wanted.limit + 1, author.team_id
        rows: list[Limit] = limits.list_limits(session, tenant, after=wanted.after, limit=limit, team_id=team)
        return page_of(rows, wanted, LimitOut.model_validate)


@router.get("/{limit_id}", summary="Get a limit")
def get(tenant: TenantPath, limit_id: LimitPath, author: Admin, database: Database) -> LimitOut:
    with database.session() as session:
        return LimitOut.model_validate(limits.get_limit(session, tenant, limit_id, team_id=author.team_id))


@router.patch("/{limit_id}", summary="Change a limit's amount, when_away or when_unpriced")
def update(tenant: TenantPath, limit_id: LimitPath, body: LimitPatch, author: Admin, database: Database) -> LimitOut:
    """Change a limit's amount; its current count stays."""
    change = LimitChange(**body.model_dump(exclude={"currency"}))
    with database.session() as session:
        return LimitOut.model_validate(limits.update_limit(session, author, tenant, limit_id, change))


@router.delete("/{limit_id}", summary="Delete a limit")
def delete(tenant: TenantPath, limit_id: LimitPath, author: Admin, database: Database) -> Deleted:
    with database.session() as session:
        limits.delete_limit(session, author, tenant, limit_id)
    return Deleted(id=limit_id)
