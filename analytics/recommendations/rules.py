"""Rules that recommend savings from usage, price cards and replica hours. Pure.

Savings are what the same tokens would have cost: they are not added up, for two rules may speak of the same request.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Final

from analytics.recommendations.evidence import ReplicaHour, Use
from analytics.recommendations.recommendation import Recommendation
from contracts.pricing.money import PICO_USD_PER_USD
from contracts.pricing.prices import AnyCard, PriceBook
from contracts.pricing.service_tiers import BATCH

MIN_REQUESTS: Final = 50  # fewer are no traffic to rearrange
MIN_SHARE: Final = Decimal("0.1")  # of the cost concerned: a saving below it is not worth a change
_FULL: Final = 0.7  # of a replica's time: beyond it, answers begin to wait (half again as long at 2/3 busy, M/D/1)
_FEWEST_HOURS: Final = 24

_ModelAt = tuple[str, str]  # model, provider


def recommend(
    uses: Sequence[Use],
    book: PriceBook,
    moment: datetime,
    hours: Sequence[ReplicaHour] = (),
    usd_per_gpu_hour: Decimal | None = None,
) -> list[Recommendation]:
    """Apply every rule; cards are those valid at `moment`. In no order: see `ranked`."""
    offers = {(use.model, use.provider) for use in uses if use.model}
    found: list[Recommendation] = []
    for use in uses:
        card = book.card_for(use.model, use.tenant, moment, use.provider)
        found += _right_size(use, offers, book, moment)
        found += _cheaper_provider(use, offers, book, moment)
        if card is not None:
            found += _cacheable(use, card)
            found += _batchable(use, card)
    found += idle_replicas(hours, usd_per_gpu_hour)
    return found


def _right_size(use: Use, offers: Iterable[_ModelAt], book: PriceBook, moment: datetime) -> Iterator[Recommendation]:
    """Small requests to a dear model: what the cheapest other model that is served here would have asked for them."""
    if not _is_traffic(use.small.requests):
        return
    best = _cheapest(use, [one for one in offers if one[0] != use.model], book, moment, is_small=True)
    if best is None:
        return
    (model, provider), price = best
    saving = use.small.pico_usd - price
    if _is_worth_it(saving, use.small.pico_usd):
        yield Recommendation(
            "right_size",
            use.tenant,
            use.model,
            f"send short requests (to 1,000 tokens in, 200 out, no tools) to {model} by a route",
            saving,
            {
                "requests": use.small.requests,
                "share_of_requests": round(use.small.requests / use.all.requests, 4),
                "mean_output_tokens": round(use.small.produced / use.small.requests, 1),
                "to_model": model,
                "to_provider": provider,
            },
            "whether its answers are good enough is for a canary or a judge to tell",
        )


def _cheaper_provider(
    use: Use, offers: Iterable[_ModelAt], book: PriceBook, moment: datetime
) -> Iterator[Recommendation]:
    """The same model, sold for less by another provider that is served here."""
    others = [one for one in offers if one[0] == use.model and one[1] != use.provider]
    best = _cheapest(use, others, book, moment, is_small=False)
    if not _is_traffic(use.all.requests) or best is None:
        return
    (_, provider), price = best
    saving = use.all.pico_usd - price
    if _is_worth_it(saving, use.all.pico_usd):
        yield Recommendation(
            "cheaper_provider",
            use.tenant,
            use.model,
            f"give {provider or 'the other provider'} more weight in the pool of {use.model}",
            saving,
            {"requests": use.all.requests, "from_provider": use.provider, "to_provider": provider},
            "compare its speed and errors first",
        )


def _cacheable(use: Use, card: AnyCard) -> Iterator[Recommendation]:
    """Input that a conversation's turn before had sent already, and that was paid as new."""
    full, hit = card.rate("input_text", None), card.rate("cache_read_text", None)
    if full is None or hit is None or hit >= full or not _is_traffic(use.later_turns):
        return
    saving = use.repeated_tokens * (full - hit)
    if _is_worth_it(saving, use.all.pico_usd):
        yield Recommendation(
            "cacheable_prefix",
            use.tenant,
            use.model,
            "keep prompts' beginnings the same from turn to turn and mark them (cache_control), or route by session",
            saving,
            {
                "later_turns": use.later_turns,
                "repeated_tokens": use.repeated_tokens,
                "cached_share": round(use.all.cached / max(use.all.fresh + use.all.cached, 1), 4),
            },
            "the provider's price for cache writes is not subtracted",
        )


def _batchable(use: Use, card: AnyCard) -> Iterator[Recommendation]:
    """Whole answers of no conversation and no end user: what batches would have asked for them."""
    batch = card.at_tier(BATCH)
    if batch is None or batch is card or not _is_traffic(use.patient.requests):
        return  # without a price for batches there is nothing to promise
    price = use.patient.at(batch)
    if price is None:
        return
    saving = use.patient.pico_usd - price
    if _is_worth_it(saving, use.patient.pico_usd):
        yield Recommendation(
            "batch",
            use.tenant,
            use.model,
            "send requests that can wait as a batch",
            saving,
            {
                "requests": use.patient.requests,
                "share_of_requests": round(use.patient.requests / use.all.requests, 4),
                "price_version": batch.version,
            },
            "batches answer within a day, not at once",
        )


def idle_replicas(hours: Sequence[ReplicaHour], usd_per_gpu_hour: Decimal | None) -> Iterator[Recommendation]:
    """Replicas that the busiest hour of all would not have needed, a model's work spread over 70 % of each."""
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
            f"run {needed} replicas of {model} in place of {len(replicas)}",
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


def _cheapest(
    use: Use, offers: Iterable[_ModelAt], book: PriceBook, moment: datetime, *, is_small: bool
) -> tuple[_ModelAt, int] | None:
    part = use.small if is_small else use.all
    found: list[tuple[int, _ModelAt]] = []
    for model, provider in offers:
        card = book.card_for(model, use.tenant, moment, provider)
        price = None if card is None else part.at(card)
        if price is not None:
            found.append((price, (model, provider)))
    if not found:
        return None
    price, offer = min(found)
    return offer, price
