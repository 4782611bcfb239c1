"""Providers' list prices as dated price cards, from the data in the genai-prices package, without network access.

Its units overlap ("input tokens, of which audio"); each meter gets the price of the narrowest unit that contains it, as
in the library's own decomposition. One exception: cache reads and writes never get the price of plain input; without
a price of their own they remain unpriced.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import cache
from importlib.metadata import version
from typing import Final

from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import ModelInfo, ModelPrice, Provider, StartDateConstraint, TieredPrices, TimeOfDateConstraint

from contracts.errors import NotFound, TollkeeperError
from contracts.metering.usage import CACHE_READ_LEAVES, KINDS, Leaf, leaves_of
from contracts.pricing.prices import NewPrice, PriceCard, price_card

# Provider names in gateways and SDKs to those of genai-prices, if they differ.
_PROVIDERS: Final[Mapping[str, str]] = {
    "bedrock": "aws",
    "aws.bedrock": "aws",
    "amazon": "aws",
    "gemini": "google",
    "gcp.gemini": "google",
    "vertex_ai": "google",
    "gcp.vertex_ai": "google",
    "azure.ai.openai": "azure",
    "azure_ai": "azure",
    "mistral_ai": "mistral",
    "xai": "x-ai",
    "x_ai": "x-ai",
    "together_ai": "together",
    "fireworks_ai": "fireworks",
    "moonshot": "moonshotai",
    "voyage": "voyageai",
    "github_copilot": "github-copilot",
    "meta_llama": "meta",
    "perplexity-ai": "perplexity",
}
# Units by meter, narrowest first; the first one in the data has the price.
_UNITS: Final[Mapping[Leaf, tuple[str, ...]]] = {
    **{leaf: (f"{leaf}_mtok", f"{KINDS[leaf].group}_mtok") for leaf in leaves_of("input", "output")},
    **{leaf: (f"cache_{KINDS[leaf].medium}_read_mtok", "cache_read_mtok") for leaf in CACHE_READ_LEAVES},
    "cache_write_5m": ("cache_text_write_5m_mtok", "cache_write_5m_mtok", "cache_text_write_mtok", "cache_write_mtok"),
    "cache_write_1h": ("cache_text_write_1h_mtok", "cache_write_1h_mtok", "cache_text_write_mtok", "cache_write_mtok"),
    "output_reasoning": ("output_text_reasoning_mtok", "output_reasoning_mtok", "output_text_mtok", "output_mtok"),
}
# Conditions of genai-prices' variants by the cards' name of a service tier.
_TIERS: Final[Mapping[str, Mapping[str, str]]] = {
    "batch": {"processing": "batch"},
    "flex": {"service_tier": "flex"},
    "priority": {"service_tier": "priority"},
    "fast": {"service_tier": "fast"},
}
_AUDIO: Final = frozenset(leaf for leaf, kind in KINDS.items() if kind.medium == "audio")
_OF_AUDIO: Final = ("audio", "realtime", "live", "transcribe", "tts")  # part of the names of models for it
_FAST: Final = {"speed": "fast"}  # Anthropic's
_BEGINNING: Final = date(1970, 1, 1)


class Unpriceable(TollkeeperError):
    """A list price that price cards cannot express, such as one that changes with the time of day."""

    code = "unpriceable"


def catalogue_version() -> str:
    """Return the price table's name and release, as in the cards' versions."""
    return f"genai-prices-{version('genai-prices')}"


def catalogue_cards(provider: str, upstream: str, *, model: str = "", seller: str = "") -> tuple[PriceCard, ...]:
    """Return the list prices of a provider's model, one card per change, earliest first.

    `upstream` is the provider's name of the model, `model` the name in requests (default: the same). `seller` is the
    provider that the cards apply to (default: the one that serves the model). Raises NotFound if the table lacks the
    model, Unpriceable if cards cannot express its price.
    """
    found, info = _find(provider, upstream)
    # A reseller may not have the same service tiers and batch prices.
    contexts = _contexts(info) if any(info is own for own in found.models) else {}
    changes = _changes(info, contexts)
    cards = []
    for number, first_day in enumerate(changes):
        at = datetime.combine(first_day, time.min, UTC)
        until = datetime.combine(changes[number + 1], time.min, UTC) if number + 1 < len(changes) else None
        prices = info.get_prices(at)
        sold = {name: context for name, context in contexts.items() if _is_sold(info, context, at.date())}
        tiers = {name: info.get_prices(at, context) for name, context in sold.items()}
        cards.append(_card(found, info, prices, tiers, model or upstream, seller, at, until))
    return tuple(card for card in cards if card.rates or card.tiers)


def _find(provider: str, upstream: str) -> tuple[Provider, ModelInfo]:
    name = _PROVIDERS.get(provider, provider)
    try:
        return get_snapshot().find_provider_model(upstream, None, name, None)
    except LookupError as error:
        raise NotFound(
            f"{catalogue_version()} knows no model {upstream!r} of provider {provider!r}; create a price "
            "card for it, or use LiteLLM's table (--litellm FILE)"
        ) from error


@cache
def provider_names() -> tuple[str, ...]:
    """Return the names of the table's providers."""
    return tuple(sorted(provider.id for provider in get_snapshot().providers))


