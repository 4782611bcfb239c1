"""The price of a cached answer: the policy's share of what it would cost if it were generated now."""

from typing import Final

from msgspec import structs

from contracts.metering.plain_counts import plain_counts
from contracts.pricing.prices import UNPRICED, AnyCard, Cost
from contracts.pricing.service_tiers import UNDECIDED
from contracts.serving.caching import CachePolicy
from gateway.cache.cached_answer import CachedAnswer
from gateway.request.charges.settlement import Settlement
from gateway.request.request_state import RequestState

HIT_MARK: Final = "#hit"  # behind a card's version, on what a hit was priced with


def price_hit(
    life: RequestState, answer: CachedAnswer, policy: CachePolicy, settlement: Settlement
) -> tuple[Cost, int | None]:
    """Return a hit's cost, and what the answer would have cost (pico-USD) by the card that is valid for the request."""
    tier = "" if life.asked_tier == UNDECIDED else life.asked_tier
    sold = (answer.model, life.who.tenant, answer.seller, answer.region)
    card = settlement.card_of(*sold, life.started_at_ns, life.snapshot, tier=tier)
    cost, whole = price_by(card, answer, policy, settlement, life.operation.name)
    return structs.replace(cost, tier=tier) if tier else cost, whole


def price_by(
    card: AnyCard | None, answer: CachedAnswer, policy: CachePolicy, settlement: Settlement, operation: str
) -> tuple[Cost, int | None]:
    """Return a hit's cost by a card, and the answer's; `None` if they are unknown.

    Without a card both are unknown, as the answer's own cost was; if a card lacks a price, free hits stay free.
    """
    if card is None:
        return UNPRICED, None
    whole, unpriced = answer.cost_pico_usd, UNPRICED.unpriced
    if card.version != answer.price_version or plain_counts(answer.usage) is None:
        made = settlement.bill_usage(answer.usage, operation, card, answer.kind or answer.seller)
        whole, unpriced = made.total_pico_usd, made.unpriced
    paid = 0 if not policy.hit_price else None if whole is None else policy.price_of(whole)
    parts = {} if paid is None else {"hit": paid}
    missing = unpriced if policy.hit_price else ()  # a free hit lacks no price
    return Cost(paid, parts, missing, card.version + HIT_MARK, card.basis), whole
