"""Upper prices of a model's tokens, before the tokens are known: the highest that its pool could charge."""

from collections import OrderedDict
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from contracts.metering.usage import FRESH_LEAVES, INPUT_LEAVES, MEDIA_LEAVES, OUTPUT_LEAVES, Leaf, Usage
from contracts.pricing.prices import AnyCard, PriceCard, cost_of
from contracts.pricing.service_tiers import ANY_TIER, BATCH, UNDECIDED, VARIANT_MARK
from contracts.recording.records import GpuShare
from contracts.serving.configuration import ModelSpec, Snapshot
from gateway.limits.demand import Rates

# Kinds of text that a prompt and an answer may contain. Images and audio are settled at their own prices.
_INPUT_LEAVES: Final = tuple(leaf for leaf in FRESH_LEAVES if leaf not in MEDIA_LEAVES)
_OUTPUT_LEAVES: Final = tuple(leaf for leaf in OUTPUT_LEAVES if leaf not in MEDIA_LEAVES)
_KEPT_NS: Final = 1_000_000_000  # a card that starts or ends takes effect within a second
_MAX_KEPT: Final = 50_000
_UNPRICED: Final = Rates(input_pico_usd=None, output_pico_usd=None)


class Quotes:
    """Upper prices by model and tenant, for one snapshot."""

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None
        self._kept: OrderedDict[tuple[str, str, bool, str], _Quote] = OrderedDict()

    def rates(
        self,
        model: ModelSpec,
        tenant: str,
        input_tokens: int,
        snapshot: Snapshot,
        now_ns: int,
        *,
        generates: bool,
        tier: str = "",
    ) -> Rates:
        """Return the maximum price of each token; without money if any target of the pool has no price.

        If nothing is generated, no price for output is needed. A request for a service tier is quoted at the tier's
        prices; if the provider chooses the tier ("auto"), at the highest prices of the cards.
        """
        quote = self._quote(model, tenant, snapshot, now_ns, generates, tier)
        return quote.rates if quote.rates is not None else _upper(quote.cards, input_tokens, generates)

    def media(
        self,
        model: ModelSpec,
        tenant: str,
        wanted: Usage,
        tokens: tuple[int, int],
        snapshot: Snapshot,
        now_ns: int,
        tier: str,
    ) -> Rates:
        """Return the maximum price of the units, as a price per request; without money if a target has no price.

        `tokens` in and out are estimates, for cards that price only tokens. `tier` is the kind of image; for
        unspecified properties the highest price counts.
        """
        cards = _cards(model, tenant, snapshot, now_ns)
        amounts = [_most(kind, wanted, tokens) for card in cards for kind in _kinds(card, tier, wanted)]
        if not amounts or None in amounts:
            return _UNPRICED
        return Rates(request_pico_usd=max(amount for amount in amounts if amount is not None))

    def constant(self, model: ModelSpec, tenant: str, snapshot: Snapshot, now_ns: int) -> Rates | None:
        """Return the maximum price of generated tokens if it does not depend on the prompt, and all of them have a
        price.
        """
        rates = self._quote(model, tenant, snapshot, now_ns, generates=True, tier="").rates
        return rates if rates is not None and rates.is_priced else None

    def _quote(
        self, model: ModelSpec, tenant: str, snapshot: Snapshot, now_ns: int, generates: bool, tier: str
    ) -> "_Quote":
        if snapshot is not self._snapshot:
            self._snapshot = snapshot
            self._kept.clear()
        name = (model.id, tenant, generates, tier)
        quote = self._kept.get(name)
        if quote is None or now_ns >= quote.until_ns:
            cards = _at_tier(_cards(model, tenant, snapshot, now_ns), tier)
            quote = self._kept[name] = _Quote(cards, generates, now_ns + _KEPT_NS)
            if len(self._kept) > _MAX_KEPT:
                self._kept.popitem(last=False)
        return quote


def _kinds(card: AnyCard, tier: str, wanted: Usage) -> list[AnyCard]:
    """Return the cards that may price the request: for images, one for each kind that the request leaves open."""
    own = card.at_tier(tier)
    found = [] if own is None else [own]
    if wanted.images is None or tier.count(".") > 1:  # both quality and size are specified
        return found
    said = tier.removeprefix(VARIANT_MARK)
    open_kinds = [
        name for name in card.tier_names if name.startswith(VARIANT_MARK) and (not said or said in name.split("."))
    ]
    return found + [kind for name in open_kinds if (kind := card.at_tier(name)) is not None]


