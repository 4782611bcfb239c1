"""Finds list prices for targets without a price card: in the catalogue, else in LiteLLM's table."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from analytics.prices.catalogue import Unpriceable, catalogue_cards, catalogue_version
from analytics.prices.litellm_table import LitellmTable, UnknownModel
from analytics.prices.provider_names import PricedName, price_names
from contracts.control import Model, Pool, Target
from contracts.errors import ConfigurationError, NotFound, TollkeeperError
from contracts.metering.usage import Leaf
from contracts.pricing.money import usd
from contracts.pricing.prices import AnyCard, NewPrice, PriceBook, PriceCard, Tier
from contracts.pricing.service_tiers import BATCH

_LITELLM: Final = "litellm"  # a kind of target
_DEPLOYMENTS: Final = frozenset({"azure", "azure_ai"})  # providers whose customers choose deployment names


@dataclass(frozen=True, slots=True)
class SoldModel:
    """A model as applications request it, and its provider and name there.

    `provider` is its name in records and cards. `kind` is the target's, `library_provider` the provider that a LiteLLM
    target states beside its model, `region` the target's region.
    """

    model: str
    provider: str
    upstream: str
    kind: str = ""
    library_provider: str = ""
    region: str = ""


def sold_models(session: Session) -> list[SoldModel]:
    """Return pools' models whose targets name a provider or are of kind litellm."""
    wanted = select(Model.id, Target.provider, Target.model, Target.kind, Target.settings, Pool.region)
    joined = wanted.join(Target, Target.pool_id == Model.pool_id).join(Pool, Pool.id == Model.pool_id)
    found = {
        SoldModel(model, provider or kind, upstream or model, kind, _library_provider(settings), region)
        for model, provider, upstream, kind, settings, region in session.execute(joined).all()
        if provider or kind == _LITELLM
    }
    return sorted(found, key=_name)


def _library_provider(settings: Mapping[str, object]) -> str:
    params = settings.get("params")
    return str(params.get("custom_llm_provider") or "") if isinstance(params, dict) else ""


def without_card(
    sold: Iterable[SoldModel], known: Sequence[AnyCard], now: datetime, tenant: str = ""
) -> list[SoldModel]:
    """Return the models without a valid price card; with a tenant, only its own cards count."""
    book = PriceBook([card for card in known if not tenant or card.tenant == tenant])
    return [one for one in sold if book.card_for(one.model, tenant, now, one.provider, one.region) is None]


def bought_under_one_name(sold: Sequence[SoldModel]) -> tuple[list[SoldModel], list[str]]:
    """Return the models with one name at their provider, and messages on the others, as one card cannot price both."""
    names: dict[tuple[str, str], list[str]] = {}
    for one in sold:
        names.setdefault((one.model, one.provider), []).append(one.upstream)
    refused = [
        f"{model} of {provider} stays unpriced: it is bought as {' and '.join(upstreams)}, and a card has one price; "
        "write it yourself (POST /v1/prices)"
        for (model, provider), upstreams in names.items()
        if len(upstreams) > 1
    ]
    return [one for one in sold if len(names[one.model, one.provider]) == 1], refused


def _name(sold: SoldModel) -> tuple[str, str, str]:
    return sold.model, sold.provider, sold.upstream


def listed_cards(sold: SoldModel, table: LitellmTable | None) -> tuple[PriceCard, ...]:
    """Return the cards of one model: from the catalogue, else from `table`.

    Raises NotFound if neither has it under any of its names, Unpriceable or ConfigurationError if a card cannot express
    its price.
    """
    names = price_names(sold.kind, sold.provider, sold.upstream, sold.library_provider)
    why: TollkeeperError | None = None
    for name in names:
        try:
            cards = catalogue_cards(name.provider, name.model, model=sold.model, seller=sold.provider)
        except NotFound:
            continue
        except (Unpriceable, ConfigurationError) as error:
            why = error
            break
        if cards:
            return cards
    for name in names:
        if table is None:
            break
        try:
            return (table.card(name.provider, name.model, model=sold.model, seller=sold.provider),)
        except UnknownModel:
            continue
        except (NotFound, ConfigurationError) as error:
            why = error
            break
    raise why or _unknown(sold, names, table)


