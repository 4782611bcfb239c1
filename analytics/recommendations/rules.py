"""Rules that recommend savings from usage, price cards and replica hours, without I/O.

Savings are differences of cost for the same tokens. They must not be summed: two rules may concern the same request.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final

from analytics.recommendations.evidence import CardOf, Part, ReplicaHour, Slice, Use
from analytics.recommendations.recommendation import Recommendation
from contracts.pricing.money import PICO_USD_PER_USD
from contracts.pricing.prices import PriceBook
from contracts.pricing.service_tiers import BATCH

MIN_REQUESTS: Final = 50  # minimum number of requests of a recommendation
MIN_SHARE: Final = Decimal("0.1")  # minimum share of cost that a saving must have
_FULL: Final = 0.7  # of a replica's time: at higher load, requests queue (M/D/1: at 2/3 busy, one service time)
_FEWEST_HOURS: Final = 24

_Offer = tuple[str, str, str]  # model, provider, region


def recommend(
    uses: Sequence[Use],
    book: PriceBook,
    moment: datetime,
    hours: Sequence[ReplicaHour] = (),
    usd_per_gpu_hour: Decimal | None = None,
) -> list[Recommendation]:
    """Return the recommendations of every rule, unordered (see `ranked`). Both sides of a saving are priced by the
    cards valid at `moment`, as recorded prices may have ended."""
    offers = {(use.model, use.provider, use.region) for use in uses if use.model}
    prices = _Prices(book, moment)
    found: list[Recommendation] = []
    for use in uses:
        found += _right_size(use, offers, prices)
        found += _cheaper_provider(use, offers, prices)
        found += _cacheable(use, prices)
        found += _batchable(use, prices)
    found += idle_replicas(hours, usd_per_gpu_hour)
    return found


@dataclass(frozen=True, slots=True)
class _Prices:
    """The cards valid at a time."""

    book: PriceBook
    moment: datetime

    def own(self, use: Use) -> CardOf:
        """Return the function that finds the card for a slice of a use at its present provider."""
        card = self.book.card_for(use.model, use.tenant, self.moment, use.provider, use.region)
        return lambda one: None if card is None else card.at_tier(one.tier)

    def priced(self, use: Use, part: Part) -> tuple[Part, int]:
        """Return the slices of a part that have a price, and their cost in pico-USD."""
        own = self.own(use)
        known = Part(tuple(one for one in part.slices if Part((one,)).at(own) is not None))
        return known, known.at(own) or 0

    def elsewhere(self, offer: _Offer, tenant: str) -> CardOf:
        """Return the function that finds the card for a slice at an offer; a tier that the offer lacks is standard."""
        model, provider, region = offer
        card = self.book.card_for(model, tenant, self.moment, provider, region)
        return lambda one: None if card is None else card.at_tier(one.tier) or card

    def cheapest(self, part: Part, tenant: str, offers: Iterable[_Offer]) -> tuple[_Offer, int] | None:
        """Return the cheapest offer for a part and its cost in pico-USD; `None` if no offer has prices."""
        found = [(price, offer) for offer in offers if (price := part.at(self.elsewhere(offer, tenant))) is not None]
        if not found:
            return None
        price, offer = min(found)
        return offer, price


def _right_size(use: Use, offers: Iterable[_Offer], prices: _Prices) -> Iterator[Recommendation]:
    """Recommend the cheapest other model served here for small requests to an expensive model."""
    small, now = prices.priced(use, use.small)
    best = prices.cheapest(small, use.tenant, [one for one in offers if one[0] != use.model])
    if not _is_traffic(small.requests) or best is None:
        return
    (model, provider, region), price = best
    if _is_worth_it(now - price, now):
        yield Recommendation(
            "right_size",
            use.tenant,
            use.model,
            f"send short requests (to 1,000 tokens in, 200 out, no tools) to {model} by a route",
            now - price,
            {
                "requests": small.requests,
                "share_of_requests": round(small.requests / use.all.requests, 4),
                "mean_output_tokens": round(small.produced / small.requests, 1),
                "to_model": model,
                "to_provider": provider,
                **_regions(use, region),
            },
            "check the quality of its answers first, with a canary or a judge" + _residence(use, region),
        )


def _cheaper_provider(use: Use, offers: Iterable[_Offer], prices: _Prices) -> Iterator[Recommendation]:
    """Recommend another provider or region served here that sells the same model for less."""
    others = [one for one in offers if one[0] == use.model and one[1:] != (use.provider, use.region)]
    priced, now = prices.priced(use, use.all)
    best = prices.cheapest(priced, use.tenant, others)
    if not _is_traffic(priced.requests) or best is None:
        return
    (_, provider, region), price = best
    if _is_worth_it(now - price, now):
        where = f" in {region}" if region else ""
        yield Recommendation(
            "cheaper_provider",
            use.tenant,
            use.model,
            f"give {provider or 'the other provider'}{where} more weight in the pool of {use.model}",
            now - price,
            {
                "requests": priced.requests,
                "from_provider": use.provider,
                "to_provider": provider,
                **_regions(use, region),
            },
            "compare its speed and errors first" + _residence(use, region),
        )


def _regions(use: Use, to: str) -> dict[str, str]:
    return {"from_region": use.region, "to_region": to} if use.region != to else {}


def _residence(use: Use, to: str) -> str:
    return "; check that prompts may be processed there" if use.region != to else ""


def _cacheable(use: Use, prices: _Prices) -> Iterator[Recommendation]:
    """Recommend prompt caching for input repeated from a conversation's previous turn that was billed as uncached."""
    own = prices.own(use)
    _, now = prices.priced(use, use.all)
    turns = tokens = saving = 0
    for one in use.repeated:
        card = own(one.slice)
        full = None if card is None else card.rate("input_text", one.slice.input_tokens)
        hit = None if card is None else card.rate("cache_read_text", one.slice.input_tokens)
        if full is not None and hit is not None and hit < full:
            turns += one.turns
            tokens += one.tokens
            saving += one.tokens * (full - hit)
    if _is_traffic(turns) and _is_worth_it(saving, now):
        yield Recommendation(
            "cacheable_prefix",
            use.tenant,
            use.model,
            "keep prompt prefixes unchanged between turns and mark them (cache_control), or route by session",
            saving,
            {
                "later_turns": turns,
                "repeated_tokens": tokens,
                "cached_share": round(use.all.cached / max(use.all.fresh + use.all.cached, 1), 4),
            },
            "the provider's price for cache writes is not subtracted",
        )


