"""Reads a provider's recorded usage of a month, in the buckets of its bill."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from functools import lru_cache
from typing import Final

from analytics.prices.usage_groups import own_regions
from analytics.queries import query
from analytics.reconciliation.lines import BillLine
from analytics.reconciliation.matching import Bucket, Cell, Rates, RecordedBucket
from analytics.reconciliation.placement import Placement, RecordedName
from analytics.rows import money_of, number_of, numbers_of, text_of
from backends.store.client import StoreClient
from contracts.metering.usage import LEAVES, Leaf, counted_as
from contracts.pricing.money import pico_usd
from contracts.pricing.prices import AnyCard, PriceBook, PriceCard, card_of_version
from contracts.pricing.service_tiers import VARIANT_MARK

REQUEST_FEE: Final = "request"  # a card's price per request, which providers' bills lack
_NOON: Final = time(12, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class RecordedUsage:
    """One group of requests from the store."""

    day: str
    name: RecordedName
    tier: str
    price_version: str
    is_uncertain: bool
    above: int
    requests: int
    cost: int  # pico-USD
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RecordedRetries:
    """Failed attempts that a provider may bill."""

    day: str
    name: RecordedName
    tries: int
    tokens: tuple[int, ...]


def read_recorded(
    store: StoreClient,
    start: datetime,
    end: datetime,
    providers: Collection[str],
    cards: Sequence[AnyCard],
    upstreams: Mapping[str, str],
) -> tuple[list[RecordedUsage], list[RecordedRetries], list[int]]:
    """Read a provider's recorded usage from `start` to `end`; `upstreams` are targets' own names of models.

    Returns usage, failed attempts that may be billed, and the thresholds of price tiers by which groups differ. Raises
    StoreUnavailable.
    """
    thresholds = sorted(
        {tier.above_input_tokens for card in cards if isinstance(card, PriceCard) for tier in card.tiers}
    )
    asked = {"start": int(start.timestamp()), "end": int(end.timestamp()), "providers": sorted(providers)}
    usage = [
        RecordedUsage(
            text_of(row["day_label"]),
            _name(row, upstreams),
            text_of(row["tier_label"]),
            text_of(row["price_label"]),
            bool(row["is_uncertain"]),
            number_of(row["above"]),
            number_of(row["request_count"]),
            pico_usd(money_of(row["cost_sum"])),
            tuple(int(count) for count in numbers_of(row["leaf_sums"])),
        )
        for row in store.query(query("billed_usage"), {**asked, "thresholds": thresholds})
    ]
    retries = [
        RecordedRetries(
            text_of(row["day_label"]),
            _name(row, upstreams),
            number_of(row["try_count"]),
            tuple(int(count) for count in numbers_of(row["leaf_sums"])),
        )
        for row in store.query(query("billed_retries"), asked)
    ]
    return usage, retries, thresholds


def _name(row: Mapping[str, object], upstreams: Mapping[str, str]) -> RecordedName:
    target = text_of(row["target_label"])
    return RecordedName(target, text_of(row["model_label"]), upstreams.get(target, ""), text_of(row["version_label"]))


def recorded_buckets(
    usage: Iterable[RecordedUsage],
    retries: Iterable[RecordedRetries],
    placement: Placement,
    cards: Sequence[AnyCard],
    thresholds: Sequence[int],
    kinds: Collection[str],
    provider: str,
) -> tuple[dict[Bucket, RecordedBucket], Rates, dict[str, list[str]]]:
    """Return recorded usage by bucket and cell, the general card's prices, and the names under which buckets' models
    were requested.

    `kinds` are the kinds of usage that the bill distinguishes; others count as the wider kind of the bill.
    """
    pricing = _Pricing(cards, thresholds, provider)
    leaves = [leaf if leaf in kinds else counted_as(leaf) for leaf in LEAVES]
    found: dict[Bucket, RecordedBucket] = {}
    for one in usage:
        bucket = placement.bucket(one.day, one.name)
        pricing.note(bucket.model, one.name.model)
        mine = found.get(bucket)
        if mine is None:
            mine = found[bucket] = RecordedBucket()
        if one.is_uncertain:
            mine.uncertain += one.requests
        _add(mine, one, leaves, pricing)
    for again in retries:
        bucket = placement.bucket(again.day, again.name)
        mine = found.setdefault(bucket, RecordedBucket())
        for kind, tokens in zip(leaves, again.tokens, strict=True):
            if tokens:
                mine.retried[kind] = mine.retried.get(kind, 0) + tokens
    return found, pricing.rate_of, pricing.asked_as


def _add(mine: RecordedBucket, one: RecordedUsage, leaves: Sequence[str], pricing: "_Pricing") -> None:
    own, general = pricing.rates(one.price_version, one.above, one.name.model, one.day, one.tier)
    # No bill distinguishes kinds of images as service tiers.
    tier = "" if one.tier.startswith(VARIANT_MARK) else one.tier
    left = one.cost
    for place, tokens in enumerate(one.tokens):
        if not tokens:
            continue
        rate, expected = own.rates[place], general.rates[place]
        mine.cell(Cell(tier, leaves[place])).add(
            tokens, tokens * (rate or 0), tokens * (expected or 0), expected if rate is not None else None
        )
        left -= tokens * (rate or 0)
    fee = own.request * one.requests
    if left or fee:
        # The card's price per request, and cost that no card explains, such as of a deleted card.
        expected_fee = general.request * one.requests + (left - fee)
        mine.cell(Cell(tier, REQUEST_FEE)).add(0, left, expected_fee, None)


@dataclass(frozen=True, slots=True)
class _Rates:
    rates: tuple[int | None, ...]
    request: int


_NO_RATES: Final = _Rates((None,) * len(LEAVES), 0)


class _Pricing:
    """Rates by price version, and the general card's rates for the same usage."""

    def __init__(self, cards: Sequence[AnyCard], thresholds: Sequence[int], provider: str) -> None:
        self._by_version = {card.version: card for card in cards}
        self._book = PriceBook(cards)
        self._thresholds = thresholds
        self._provider = provider
        self._regions = ("", *own_regions(cards))
        self.asked_as: dict[str, list[str]] = {}
        self._known: dict[tuple[str, int, str, str, str], tuple[_Rates, _Rates]] = {}
        self._general = lru_cache(maxsize=None)(self._card_at)
        self._versions: dict[str, AnyCard | None] = {}

    def note(self, name: str, model: str) -> None:
        """Record that a bucket's model is requested under a name."""
        known = self.asked_as.setdefault(name, [])
        if model not in known:
            known.append(model)

    def rates(self, version: str, above: int, model: str, day: str, tier: str) -> tuple[_Rates, _Rates]:
        """Return the rates of a recorded price version, and those of the general card."""
        if version not in self._versions:
            self._versions[version] = card_of_version(version, self._by_version)
        own = self._versions[version]
        if own is None:
            return _NO_RATES, _NO_RATES
        # Only for a tenant's own card is there a general one, which is that of the day.
        is_own = bool(own.tenant)
        key = (version, above, model if is_own else "", day if is_own else "", tier)
        found = self._known.get(key)
        if found is None:
            general = self._general(model, day, tier) if is_own else own
            input_tokens = self._thresholds[above - 1] + 1 if above else 0
            found = self._known[key] = (_rates(own, input_tokens), _rates(general or own, input_tokens))
        return found

    def rate_of(self, bucket: Bucket, cell: Cell) -> int | None:
        """Return the general card's pico-USD per token of a cell; `None` if none has a price."""
        if cell.kind not in LEAVES:
            return None
        for model in self.asked_as.get(bucket.model, ()):
            card = self._general(model, bucket.day, cell.tier)
            if card is not None:
                rate = _rate(card, cell.kind, 0)
                if rate is not None:
                    return rate
        return None

    def _card_at(self, model: str, day: str, tier: str) -> AnyCard | None:
        at = datetime.combine(date.fromisoformat(day), _NOON)
        # Bills do not state regions: the card for all regions is used, if there is one.
        found = (self._book.card_for(model, "", at, self._provider, region) for region in self._regions)
        card = next((one for one in found if one is not None), None)
        return None if card is None else card.at_tier(tier)


def _rates(card: AnyCard, input_tokens: int) -> _Rates:
    return _Rates(tuple(_rate(card, leaf, input_tokens) for leaf in LEAVES), card.request_pico_usd)


def _rate(card: AnyCard, leaf: Leaf | str, input_tokens: int) -> int | None:
    found = card.rate(leaf, input_tokens)  # type: ignore[arg-type]
    return card.rate("output_text", input_tokens) if found is None and leaf == "output_reasoning" else found


def kinds_of(lines: Iterable[BillLine]) -> frozenset[str]:
    """Return the kinds of usage that bill lines distinguish."""
    return frozenset(line.kind for line in lines)
