"""Which list prices an installation lacks: cards for its targets, from the catalogue, else from LiteLLM's table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from sqlalchemy import select
from sqlalchemy.orm import Session

from analytics.prices.catalogue import Unpriceable, catalogue_cards
from analytics.prices.litellm_table import LitellmTable
from backends.control.prices import NewPrice
from contracts.control import Model, Target
from contracts.errors import ConfigurationError, NotFound
from contracts.money import usd
from contracts.prices import PriceBook, PriceCard
from contracts.usage import Leaf


@dataclass(frozen=True, slots=True)
class Sold:
    """A model that applications ask for, and the provider and name by which it is bought."""

    model: str
    provider: str
    upstream: str


def sold_models(session: Session) -> list[Sold]:
    """Give the hosted models that pools serve: those whose targets name a provider."""
    wanted = select(Model.id, Target.provider, Target.model).join(Target, Target.pool_id == Model.pool_id)
    rows = session.execute(wanted.where(Target.provider != "")).all()
    return sorted({Sold(model, provider, upstream or model) for model, provider, upstream in rows}, key=_name)


def _name(sold: Sold) -> tuple[str, str, str]:
    return sold.model, sold.provider, sold.upstream


def listed_cards(sold: Sold, table: LitellmTable | None) -> tuple[PriceCard, ...]:
    """Give the cards of one model: from the catalogue, else from the table, where one is given.

    Raises NotFound or another error of ours where neither can say its price.
    """
    try:
        return catalogue_cards(sold.provider, sold.upstream, model=sold.model, seller=sold.provider)
    except (NotFound, Unpriceable, ConfigurationError):
        if table is None:
            raise
    return (table.card(sold.provider, sold.upstream, model=sold.model, seller=sold.provider),)


def not_yet_there(cards: Sequence[PriceCard], book: PriceBook, now: datetime) -> list[PriceCard]:
    """Leave out what a card that holds now already prices, and cards that have ended."""
    alive = [card for card in cards if card.valid_to is None or card.valid_to > now]
    return [card for card in alive if book.card_for(card.model, card.tenant, now, card.provider) is None]


def as_new_price(card: PriceCard, tenant: str = "", percent: int = 0, version_mark: str = "") -> NewPrice:
    """Write a card as the control plane takes it; for one tenant, with a percentage put on (10) or taken off (-10)."""

    def prices(rates: Mapping[Leaf, int]) -> dict[Leaf, Decimal]:
        # Rounded to a pico-USD per token, the finest price a card can ask.
        return {leaf: Decimal((rate * (100 + percent) + 50) // 100).scaleb(-6) for leaf, rate in rates.items()}

    return NewPrice(
        model=card.model,
        version=card.version + version_mark,
        usd_per_mtok=prices(card.rates),
        valid_from=card.valid_from,
        valid_to=card.valid_to,
        tiers=[(tier.above_input_tokens, prices(tier.rates)) for tier in card.tiers],
        usd_per_request=usd(card.request_pico_usd * (100 + percent) // 100),
        provider=card.provider,
        tenant=tenant or card.tenant,
        batch_usd_per_mtok=prices(card.batch_rates),
        batch_tiers={tier.above_input_tokens: prices(tier.batch_rates) for tier in card.tiers},
    )