def _most(card: AnyCard, wanted: Usage, tokens: tuple[int, int]) -> int | None:
    """Return the cost of the units by a card, or of the tokens if it prices only these; `None` if it prices neither."""
    cost = cost_of(wanted, card)
    if cost.total_pico_usd is not None and not cost.unpriced:
        return cost.total_pico_usd
    inputs, outputs = (
        [rate for leaf in leaves if (rate := card.rate(leaf, tokens[0])) is not None]
        for leaves in (INPUT_LEAVES, OUTPUT_LEAVES)
    )
    if not inputs and not outputs:
        return cost.total_pico_usd
    return card.request_pico_usd + tokens[0] * max(inputs, default=0) + tokens[1] * max(outputs, default=0)


class _Quote:
    """Price cards that are valid for some time, with their rates if these do not depend on prompt length."""

    __slots__ = ("cards", "rates", "until_ns")

    def __init__(self, cards: list[AnyCard], generates: bool, until_ns: int) -> None:
        self.cards = cards
        self.until_ns = until_ns
        has_tiers = any(isinstance(card, PriceCard) and card.tiers for card in cards)
        self.rates = None if has_tiers else _upper(cards, 0, generates)


def _cards(model: ModelSpec, tenant: str, snapshot: Snapshot, now_ns: int) -> list[AnyCard]:
    """Return the card of every target; empty if one of them has none."""
    moment = datetime.fromtimestamp(now_ns / 1e9, UTC)
    sellers = {(target.provider or target.kind, target.region) for target in snapshot.pools[model.pool].targets}
    found = [snapshot.prices.card_for(model.id, tenant, moment, seller, region) for seller, region in sorted(sellers)]
    return [] if None in found else [card for card in found if card is not None]


def _at_tier(cards: list[AnyCard], tier: str) -> list[AnyCard]:
    """Return the cards at a service tier; empty if one of them has no price for it."""
    if not tier:
        return cards
    if tier == UNDECIDED:
        named = [card.at_tier(name) for card in cards for name in card.tier_names - {BATCH, ANY_TIER}]
        return cards + [card for card in named if card is not None]
    found = [card.at_tier(tier) for card in cards]
    return [] if None in found else [card for card in found if card is not None]


def _upper(cards: list[AnyCard], input_tokens: int, generates: bool) -> Rates:
    inputs = [_dearest(card, _INPUT_LEAVES, input_tokens) for card in cards]
    outputs = [_dearest(card, _OUTPUT_LEAVES, input_tokens) if generates else 0 for card in cards]
    if not cards or None in inputs or None in outputs:
        return _UNPRICED
    return Rates(
        input_pico_usd=max(rate for rate in inputs if rate is not None),
        output_pico_usd=max(rate for rate in outputs if rate is not None),
        request_pico_usd=max(card.request_pico_usd for card in cards),
    )


def _dearest(card: AnyCard, leaves: tuple[Leaf, ...], input_tokens: int) -> int | None:
    """Return the highest price among the leaves; `None` if the plain one, named first, has none."""
    rates = [card.rate(leaf, input_tokens) for leaf in leaves]
    return None if rates[0] is None else max(rate for rate in rates if rate is not None)


class GpuRates:
    """GPU time per input and per output token of each model, learned from the measurements of engine hosts.

    Moving averages (about the last 20 requests) plus a quarter: a reservation is settled at the measured time.
    """

    _WEIGHT: Final = 0.05
    _MARGIN: Final = 1.25
    # Before any measurement: the magnitude of a small model on a CPU.
    _FIRST_NS: Final = (200_000.0, 2_000_000.0)

    def __init__(self) -> None:
        self._rates: dict[str, tuple[float, float]] = {}

    def learn(self, model: str, gpu: GpuShare, usage: Usage) -> None:
        """Update a model's averages with one request's measured time."""
        tokens_in, tokens_out = usage.input_tokens, usage.output_tokens
        if not tokens_in or not tokens_out:
            return
        newest = ((gpu.prefill_ns + gpu.recompute_ns) / tokens_in, (gpu.decode_ns + gpu.wasted_ns) / tokens_out)
        known = self._rates.get(model, newest)
        self._rates[model] = (
            known[0] + self._WEIGHT * (newest[0] - known[0]),
            known[1] + self._WEIGHT * (newest[1] - known[1]),
        )

    def add_to(self, rates: Rates, model: str) -> Rates:
        """Return the rates with GPU time added."""
        known = self._rates.get(model, self._FIRST_NS)
        return replace(rates, input_gpu_ns=round(known[0] * self._MARGIN), output_gpu_ns=round(known[1] * self._MARGIN))
