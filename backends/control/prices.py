"""Price cards and standard cost cards in the control database, always written and read as `contracts.prices` cards.

A card is never changed once it has priced something; its end may be set, so that the next one can begin.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import cast

from sqlalchemy import select
from sqlalchemy.orm import Session

from backends.control.changes import Author, begin_change
from backends.control.organisation import get_tenant
from contracts.control import Price, StandardCost
from contracts.errors import ConfigurationError, Conflict, InvalidRequest, NotFound
from contracts.money import pico_usd_per_token
from contracts.prices import AnyCard, PriceBook, PriceCard, StandardCostCard, price_card
from contracts.usage import Leaf

BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class NewPrice:
    """A price card as people write it: USD per million tokens by usage leaf, tiers above a number of input tokens."""

    model: str
    version: str
    usd_per_mtok: Mapping[Leaf, Decimal]
    valid_from: datetime = BEGINNING
    valid_to: datetime | None = None
    tiers: Sequence[tuple[int, Mapping[Leaf, Decimal]]] = ()
    usd_per_request: Decimal = field(default=Decimal(0))
    provider: str = ""
    tenant: str = ""
    batch_usd_per_mtok: Mapping[Leaf, Decimal] = field(default_factory=dict)
    batch_tiers: Mapping[int, Mapping[Leaf, Decimal]] = field(default_factory=dict)  # by the tier's threshold
    service_tiers: Mapping[str, Mapping[Leaf, Decimal]] = field(default_factory=dict)  # by name, such as "flex"
    service_tiers_above: Mapping[int, Mapping[str, Mapping[Leaf, Decimal]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewStandardCost:
    """A standard cost card as people write it, in USD per million tokens."""

    model: str
    version: str
    input_usd_per_mtok: Decimal
    cached_input_usd_per_mtok: Decimal
    output_usd_per_mtok: Decimal
    valid_from: datetime = BEGINNING
    valid_to: datetime | None = None
    batch_input_usd_per_mtok: Decimal | None = None
    batch_cached_input_usd_per_mtok: Decimal | None = None
    batch_output_usd_per_mtok: Decimal | None = None
    origin: str = "operator"  # or "fitted", from measured GPU cost
    evidence: Mapping[str, object] = field(default_factory=dict)  # of a fitted one: what it rests on


def create_price(session: Session, author: Author, new: NewPrice) -> Price:
    """Add a price card.

    Raises InvalidRequest naming the leaf whose price is negative or too fine, Conflict where the version is
    taken or the card's validity overlaps another of the same model, provider and tenant, NotFound on an unknown
    tenant.
    """
    begin_change(session, author, "price.create", new.version, {"model": new.model, "tenant": new.tenant})
    if new.tenant:
        get_tenant(session, new.tenant)
    row = Price(
        version=new.version,
        model=new.model,
        provider=new.provider,
        tenant_id=new.tenant,
        card={
            "usd_per_mtok": _as_text(new.usd_per_mtok),
            "batch_usd_per_mtok": _as_text(new.batch_usd_per_mtok),
            "service_tiers": _tiers_as_text(new.service_tiers),
            "tiers": [
                {
                    "above_input_tokens": above,
                    "usd_per_mtok": _as_text(rates),
                    "batch_usd_per_mtok": _as_text(new.batch_tiers.get(above, {})),
                    "service_tiers": _tiers_as_text(new.service_tiers_above.get(above, {})),
                }
                for above, rates in new.tiers
            ],
            "usd_per_request": format(new.usd_per_request, "f"),
        },
        valid_from=new.valid_from,
        valid_to=new.valid_to,
        created_at=author.at,
    )
    _refuse_taken_version(session, new.version)
    _check_card(session, row)
    session.add(row)
    session.flush()
    return row


def create_standard_cost(session: Session, author: Author, new: NewStandardCost) -> StandardCost:
    """Add a standard cost card. Raises as `create_price` does."""
    begin_change(session, author, "standard_cost.create", new.version, {"model": new.model})
    row = StandardCost(
        version=new.version,
        model=new.model,
        input_usd_per_mtok=new.input_usd_per_mtok,
        cached_input_usd_per_mtok=new.cached_input_usd_per_mtok,
        output_usd_per_mtok=new.output_usd_per_mtok,
        batch_input_usd_per_mtok=new.batch_input_usd_per_mtok,
        batch_cached_input_usd_per_mtok=new.batch_cached_input_usd_per_mtok,
        batch_output_usd_per_mtok=new.batch_output_usd_per_mtok,
        origin=new.origin,
        evidence=dict(new.evidence),
        valid_from=new.valid_from,
        valid_to=new.valid_to,
        created_at=author.at,
    )
    _refuse_taken_version(session, new.version)
    _check_card(session, row)
    session.add(row)
    session.flush()
    return row


def list_prices(session: Session, *, after: str = "", limit: int = 100, seen_by_tenant: str = "") -> list[Price]:
    """Give up to `limit` price cards whose versions sort after `after`; no other tenant's where one is named."""
    wanted = select(Price).where(Price.version > after).order_by(Price.version).limit(limit)
    return list(session.scalars(wanted.where(Price.tenant_id.in_(("", seen_by_tenant))) if seen_by_tenant else wanted))


def list_standard_costs(session: Session, *, after: str = "", limit: int = 100) -> list[StandardCost]:
    """Give up to `limit` standard cost cards whose versions sort after `after`."""
    wanted = select(StandardCost).where(StandardCost.version > after).order_by(StandardCost.version).limit(limit)
    return list(session.scalars(wanted))


