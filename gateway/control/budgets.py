"""Budgets over HTTP: how much money or GPU time a scope may use in a calendar period, and the current state."""

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field, field_serializer

from backends.control import budgets
from backends.control.budget_events import events_of
from backends.control.budget_recounts import recount_budget
from backends.control.budgets import BudgetChange, NewBudget
from backends.control.sealer import Sealer
from contracts.control import Budget
from contracts.errors import InvalidRequest
from contracts.pricing.money import pico_usd
from contracts.recording.moments import unix_ns
from contracts.rules.limits import BudgetLevel, Period, WhenAway, WhenUnpriced
from contracts.rules.rule_words import exact_text
from gateway.config.fields.rule_fields import (
    BudgetUsd,
    Currency,
    GpuMilliseconds,
    Subject,
    Thresholds,
    WebhookUrl,
)
from gateway.control.access import Admin
from gateway.control.budget_state import BudgetEventOut, BudgetStateOut, state_of
from gateway.control.fields import (
    Body,
    Database,
    Deleted,
    ModelId,
    Moment,
    Page,
    Resource,
    Slug,
    TenantPath,
    Wanted,
    page_of,
)
from gateway.control.sealing import Seal

router = APIRouter(prefix="/v1/tenants/{tenant}/budgets", tags=["budgets"])

BudgetPath = Annotated[str, Path(max_length=63, description="The budget's id, `bud_...`")]


Channels = Annotated[
    list[Slug], Field(max_length=20, description="Alert channels that thresholds and refusals notify, by id")
]


class BudgetBody(Body):
    """A new budget: exactly one of `amount_usd` and `gpu_milliseconds`."""

    level: BudgetLevel = "tenant"
    subject: Subject = ""
    model: ModelId | None = Field(default=None, description="Counts only this model; null: all models together")
    period: Period = Field(description="Calendar period in the tenant's time zone; weeks start on Monday")
    amount_usd: BudgetUsd | None = Field(default=None, description="Decimal text")
    gpu_milliseconds: GpuMilliseconds | None = None
    currency: Currency = "USD"
    is_hard: bool = Field(default=True, description="Never overspent; false: only notifies")
    thresholds: Thresholds = Field(default_factory=list)
    channels: Channels = Field(default_factory=list)
    starts_at: Moment | None = Field(default=None, description="Start; earlier usage does not count")
    ends_at: Moment | None = Field(default=None, description="End, exclusive; later usage does not count")
    webhook_url: WebhookUrl = ""
    when_away: WhenAway = Field(
        default="refuse", description="If Redis is unreachable: refuse, or share (each gateway allows its part)"
    )
    when_unpriced: WhenUnpriced = Field(default="refuse", description="If a model has no price: refuse or allow")


class BudgetPatch(Body):
    """Fields to change; absent fields stay. `ends_at` null removes the end, `webhook_url` "" the webhook."""

    amount_usd: BudgetUsd | None = None
    gpu_milliseconds: GpuMilliseconds | None = None
    currency: Currency = "USD"
    is_hard: bool | None = None
    thresholds: Thresholds | None = None
    channels: Channels | None = None
    ends_at: Moment | None = None
    webhook_url: WebhookUrl | None = None
    when_away: WhenAway | None = None
    when_unpriced: WhenUnpriced | None = None


class RecountSubject(Body):
    """Difference between recorded cost and gateways' counts for one subject."""

    subject: str = Field(default="", max_length=300, description="Empty for the tenant as a whole")
    adjustment_usd: Decimal = Field(
        max_digits=30, decimal_places=12, description="Decimal text; negative returns money"
    )


class RecountBody(Body):
    """A recount of the current period. Without `apply` nothing is changed."""

    period_start: Moment = Field(description="Start of the current period, as the budget's `state` shows it")
    subjects: list[RecountSubject] = Field(min_length=1, max_length=10_000)
    apply: bool = Field(default=False, description="False: only compute what would change")


class RecountedOut(BaseModel):
    """One subject. Amounts are exact decimal text in USD."""

    subject: str
    spent_before: str
    spent_after: str
    adjustment_usd: str


class RecountOut(BaseModel):
    """A recount, applied or computed."""

    id: str
    period_start: datetime
    applied: bool
    subjects: list[RecountedOut]


class BudgetOut(Resource):
    """A budget."""

    id: str
    tenant_id: str
    level: str
    subject: str
    model: str | None
    period: str
    amount_usd: Decimal | None
    gpu_milliseconds: int | None
    is_hard: bool
    thresholds: list[int]
    channels: list[str]
    starts_at: datetime | None
    ends_at: datetime | None
    webhook_url: str
    when_away: str
    when_unpriced: str
    proposal: dict[str, Any] = Field(description="Change that another person must confirm; empty: none")
    proposed_by: str
    created_at: datetime
    updated_at: datetime

    @field_serializer("amount_usd")
    def _plain(self, amount_usd: Decimal | None) -> str | None:
        return None if amount_usd is None else format(amount_usd, "f")  # never 1E-12

    @field_serializer("model")
    def _null_where_empty(self, model: str | None) -> str | None:
        return model or None


