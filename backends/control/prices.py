"""Price cards and standard cost cards in the control database, written and read as cards of `contracts.pricing.prices`.

Prices on a card never change; its end may be set, so that the next card can start.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final, cast

from sqlalchemy import select
from sqlalchemy.orm import Session

from backends.control.changes import Author, begin_change
from backends.control.organisation import get_tenant
from backends.control.row_names import row_name
from contracts.control import Price, StandardCost
from contracts.errors import ConfigurationError, Conflict, EffectUnconfirmed, InvalidRequest, NotFound
from contracts.metering.usage import Leaf
from contracts.pricing.money import pico_usd_per_token
from contracts.pricing.prices import BEGINNING, AnyCard, NewPrice, PriceBook, PriceCard, StandardCostCard, price_card
from contracts.pricing.unit_prices import units_in, with_units, without_units

GRACE = timedelta(minutes=1)  # an end within the last minute counts as now

BUILTIN_VERSIONS: Final = "builtin/"  # prefix of the versions of built-in cards


@dataclass(frozen=True, slots=True)
class NewStandardCost:
    """A standard cost card to create, in USD per million tokens."""

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
    evidence: Mapping[str, object] = field(default_factory=dict)  # of a fitted card: the measurements


def create_price(session: Session, author: Author, new: NewPrice) -> Price:
    """Add a price card.

    Raises InvalidRequest naming the leaf whose price is negative or too fine, Conflict if the version is in use or the
    card's validity overlaps another of the same model, provider, region and tenant, NotFound on an unknown tenant.
    """
    begin_change(session, author, "price.create", new.version, {"model": new.model, "tenant": new.tenant})
    if new.tenant:
        get_tenant(session, new.tenant)
    rates, service_tiers = without_units(new.usd_per_mtok, new.service_tiers)
    row = Price(
        version=new.version,
        model=new.model,
        provider=new.provider,
        region=new.region,
        tenant_id=new.tenant,
        card={
            "usd_per_mtok": _as_text(rates),
            "usd_per_unit": _as_text(units_in(new.usd_per_mtok, new.service_tiers)),
            "batch_usd_per_mtok": _as_text(new.batch_usd_per_mtok),
            "service_tiers": _tiers_as_text(service_tiers),
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
    """Return up to `limit` price cards whose versions sort after `after`; without other tenants' cards if a tenant is
    named.
    """
    wanted = select(Price).where(Price.version > after).order_by(Price.version).limit(limit)
    return list(session.scalars(wanted.where(Price.tenant_id.in_(("", seen_by_tenant))) if seen_by_tenant else wanted))


def list_standard_costs(session: Session, *, after: str = "", limit: int = 100) -> list[StandardCost]:
    """Return up to `limit` standard cost cards whose versions sort after `after`."""
    wanted = select(StandardCost).where(StandardCost.version > after).order_by(StandardCost.version).limit(limit)
    return list(session.scalars(wanted))


def get_price(session: Session, version: str, *, seen_by_tenant: str = "") -> Price:
    """Return a price card. Raises NotFound, also on another tenant's card if a tenant is named."""
    row = session.get(Price, version)
    if row is None or (seen_by_tenant and row.tenant_id not in ("", seen_by_tenant)):
        raise NotFound(
            f"no price card has the version {version!r}; `tollkeeper prices list` shows those there are",
            rows=[row_name(Price, version)],
        )
    return row


def get_standard_cost(session: Session, version: str) -> StandardCost:
    """Return a standard cost card. Raises NotFound."""
    row = session.get(StandardCost, version)
    if row is None:
        raise NotFound(f"no standard cost card has the version {version!r}", rows=[row_name(StandardCost, version)])
    return row


