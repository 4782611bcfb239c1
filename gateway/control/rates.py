"""Cost rates over HTTP: prices of GPU hours, exchange rates, tenants' invoice terms. Ended, never edited."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import Field, StringConstraints

from backends.control import rates
from backends.control.rates import NewRate
from contracts.pricing.prices import BEGINNING
from contracts.pricing.rates import RateKind
from gateway.control.access import Admin
from gateway.control.fields import Body, Database, Moment, Page, Resource, Version, Wanted, page_of

router = APIRouter(prefix="/v1/rates", tags=["rates"])

VersionPath = Annotated[str, Path(max_length=120, description="The rate's version")]


class RateBody(Body):
    """A new rate. The fields of `rate` depend on its kind."""

    kind: RateKind
    version: Version = Field(description="Recorded with results; never reused")
    subject: Annotated[
        str,
        StringConstraints(max_length=200),
        Field(description="gpu: UUID or model, empty for every GPU; currency: its code; terms: the tenant"),
    ] = ""
    rate: Annotated[
        dict[str, Annotated[str, StringConstraints(max_length=40)]],
        Field(
            description="Decimal text. gpu: ownership, usd_per_hour, power_watts, usd_per_kwh, "
            "power_usage_effectiveness, overhead_usd_per_hour; currency: units_per_usd; terms: percent, free_usd, "
            "committed_usd (a month)"
        ),
    ]
    valid_from: Moment = BEGINNING
    valid_to: Moment | None = Field(default=None, description="Exclusive; null: until ended")


class RateEndBody(Body):
    """When a rate ends."""

    valid_to: Moment


class RateOut(Resource):
    """A cost rate."""

    version: str
    kind: str
    subject: str
    rate: dict[str, object]
    valid_from: datetime
    valid_to: datetime | None
    created_at: datetime


@router.post("", status_code=201, summary="Create a cost rate")
def create_rate(body: RateBody, author: Admin, database: Database) -> RateOut:
    """Refused if it overlaps another rate of the same subject: end that one first."""
    new = NewRate(body.kind, body.version, body.subject, body.rate, body.valid_from, body.valid_to)
    with database.session() as session:
        return RateOut.model_validate(rates.create_rate(session, author, new))


@router.get("", summary="List cost rates")
def list_rates(wanted: Wanted, author: Admin, database: Database) -> Page[RateOut]:
    with database.session() as session:
        rows = rates.list_rates(session, after=wanted.after, limit=wanted.limit + 1)
        return page_of(rows, wanted, RateOut.model_validate)


@router.get("/{version:path}", summary="Get a cost rate")
def get_rate(version: VersionPath, author: Admin, database: Database) -> RateOut:
    with database.session() as session:
        return RateOut.model_validate(rates.get_rate(session, version))


@router.patch("/{version:path}", summary="End a cost rate")
def end_rate(version: VersionPath, body: RateEndBody, author: Admin, database: Database) -> RateOut:
    with database.session() as session:
        return RateOut.model_validate(rates.end_rate(session, author, version, body.valid_to))
