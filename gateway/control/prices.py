"""Price cards and standard cost cards over HTTP. A card is never edited: it is ended, and the next one begins."""

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Literal, Self

from fastapi import APIRouter, Path
from pydantic import Field, StringConstraints, model_validator

from backends.control import prices
from backends.control.prices import NewStandardCost
from contracts.control import Price, StandardCost
from contracts.metering.usage import Leaf
from contracts.pricing.prices import BEGINNING, NewPrice
from contracts.pricing.unit_prices import ANY_UNIT, check_units, with_units
from gateway.control.access import Admin
from gateway.control.fields import (
    Body,
    Database,
    ModelId,
    Moment,
    Page,
    Region,
    Resource,
    Slug,
    UsdPerMtok,
    UsdPerRequest,
    Version,
    Wanted,
    page_of,
)

router = APIRouter(prefix="/v1", tags=["prices"])

# A version may hold slashes ("scripted-1/2026-11"), so it takes the rest of the path.
VersionPath = Annotated[str, Path(max_length=120, description="The card's version")]
Rates = Annotated[
    dict[Leaf, UsdPerMtok],
    Field(min_length=1, description='USD per million tokens by usage leaf, such as {"input_text": "0.15"}'),
]


BatchRates = Annotated[
    dict[Leaf, UsdPerMtok],
    Field(description="Prices for batches; a kind left out keeps its price"),
]


ServiceTiers = Annotated[
    dict[str, dict[Leaf, UsdPerMtok]],
    Field(
        max_length=20,
        description='Prices by service tier, such as {"flex": {"input_text": "0.07"}}; a leaf left out keeps its price '
        'and "*" stands for every tier that is not named. A tier without prices is unpriced',
    ),
]


UnitPrices = Annotated[
    dict[Annotated[str, StringConstraints(max_length=40)], UsdPerRequest],
    Field(
        max_length=50,
        description=f'USD per {ANY_UNIT}, such as {{"image": "0.04"}}, or {{"second": "0.0001"}} of sound; '
        '"image.hd.1792x1024" (quality and size, or one of both) for a kind of image, which else costs what any does',
    ),
]


class TierBody(Body):
    """Prices for the whole request once its input exceeds a number of tokens."""

    above_input_tokens: int = Field(ge=0, le=1_000_000_000)
    usd_per_mtok: Rates
    batch_usd_per_mtok: BatchRates = Field(default_factory=dict)
    service_tiers: ServiceTiers = Field(default_factory=dict)


class PriceBody(Body):
    """A new price card. A leaf without a price is unpriced and shown as such, never free."""

    model: ModelId
    version: Version = Field(description="Recorded with every request that it prices; never reused")
    usd_per_mtok: BatchRates = Field(
        default_factory=dict, description='USD per million tokens by usage leaf, such as {"input_text": "0.15"}'
    )
    usd_per_unit: UnitPrices = Field(default_factory=dict)
    batch_usd_per_mtok: BatchRates = Field(default_factory=dict)
    service_tiers: ServiceTiers = Field(default_factory=dict)
    tiers: list[TierBody] = Field(default_factory=list, max_length=20)
    usd_per_request: UsdPerRequest = Decimal(0)
    provider: Annotated[
        str,
        StringConstraints(pattern=r"^[a-z0-9_.-]*$", max_length=63),
        Field(description="Only for targets of this provider (or of this kind, if a target names no provider)"),
    ] = ""
    region: Annotated[Region, Field(description="For targets in this region only")] = ""
    tenant: Slug | None = Field(default=None, description="For this tenant only; has precedence over the general card")
    valid_from: Moment = BEGINNING
    valid_to: Moment | None = Field(default=None, description="Exclusive; null: until ended")
    replaces: Annotated[str, StringConstraints(max_length=120)] | None = Field(
        default=None,
        description="The version of a card of the same model, provider, region and tenant that ends when this one "
        "starts (by default now), in one transaction",
    )
    effect: Literal["confirmed"] | None = Field(
        default=None, description="Required if it replaces a card from a time in the past"
    )

    @model_validator(mode="after")
    def _check_units(self) -> Self:
        if not self.usd_per_mtok and not self.usd_per_unit:
            raise ValueError("the card has no price; give usd_per_mtok or usd_per_unit at least one")
        check_units(self.usd_per_mtok, self.service_tiers, self.usd_per_unit)
        return self


class StandardCostBody(Body):
    """A new standard cost card of a self-hosted model, USD per million tokens."""

    model: ModelId
    version: Version
    input_usd_per_mtok: UsdPerMtok
    cached_input_usd_per_mtok: UsdPerMtok
    output_usd_per_mtok: UsdPerMtok
    batch_input_usd_per_mtok: UsdPerMtok | None = Field(default=None, description="null: as input_usd_per_mtok")
    batch_cached_input_usd_per_mtok: UsdPerMtok | None = None
    batch_output_usd_per_mtok: UsdPerMtok | None = None
    valid_from: Moment = BEGINNING
    valid_to: Moment | None = None


class EndBody(Body):
    """End of a card, and whether to preview or confirm its effect."""

    valid_to: Moment
    effect: Literal["preview", "confirmed"] | None = Field(
        default=None,
        description="preview: change nothing and return the effect. confirmed: required if valid_to is in the past",
    )


class EffectOut(Resource):
    """The effect of ending a card."""

    ends_at: datetime
    is_past: bool
    next_version: str | None = Field(description="The card valid from then on; null: requests are unpriced")
    sentence: str


