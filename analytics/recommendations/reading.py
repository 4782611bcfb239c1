"""Computes recommendations from the store and price cards."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from decimal import Decimal

from analytics.prices.card_list import CardList
from analytics.query_time import QueryTime
from analytics.recommendations.evidence import read_replica_hours, read_uses
from analytics.recommendations.recommendation import Recommendation, ranked
from analytics.recommendations.rules import recommend
from analytics.scope import Period
from backends.store.client import StoreClient
from contracts.pricing.prices import AnyCard, PriceBook


def recommendations(
    store: StoreClient,
    cards: Iterable[AnyCard],
    now: datetime,
    length: timedelta = timedelta(days=7),
    *,
    tenant: str | None = None,
    usd_per_gpu_hour: Decimal | None = None,
) -> tuple[Recommendation, ...]:
    """Return possible savings of the time up to `now`, of one tenant or all, largest first.

    Replicas belong to the installation: they are included only for all tenants. Raises StoreUnavailable.
    """
    period = Period(now - length, now)
    hours = read_replica_hours(store, period) if tenant is None else []
    known = list(cards)
    return ranked(recommend(read_uses(store, period, known, tenant), PriceBook(known), now, hours, usd_per_gpu_hour))


def recommended(
    store: StoreClient, cards: CardList, asked: QueryTime, days: int, tenant: str | None = None
) -> tuple[Recommendation, ...]:
    """Return the savings that `tollkeeper savings --days` prints, of one tenant or all. Raises StoreUnavailable."""
    return recommendations(store, cards.cards, asked.moment, timedelta(days=days), tenant=tenant)
