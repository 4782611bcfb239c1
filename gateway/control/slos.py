"""Service level objectives over HTTP, and the holds that objectives at risk set."""

from datetime import datetime
from decimal import Decimal
from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import Field, field_serializer

from backends.control import slos
from backends.control.slos import NewSlo
from contracts.control.organisation import SLUG_PATTERN
from contracts.rules.objectives import Indicator, PromptClass
from gateway.control.access import Admin
from gateway.control.fields import Body, Database, Deleted, Page, Resource, Slug, Wanted, list_of, page_of

router = APIRouter(tags=["objectives"])

SloPath = Annotated[str, Path(max_length=63, description="The objective's id")]
NewSloPath = Annotated[str, Path(pattern=SLUG_PATTERN, max_length=63, description="The objective's id")]
Named = Annotated[str, Field(max_length=200)]
Milliseconds = Annotated[Decimal, Field(gt=0, le=800_000, decimal_places=1, allow_inf_nan=False)]
Percent = Annotated[
    Decimal, Field(ge=0, le=100, allow_inf_nan=False, description="Percentage of requests that must be good")
]


class SloFields(Body):
    """An objective without its id. Empty fields mean all."""

    tenant: Annotated[str, Field(max_length=63)] = ""
    model: Named = ""
    route: Named = ""
    prompt_class: PromptClass | None = Field(default=None, description="By input tokens; null: all")
    indicator: Indicator
    thresholds_ms: dict[str, Milliseconds] = Field(
        default_factory=dict, description="By indicator, from the steps that requests are counted by, such as 500"
    )
    target_percent: Percent
    window_days: int = Field(default=28, description="28 or 30, at most 85")
    min_events: int = Field(default=20, description="Below this number of requests, alert only if a third are bad")
    hooks: Annotated[list[str], Field(max_length=2)] = Field(
        default_factory=list, description="Actions while the error budget burns: freeze_canaries, shed_batch"
    )

    def new(self, slo_id: str) -> NewSlo:
        """Return the objective to store."""
        stated = self.model_dump(exclude={"id"})
        return NewSlo(id=slo_id, **{**stated, "prompt_class": self.prompt_class or ""})


class SloBody(SloFields):
    """A new objective."""

    id: Slug


class SloOut(Resource):
    """An objective."""

    id: str
    tenant_id: str
    model: str
    route: str
    prompt_class: str
    indicator: str
    thresholds_ms: dict[str, str]
    target_percent: Decimal
    window_days: int
    min_events: int
    hooks: list[str]
    created_at: datetime
    updated_at: datetime

    @field_serializer("target_percent")
    def _plain(self, target_percent: Decimal) -> str:
        return format(target_percent, "f")


class HoldOut(Resource):
    """A hold that an objective at risk sets."""

    slo_id: str
    hook: str
    tenant_id: str
    model: str
    route: str
    since: datetime
    until: datetime
    reason: str


@router.post("/v1/slos", status_code=201, summary="Create an objective")
def create(body: SloBody, author: Admin, database: Database) -> SloOut:
    with database.session() as session:
        return SloOut.model_validate(slos.put_slo(session, author, body.new(body.id), replaces=False))


@router.put("/v1/slos/{slo_id}", summary="Create or replace an objective")
def put(slo_id: NewSloPath, body: SloFields, author: Admin, database: Database) -> SloOut:
    with database.session() as session:
        return SloOut.model_validate(slos.put_slo(session, author, body.new(slo_id), replaces=True))


@router.get("/v1/slos", summary="List objectives")
def list_all(wanted: Wanted, author: Admin, database: Database) -> Page[SloOut]:
    with database.session() as session:
        rows = slos.list_slos(session, tenant=author.tenant_id, after=wanted.after, limit=wanted.limit + 1)
        return page_of(rows, wanted, SloOut.model_validate)


@router.get("/v1/slos/{slo_id}", summary="Get an objective")
def get(slo_id: SloPath, author: Admin, database: Database) -> SloOut:
    with database.session() as session:
        return SloOut.model_validate(slos.get_slo(session, slo_id, tenant=author.tenant_id))


@router.delete("/v1/slos/{slo_id}", summary="Delete an objective")
def delete(slo_id: SloPath, author: Admin, database: Database) -> Deleted:
    with database.session() as session:
        slos.delete_slo(session, author, slo_id)
    return Deleted(id=slo_id)


@router.get("/v1/policy-holds", summary="List current holds of objectives at risk")
def holds(author: Admin, database: Database) -> Page[HoldOut]:
    with database.session() as session:
        rows = slos.list_holds(session, author.at, tenant=author.tenant_id)
        return list_of(rows, HoldOut.model_validate)