class PriceOut(Resource):
    """A price card. `card` has its prices as decimal text."""

    version: str
    model: str
    provider: str
    region: str
    tenant_id: str
    card: dict[str, object]
    valid_from: datetime
    valid_to: datetime | None
    created_at: datetime
    effect: EffectOut | None = Field(default=None, description="Effect of ending it, if requested")


class StandardCostOut(Resource):
    """A standard cost card; `origin` says whether an operator set it or analytics fitted it."""

    version: str
    model: str
    input_usd_per_mtok: Decimal
    cached_input_usd_per_mtok: Decimal
    output_usd_per_mtok: Decimal
    batch_input_usd_per_mtok: Decimal | None
    batch_cached_input_usd_per_mtok: Decimal | None
    batch_output_usd_per_mtok: Decimal | None
    origin: str
    valid_from: datetime
    valid_to: datetime | None
    created_at: datetime
    effect: EffectOut | None = Field(default=None, description="Effect of ending it, if requested")


@router.post("/prices", status_code=201, summary="Create a price card")
def create_price(body: PriceBody, author: Admin, database: Database) -> PriceOut:
    """Refused if it overlaps another card of the same model, provider, region and tenant: replace or end that one."""
    is_now = body.replaces is not None and "valid_from" not in body.model_fields_set
    rates, service_tiers = with_units(body.usd_per_mtok, body.service_tiers, body.usd_per_unit)
    new = NewPrice(
        model=body.model,
        version=body.version,
        usd_per_mtok=rates,
        valid_from=author.at if is_now else body.valid_from,
        valid_to=body.valid_to,
        tiers=[(tier.above_input_tokens, tier.usd_per_mtok) for tier in body.tiers],
        usd_per_request=body.usd_per_request,
        provider=body.provider,
        region=body.region,
        tenant=body.tenant or "",
        batch_usd_per_mtok=body.batch_usd_per_mtok,
        batch_tiers={tier.above_input_tokens: tier.batch_usd_per_mtok for tier in body.tiers},
        service_tiers=service_tiers,
        service_tiers_above={tier.above_input_tokens: tier.service_tiers for tier in body.tiers},
    )
    with database.session() as session:
        if body.replaces is None:
            return PriceOut.model_validate(prices.create_price(session, author, new))
        is_confirmed = body.effect == "confirmed"
        row = prices.replace_price(session, author, body.replaces, new, is_confirmed=is_confirmed)
        return PriceOut.model_validate(row)


@router.get("/prices", summary="List price cards")
def list_prices(wanted: Wanted, author: Admin, database: Database) -> Page[PriceOut]:
    with database.session() as session:
        limit, tenant = wanted.limit + 1, author.tenant_id
        rows = prices.list_prices(session, after=wanted.after, limit=limit, seen_by_tenant=tenant)
        return page_of(rows, wanted, PriceOut.model_validate)


@router.get("/prices/{version:path}", summary="Get a price card")
def get_price(version: VersionPath, author: Admin, database: Database) -> PriceOut:
    with database.session() as session:
        return PriceOut.model_validate(prices.get_price(session, version, seen_by_tenant=author.tenant_id))


@router.patch("/prices/{version:path}", summary="End a price card")
def end_price(version: VersionPath, body: EndBody, author: Admin, database: Database) -> PriceOut:
    """Refused if it ends in the past, unless `effect` is `confirmed`; `preview` shows the effect."""
    with database.session() as session:
        effect = EffectOut.model_validate(prices.effect_of_end(session, author, version, body.valid_to))
        if body.effect == "preview":
            row = session.get(Price, version)
        else:
            is_confirmed = body.effect == "confirmed"
            row = prices.end_price(session, author, version, body.valid_to, is_confirmed=is_confirmed)
        return PriceOut.model_validate(row).model_copy(update={"effect": effect})


@router.post("/standard-costs", status_code=201, summary="Create a standard cost card")
def create_standard_cost(body: StandardCostBody, author: Admin, database: Database) -> StandardCostOut:
    with database.session() as session:
        row = prices.create_standard_cost(session, author, NewStandardCost(**body.model_dump()))
        return StandardCostOut.model_validate(row)


@router.get("/standard-costs", summary="List standard cost cards")
def list_standard_costs(wanted: Wanted, author: Admin, database: Database) -> Page[StandardCostOut]:
    with database.session() as session:
        rows = prices.list_standard_costs(session, after=wanted.after, limit=wanted.limit + 1)
        return page_of(rows, wanted, StandardCostOut.model_validate)


@router.get("/standard-costs/{version:path}", summary="Get a standard cost card")
def get_standard_cost(version: VersionPath, author: Admin, database: Database) -> StandardCostOut:
    with database.session() as session:
        return StandardCostOut.model_validate(prices.get_standard_cost(session, version))


@router.patch("/standard-costs/{version:path}", summary="End a standard cost card")
def end_standard_cost(version: VersionPath, body: EndBody, author: Admin, database: Database) -> StandardCostOut:
    """Refused if it ends in the past, unless `effect` is `confirmed`; `preview` shows the effect."""
    with database.session() as session:
        effect = EffectOut.model_validate(prices.effect_of_end(session, author, version, body.valid_to))
        if body.effect == "preview":
            row = session.get(StandardCost, version)
        else:
            is_confirmed = body.effect == "confirmed"
            row = prices.end_standard_cost(session, author, version, body.valid_to, is_confirmed=is_confirmed)
        return StandardCostOut.model_validate(row).model_copy(update={"effect": effect})