def _unknown(sold: SoldModel, names: Sequence[PricedName], table: LitellmTable | None) -> NotFound:
    lists = catalogue_version() if table is None else f"{catalogue_version()} and {table.version}"
    tried = " or ".join(f"{name.model!r}" for name in names)
    provider = names[0].provider
    remedy = "write a card for it (POST /v1/prices)"
    if table is None:
        remedy = f"give LiteLLM's table (--litellm FILE), or {remedy}"
    if provider in _DEPLOYMENTS:
        remedy = f"name the deployment as the model is called ({provider}/gpt-4o), or {remedy}"
    if sold.upstream.rpartition("/")[2].startswith("arn:") or ":arn:" in sold.upstream or "/arn:" in sold.upstream:
        remedy = "an ARN names no model: use the model's id in its place, or write a card for it (POST /v1/prices)"
    return NotFound(f"no model of {provider!r} is called {tried} in {lists}; {remedy}")


def missing_cards(
    cards: Sequence[PriceCard], known: Sequence[AnyCard], now: datetime, tenant: str = ""
) -> list[PriceCard]:
    """Return the cards that are not yet present, without ended ones; each begins at the end of the last present one.

    With a tenant, only its own cards count as present.
    """
    own = [card for card in known if not tenant or card.tenant == tenant]
    book = PriceBook(own)
    alive = [card for card in cards if card.valid_to is None or card.valid_to > now]
    missing = [card for card in alive if book.card_for(card.model, tenant, now, card.provider) is None]
    return [_begun_after(card, own, now, tenant) for card in missing]


def _begun_after(card: PriceCard, known: Iterable[AnyCard], now: datetime, tenant: str) -> PriceCard:
    name = (card.model, card.provider, tenant, card.region)
    ends = [
        one.valid_to
        for one in known
        if (one.model, one.provider, one.tenant, one.region) == name and one.valid_to is not None
    ]
    return replace(card, valid_from=max([card.valid_from, *(end for end in ends if end <= now)]))


def adjusted(card: PriceCard, tenant: str = "", percent: int = 0) -> PriceCard:
    """Return a card for one tenant, with a mark-up (10) or discount (-10) in percent; its version has both.

    Prices are rounded to whole pico-USD per token, a card's smallest unit.
    """

    def changed(amount: int) -> int:
        return (amount * (100 + percent) + 50) // 100

    def prices(rates: Mapping[Leaf, int]) -> dict[Leaf, int]:
        return {leaf: changed(rate) for leaf, rate in rates.items()}

    def by_tier(tiers: Mapping[str, Mapping[Leaf, int]]) -> dict[str, Mapping[Leaf, int]]:
        return {name: prices(rates) for name, rates in tiers.items()}

    mark = f"@{tenant}{percent:+d}" if tenant else f"{percent:+d}" if percent else ""
    return replace(
        card,
        version=card.version + mark,
        tenant=tenant or card.tenant,
        rates=prices(card.rates),
        tiers=tuple(
            Tier(tier.above_input_tokens, prices(tier.rates), by_tier(tier.service_tiers)) for tier in card.tiers
        ),
        request_pico_usd=changed(card.request_pico_usd),
        service_tiers=by_tier(card.service_tiers),
    )


def compatible_cards(cards: Iterable[PriceCard], known: Iterable[AnyCard]) -> tuple[list[PriceCard], list[str]]:
    """Return the cards that do not conflict with present ones, and messages on the others."""
    fitting: list[PriceCard] = []
    refused: list[str] = []
    there = list(known)
    for card in cards:
        try:
            PriceBook([*there, *fitting, card])
        except ConfigurationError as error:
            refused.append(f"{card.model} of {card.provider or 'any provider'} gets no card: {error.message}")
        else:
            fitting.append(card)
    return fitting, refused


def as_new_price(card: PriceCard) -> NewPrice:
    """Convert a card to the control plane's input."""

    def prices(rates: Mapping[Leaf, int]) -> dict[Leaf, Decimal]:
        return {leaf: Decimal(rate).scaleb(-6) for leaf, rate in rates.items()}

    def by_tier(tiers: Mapping[str, Mapping[Leaf, int]]) -> dict[str, Mapping[Leaf, Decimal]]:
        return {name: prices(rates) for name, rates in tiers.items() if name != BATCH}

    return NewPrice(
        model=card.model,
        version=card.version,
        usd_per_mtok=prices(card.rates),
        valid_from=card.valid_from,
        valid_to=card.valid_to,
        tiers=[(tier.above_input_tokens, prices(tier.rates)) for tier in card.tiers],
        usd_per_request=usd(card.request_pico_usd),
        provider=card.provider,
        tenant=card.tenant,
        region=card.region,
        batch_usd_per_mtok=prices(card.service_tiers.get(BATCH, {})),
        batch_tiers={tier.above_input_tokens: prices(tier.service_tiers.get(BATCH, {})) for tier in card.tiers},
        service_tiers=by_tier(card.service_tiers),
        service_tiers_above={tier.above_input_tokens: by_tier(tier.service_tiers) for tier in card.tiers},
    )