def end_price(session: Session, author: Author, version: str, valid_to: datetime) -> Price:
    """Set the moment from which a price card no longer holds. Raises NotFound, InvalidRequest or Conflict."""
    begin_change(session, author, "price.end", version, {"valid_to": valid_to.isoformat()})
    row = session.get(Price, version)
    if row is None:
        raise NotFound(f"no price card has the version {version!r}")
    row.valid_to = valid_to
    _check_card(session, row)
    session.flush()
    return row


def end_standard_cost(session: Session, author: Author, version: str, valid_to: datetime) -> StandardCost:
    """Set the moment from which a standard cost card no longer holds. Raises as `end_price` does."""
    begin_change(session, author, "standard_cost.end", version, {"valid_to": valid_to.isoformat()})
    row = session.get(StandardCost, version)
    if row is None:
        raise NotFound(f"no standard cost card has the version {version!r}")
    row.valid_to = valid_to
    _check_card(session, row)
    session.flush()
    return row


def load_cards(session: Session, model: str | None = None) -> list[AnyCard]:
    """Give the cards of one model, or all of them."""
    prices, standards = select(Price), select(StandardCost)
    if model is not None:
        prices, standards = prices.where(Price.model == model), standards.where(StandardCost.model == model)
    cards: list[AnyCard] = [card_of_price(row) for row in session.scalars(prices)]
    cards.extend(card_of_standard_cost(row) for row in session.scalars(standards))
    return cards


def card_of_price(row: Price) -> PriceCard:
    """Build the card a row stands for. Raises ConfigurationError where the row breaks a card's rules."""
    written = cast("Mapping[str, object]", row.card)
    tiers = cast("Sequence[Mapping[str, object]]", written.get("tiers", ()))
    try:
        return price_card(
            row.model,
            row.version,
            _as_decimals(written["usd_per_mtok"]),
            valid_from=row.valid_from,
            valid_to=row.valid_to,
            tiers=[(cast(int, tier["above_input_tokens"]), _as_decimals(tier["usd_per_mtok"])) for tier in tiers],
            usd_per_request=Decimal(str(written.get("usd_per_request", "0"))),
            provider=row.provider,
            tenant=row.tenant_id,
            batch_usd_per_mtok=_as_decimals(written.get("batch_usd_per_mtok", {})),
            batch_tiers={
                cast(int, tier["above_input_tokens"]): _as_decimals(tier.get("batch_usd_per_mtok", {}))
                for tier in tiers
            },
            service_tiers=_tiers_as_decimals(written.get("service_tiers", {})),
            service_tiers_above={
                cast(int, tier["above_input_tokens"]): _tiers_as_decimals(tier.get("service_tiers", {}))
                for tier in tiers
            },
        )
    except ValueError as error:  # the fee per request is finer than a pico-USD
        raise ConfigurationError(f"card {row.version!r}, usd_per_request: {error}") from error


def card_of_standard_cost(row: StandardCost) -> StandardCostCard:
    """Build the card a row stands for. Raises ConfigurationError where the row breaks a card's rules."""
    rates: dict[str, int] = {}
    batch_rates: dict[str, int | None] = {}
    for name in ("input_usd_per_mtok", "cached_input_usd_per_mtok", "output_usd_per_mtok"):
        rates[name] = _rate(row, name)
        written = getattr(row, f"batch_{name}")
        batch_rates[name] = None if written is None else _rate(row, f"batch_{name}")
    return StandardCostCard(
        model=row.model,
        version=row.version,
        valid_from=row.valid_from,
        input_rate=rates["input_usd_per_mtok"],
        cached_input_rate=rates["cached_input_usd_per_mtok"],
        output_rate=rates["output_usd_per_mtok"],
        valid_to=row.valid_to,
        batch_input_rate=batch_rates["input_usd_per_mtok"],
        batch_cached_input_rate=batch_rates["cached_input_usd_per_mtok"],
        batch_output_rate=batch_rates["output_usd_per_mtok"],
    )


def _rate(row: StandardCost, name: str) -> int:
    try:
        return pico_usd_per_token(getattr(row, name))
    except ValueError as error:
        raise ConfigurationError(f"card {row.version!r}, {name}: {error}") from error


def _as_text(rates: Mapping[Leaf, Decimal]) -> dict[str, str]:
    # Text, because JSON's numbers are floats and money is not.
    return {leaf: format(rate, "f") for leaf, rate in rates.items()}


def _as_decimals(rates: object) -> dict[Leaf, Decimal]:
    return {leaf: Decimal(rate) for leaf, rate in cast("Mapping[Leaf, str]", rates).items()}


def _tiers_as_text(tiers: Mapping[str, Mapping[Leaf, Decimal]]) -> dict[str, dict[str, str]]:
    return {name: _as_text(rates) for name, rates in tiers.items()}


def _tiers_as_decimals(tiers: object) -> dict[str, dict[Leaf, Decimal]]:
    return {name: _as_decimals(rates) for name, rates in cast("Mapping[str, object]", tiers).items()}


def _refuse_taken_version(session: Session, version: str) -> None:
    # One name space for both kinds: a row of telemetry says only the version.
    if session.get(Price, version) is not None or session.get(StandardCost, version) is not None:
        raise Conflict(
            f"a card with the version {version!r} exists already; versions are never reused", param="version"
        )


def _check_card(session: Session, row: Price | StandardCost) -> None:
    try:
        card = card_of_price(row) if isinstance(row, Price) else card_of_standard_cost(row)
    except ConfigurationError as error:
        raise InvalidRequest(error.message) from error
    with session.no_autoflush:  # a card that is about to be refused must not be written first
        others = [other for other in load_cards(session, card.model) if other.version != card.version]
    try:
        PriceBook([*others, card])
    except ConfigurationError as error:
        raise Conflict(error.message, param="valid_from") from error