def replace_price(
    session: Session, author: Author, version: str, new: NewPrice, *, is_confirmed: bool = False
) -> Price:
    """End a price card when a new one of the same model, provider, region and tenant starts, and add the new one.

    Both in the caller's transaction. Raises as `create_price` and `end_price` do, and InvalidRequest if the new card is
    for another model, provider, region or tenant, or starts after the old one's end.
    """
    old = session.get(Price, version)
    if old is None:
        raise NotFound(f"no price card has the version {version!r}", rows=[row_name(Price, version)])
    for name, ours, theirs in (
        ("model", old.model, new.model),
        ("provider", old.provider, new.provider),
        ("region", old.region, new.region),
        ("tenant", old.tenant_id, new.tenant),
    ):
        if ours != theirs:
            raise InvalidRequest(
                f"the card {version!r} holds for the {name} {ours!r}, and the new one for {theirs!r}; "
                "a card replaces one of the same model, provider, region and tenant",
                param=name,
            )
    if old.valid_to is not None and old.valid_to < new.valid_from:
        raise InvalidRequest(
            f"the card {version!r} has ended already, at {old.valid_to.isoformat()}; leave `replaces` out",
            param="replaces",
        )
    if not is_confirmed and new.valid_from < author.at - GRACE:
        raise EffectUnconfirmed(
            f"the card {version!r} would be replaced from {new.valid_from.isoformat()} on, which is in the past: "
            f"requests since then were priced with {version!r} and keep that price. Begin the new card now (leave "
            'valid_from out), or send "effect": "confirmed"',
            param="valid_from",
        )
    _set_end(session, author, old, new.valid_from, "price.end", {"replaced_by": new.version})
    return create_price(session, author, new)


def end_price(
    session: Session, author: Author, version: str, valid_to: datetime, *, is_confirmed: bool = False
) -> Price:
    """Set the end of a price card's validity.

    Raises NotFound, InvalidRequest, Conflict, and EffectUnconfirmed if that time is in the past and `is_confirmed` is
    not set.
    """
    row = session.get(Price, version)
    if row is None:
        raise NotFound(f"no price card has the version {version!r}", rows=[row_name(Price, version)])
    _check_end(session, author, row, valid_to, is_confirmed=is_confirmed)
    _set_end(session, author, row, valid_to, "price.end", {"confirmed": True} if is_confirmed else {})
    return row


def end_standard_cost(
    session: Session, author: Author, version: str, valid_to: datetime, *, is_confirmed: bool = False
) -> StandardCost:
    """Set the end of a standard cost card's validity. Raises as `end_price` does."""
    row = session.get(StandardCost, version)
    if row is None:
        raise NotFound(f"no standard cost card has the version {version!r}", rows=[row_name(StandardCost, version)])
    _check_end(session, author, row, valid_to, is_confirmed=is_confirmed)
    _set_end(session, author, row, valid_to, "standard_cost.end", {"confirmed": True} if is_confirmed else {})
    return row


@dataclass(frozen=True, slots=True)
class EndEffect:
    """The effect of ending a card: which card (if any) then prices its model, and whether it is in the past."""

    version: str
    ends_at: datetime
    is_past: bool
    next_version: str | None

    @property
    def sentence(self) -> str:
        """Return the effect as a sentence."""
        when = self.ends_at.isoformat()
        said = f"requests from {when} on are unpriced: no other card holds for them then"
        if self.next_version is not None:
            said = f"requests from {when} on are priced with the card {self.next_version!r}"
        if self.is_past:
            said += f"; those since then that were priced with {self.version!r} keep that price on their records"
        return said


def effect_of_end(session: Session, author: Author, version: str, valid_to: datetime) -> EndEffect:
    """Return the effect of ending a price card or standard cost card, changing nothing. Raises NotFound."""
    row = session.get(Price, version) or session.get(StandardCost, version)
    if row is None:
        raise NotFound(
            f"no card has the version {version!r}", rows=[row_name(Price, version), row_name(StandardCost, version)]
        )
    return _effect(session, author, row, valid_to)


def _effect(session: Session, author: Author, row: Price | StandardCost, valid_to: datetime) -> EndEffect:
    # The later of the two times: after a card that ended long ago there may be another.
    at = max(valid_to, author.at)
    others = [card for card in load_cards(session, row.model) if card.version != row.version]
    provider, region, tenant = (row.provider, row.region, row.tenant_id) if isinstance(row, Price) else ("", "", "")
    book = PriceBook(others)
    following = [book.card_for(row.model, tenant, moment, provider, region) for moment in {valid_to, at}]
    held = None if None in following else following[-1]
    return EndEffect(row.version, valid_to, valid_to < author.at - GRACE, None if held is None else held.version)


def _check_end(
    session: Session, author: Author, row: Price | StandardCost, valid_to: datetime, *, is_confirmed: bool
) -> None:
    if is_confirmed or valid_to >= author.at - GRACE:
        return
    effect = _effect(session, author, row, valid_to)
    raise EffectUnconfirmed(
        f"the card {row.version!r} would end at {valid_to.isoformat()}, which is in the past: {effect.sentence}. "
        'To end it all the same, send "effect": "confirmed"; to follow it by another card, POST it with '
        f'"replaces": "{row.version}"',
        param="valid_to",
    )