def _contexts(info: ModelInfo) -> dict[str, Mapping[str, str]]:
    """Return the conditions that select prices, by service tier with prices for a model."""
    told = [dict(variant.when) for variant in info.price_variants or ()]
    found = {name: context for name, context in _TIERS.items() if context in told}
    return found | ({"fast": _FAST} if _FAST in told else {})


def _is_sold(info: ModelInfo, context: Mapping[str, str], day: date) -> bool:
    """Return whether a service tier has prices on a day; before its first prices the table gives standard prices."""
    constraints = [one.constraint for one in info.price_variants or () if one.when == context]
    return any(not isinstance(one, StartDateConstraint) or one.start_date <= day for one in constraints)


def _changes(info: ModelInfo, contexts: Mapping[str, Mapping[str, str]]) -> list[date]:
    """Return the days on which a price of this model changes; the first is the earliest possible date."""
    conditions = [] if isinstance(info.prices, ModelPrice) else [one.constraint for one in info.prices]
    variants = [one.constraint for one in info.price_variants or () if one.when in contexts.values()]
    days = {_BEGINNING}
    for condition in (*conditions, *variants):
        if isinstance(condition, TimeOfDateConstraint):
            raise Unpriceable(
                f"the price of {info.id!r} changes with the time of day, which a card cannot express; create cards for "
                "the hours of use"
            )
        if isinstance(condition, StartDateConstraint):
            days.add(condition.start_date)
    return sorted(days)


def _card(
    provider: Provider,
    info: ModelInfo,
    prices: ModelPrice,
    service_tiers: Mapping[str, ModelPrice],
    model: str,
    seller: str,
    at: datetime,
    until: datetime | None,
) -> PriceCard:
    hears = any(word in info.id for word in _OF_AUDIO)
    base, tiers = _leaf_prices(prices, hears=hears)
    found = {name: _leaf_prices(one, hears=hears) for name, one in service_tiers.items()}
    per_thousand = prices.requests_kcount
    return price_card(
        NewPrice(
            model,
            f"{catalogue_version()}/{provider.id}/{info.id}/{model}/{at:%Y-%m-%d}",
            base,
            valid_from=at,
            valid_to=until,
            tiers=sorted(tiers.items()),
            usd_per_request=per_thousand / 1000 if isinstance(per_thousand, Decimal) else Decimal(0),
            provider=seller,
            service_tiers={name: _changed(own, base) for name, (own, _) in found.items()},
            service_tiers_above={
                above: {name: _changed(own.get(above, {}), rates) for name, (_, own) in found.items()}
                for above, rates in tiers.items()
            },
        )
    )


def _changed(prices: Mapping[Leaf, Decimal], standard: Mapping[Leaf, Decimal]) -> dict[Leaf, Decimal]:
    return {leaf: price for leaf, price in prices.items() if standard.get(leaf) != price}


def _leaf_prices(prices: ModelPrice, *, hears: bool) -> tuple[dict[Leaf, Decimal], dict[int, dict[Leaf, Decimal]]]:
    """Return USD per million tokens by meter, and by threshold the prices above it.

    Audio of an audio model (`hears`) never gets the price of text.
    """
    base: dict[Leaf, Decimal] = {}
    tiers: dict[int, dict[Leaf, Decimal]] = {}
    for leaf, units in _UNITS.items():
        price = _first(prices, units[:1] if hears and leaf in _AUDIO else units)
        if isinstance(price, TieredPrices):
            base[leaf] = price.base
            for tier in price.tiers:
                tiers.setdefault(tier.start, {})[leaf] = tier.price
        elif price is not None:
            base[leaf] = price
    return base, tiers


def _first(prices: ModelPrice, units: Sequence[str]) -> Decimal | TieredPrices | None:
    written = (getattr(prices, unit, None) for unit in units)
    return next((price for price in written if price is not None), None)