class BudgetWithStateOut(BudgetOut):
    """A budget, its state in the current period, and the latest thresholds it passed."""

    state: BudgetStateOut | None = Field(description="null before the budget starts and after it ends")
    events: list[BudgetEventOut]


@router.post("", status_code=201, summary="Create a budget")
def create(tenant: TenantPath, body: BudgetBody, author: Admin, database: Database, sealer: Seal) -> BudgetOut:
    stated = {**body.model_dump(exclude={"currency"}), "model": body.model or ""}
    new = NewBudget(tenant_id=tenant, **{**stated, "webhook_url": sealer.seal_address(body.webhook_url)})
    with database.session() as session:
        return _shown(budgets.create_budget(session, author, new), sealer)


@router.get("", summary="List a tenant's budgets")
def list_all(tenant: TenantPath, wanted: Wanted, author: Admin, database: Database, sealer: Seal) -> Page[BudgetOut]:
    with database.session() as session:
        limit, team = wanted.limit + 1, author.team_id
        rows: list[Budget] = budgets.list_budgets(session, tenant, after=wanted.after, limit=limit, team_id=team)
        return page_of(rows, wanted, lambda row: _shown(row, sealer))


@router.get("/{budget_id}", summary="Get a budget and its state")
def get(
    tenant: TenantPath, budget_id: BudgetPath, author: Admin, database: Database, sealer: Seal
) -> BudgetWithStateOut:
    """What is spent is as fresh as the gateways' last report, a few seconds old."""
    with database.session() as session:
        row = budgets.get_budget(session, tenant, budget_id, team_id=author.team_id)
        spec = budgets.spec_of(session, row)
        state = state_of(session, spec, unix_ns(row.created_at), unix_ns(author.at))
        events = [BudgetEventOut.of(event, spec.metric) for event in events_of(session, budget_id)]
        return BudgetWithStateOut(state=state, events=events, **_shown(row, sealer).model_dump())


@router.patch("/{budget_id}", summary="Change a budget's amount, thresholds, channels, end or webhook")
def update(
    tenant: TenantPath, budget_id: BudgetPath, body: BudgetPatch, author: Admin, database: Database, sealer: Seal
) -> BudgetOut:
    """Refused if the amount would fall below what is spent in the current period.

    If two people are needed (`tollkeeper books profile --two-person`), loosening a hard budget is a `proposal` until
    another person sends the same change.
    """
    is_endless = "ends_at" in body.model_fields_set and body.ends_at is None
    stated = body.model_dump(exclude={"currency"})
    if body.webhook_url is not None:
        stated["webhook_url"] = sealer.seal_address(body.webhook_url)
    change = BudgetChange(is_endless=is_endless, **stated)
    with database.session() as session:
        return _shown(budgets.update_budget(session, author, tenant, budget_id, change), sealer)


@router.post("/{budget_id}/recount", summary="Correct what a budget has spent in the current period")
def recount(
    tenant: TenantPath, budget_id: BudgetPath, body: RecountBody, author: Admin, database: Database
) -> RecountOut:
    """Set the difference between what gateways counted and what the ledger says, for each subject.

    An adjustment is absolute for the period and replaces the one before: the same recount twice is one. Requests that
    run meanwhile are counted as always. Gateways apply it within seconds. `tollkeeper budgets recount` computes the
    adjustments from the store.
    """
    adjustments = {one.subject: pico_usd(one.adjustment_usd) for one in body.subjects}
    if len(adjustments) < len(body.subjects):
        raise InvalidRequest("a subject is named twice; name each once", param="subjects")
    with database.session() as session:
        found = recount_budget(session, author, tenant, budget_id, body.period_start, adjustments, applies=body.apply)
    subjects = [
        RecountedOut(
            subject=one.subject,
            spent_before=exact_text("pico_usd", one.spent_before),
            spent_after=exact_text("pico_usd", one.spent_after),
            adjustment_usd=exact_text("pico_usd", one.adjustment),
        )
        for one in found
    ]
    return RecountOut(id=budget_id, period_start=body.period_start, applied=body.apply, subjects=subjects)


@router.delete("/{budget_id}", summary="Delete a budget with its state and events")
def delete(tenant: TenantPath, budget_id: BudgetPath, author: Admin, database: Database) -> Deleted:
    with database.session() as session:
        budgets.delete_budget(session, author, tenant, budget_id)
    return Deleted(id=budget_id)


def _shown(row: Budget, sealer: Sealer) -> BudgetOut:
    return BudgetOut.model_validate(row).model_copy(update={"webhook_url": sealer.open_address(row.webhook_url)})