def _set_end(
    session: Session,
    author: Author,
    row: Price | StandardCost,
    valid_to: datetime,
    action: str,
    more: dict[str, object],
) -> None:
    begin_change(session, author, action, row.version, {"valid_to": valid_to.isoformat(), **more})
    session.refresh(row)  # read again under the write lock
    row.valid_to = valid_to
    _check_card(session, row)
    session.flush()


def load_cards(session: Session, model: str | None = None) -> list[AnyCard]:
    """Return the cards of one model, or all of them."""
    prices, standards = select(Price), select(StandardCost)
    if model is not None:
        prices, standards = prices.where(Price.model == model), standards.where(StandardCost.model == model)
    cards: list[AnyCard] = [card_of_price(row) for row in session.scalars(prices)]
    cards.extend(card_of_standard_cost(row) for row in session.scalars(standards))
    return cards


def card_of_price(row: Price) -> PriceCard:
    """Build the price card in a row. Raises ConfigurationError if the row is invalid."""
    written = cast("Mapping[str, object]", row.card)
    tiers = cast("Sequence[Mapping[str, object]]", written.get("tiers", ()))
    per_unit = {
        word: Decimal(price) for word, price in cast("Mapping[str, str]", written.get("usd_per_unit", {})).items()
    }
    try:
        rates, service_tiers = with_units(
            _as_decimals(written["usd_per_mtok"]), _tiers_as_decimals(written.get("service_tiers", {})), per_unit
        )
        return price_card(
            NewPrice(
                row.model,
                row.version,
                rates,
                valid_from=row.valid_from,
                valid_to=row.valid_to,
                tiers=[(cast(int, tier["above_input_tokens"]), _as_decimals(tier["usd_per_mtok"])) for tier in tiers],
                usd_per_request=Decimal(str(written.get("usd_per_request", "0"))),
                provider=row.provider,
                tenant=row.tenant_id,
                region=row.region,
                batch_usd_per_mtok=_as_decimals(written.get("batch_usd_per_mtok", {})),
                batch_tiers={
                    cast(int, tier["above_input_tokens"]): _as_decimals(tier.get("batch_usd_per_mtok", {}))
                    for tier in tiers
                },
                service_tiers=service_tiers,
                service_tiers_above={
                    cast(int, tier["above_input_tokens"]): _tiers_as_decimals(tier.get("service_tiers", {}))
                    for tier in tiers
                },
            )
        )
    except ValueError as error:  # the fee per request is not a whole number of pico-USD
        raise ConfigurationError(f"card {row.version!r}, usd_per_request: {error}") from error


def card_of_standard_cost(row: StandardCost) -> StandardCostCard:
    """Build the standard cost card in a row. Raises ConfigurationError if the row is invalid."""
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


def _as_text(rates: Mapping[Leaf, Decimal] | Mapping[str, Decimal]) -> dict[str, str]:
    # As text: money must not become a float, as JSON's numbers do.
    return {leaf: format(rate, "f") for leaf, rate in rates.items()}


def _as_decimals(rates: object) -> dict[Leaf, Decimal]:
    return {leaf: Decimal(rate) for leaf, rate in cast("Mapping[Leaf, str]", rates).items()}


def _tiers_as_text(tiers: Mapping[str, Mapping[Leaf, Decimal]]) -> dict[str, dict[str, str]]:
    return {name: _as_text(rates) for name, rates in tiers.items()}


def _tiers_as_decimals(tiers: object) -> dict[str, dict[Leaf, Decimal]]:
    return {name: _as_decimals(rates) for name, rates in cast("Mapping[str, object]", tiers).items()}


def _refuse_taken_version(session: Session, version: str) -> None:
    # Versions are unique over both kinds of cards: telemetry rows name only the version.
    if session.get(Price, version) is not None or session.get(StandardCost, version) is not None:
        raise Conflict(
            f"a card with the version {version!r} exists already; versions are never reused", param="version"
        )


def _check_card(session: Session, row: Price | StandardCost) -> None:
    try:
        card = card_of_price(row) if isinstance(row, Price) else card_of_standard_cost(row)
    except ConfigurationError as error:
        raise InvalidRequest(error.message) from error
    with session.no_autoflush:  # the card must not be written before it is checked
        others = [other for other in load_cards(session, card.model) if other.version != card.version]
    try:
        PriceBook([*others, card])
    except ConfigurationError as error:
        raise Conflict(error.message, param="valid_from") from error