def _batchable(use: Use, prices: _Prices) -> Iterator[Recommendation]:
    """Recommend batches for non-streamed requests without a conversation or end user."""
    card = prices.own(use)(Slice(0, 0, 0, 0))
    batch = None if card is None else card.at_tier(BATCH)
    if batch is None or batch is card:
        return  # without a price for batches the saving is unknown
    patient, now = prices.priced(use, use.patient)
    price = patient.at(lambda _: batch)
    if not _is_traffic(patient.requests) or price is None:
        return
    if _is_worth_it(now - price, now):
        yield Recommendation(
            "batch",
            use.tenant,
            use.model,
            "send requests that are not urgent as a batch",
            now - price,
            {
                "requests": patient.requests,
                "share_of_requests": round(patient.requests / use.all.requests, 4),
                "price_version": batch.version,
            },
            "batches answer within a day, not at once",
        )


def idle_replicas(hours: Sequence[ReplicaHour], usd_per_gpu_hour: Decimal | None) -> Iterator[Recommendation]:
    """Recommend fewer replicas of a model if the busiest hour's work needs fewer, each 70 % busy."""
    by_model: defaultdict[str, dict[int, list[ReplicaHour]]] = defaultdict(dict)
    for one in hours:
        by_model[one.model].setdefault(one.hour, []).append(one)
    for model, found in sorted(by_model.items()):
        if len(found) < _FEWEST_HOURS:
            continue
        replicas = {one.replica for each in found.values() for one in each}
        busiest = max(sum(one.busy_share for one in each) for each in found.values())
        waiting = max(one.waiting for each in found.values() for one in each)
        needed = max(math.ceil(busiest / _FULL), 1)
        idle = len(replicas) - needed
        if idle < 1:
            continue
        ranks = max(one.ranks for each in found.values() for one in each)
        gpu_hours = idle * ranks * len(found)
        saving = None
        if usd_per_gpu_hour is not None:
            saving = int(usd_per_gpu_hour * gpu_hours * PICO_USD_PER_USD)
        yield Recommendation(
            "idle_replicas",
            "",
            model,
            f"run {needed} replicas of {model} instead of {len(replicas)}",
            saving,
            {
                "replicas": len(replicas),
                "needed": needed,
                "hours": len(found),
                "gpu_hours": gpu_hours,
                "busiest_hour_in_replicas": round(busiest, 3),
                "waiting_at_most": waiting,
            },
            "plan it first: `tollkeeper plan`" + ("" if saving is not None else "; no price of a GPU-hour is known"),
        )


def _is_traffic(requests: int) -> bool:
    return requests >= MIN_REQUESTS


def _is_worth_it(saving_pico_usd: int, cost_pico_usd: int) -> bool:
    return saving_pico_usd > 0 and saving_pico_usd >= MIN_SHARE * cost_pico_usd
