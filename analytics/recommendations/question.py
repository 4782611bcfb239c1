"""Recommendations as one question to the store, for pages that keep answers by what they were asked with."""

from datetime import datetime, timedelta
from decimal import Decimal

from analytics.prices.card_list import CardList
from analytics.recommendations.reading import recommendations
from analytics.recommendations.recommendation import Recommendation
from backends.store.client import StoreClient


def recommended(
    store: StoreClient,
    cards: CardList,
    now: datetime,
    days: int,
    tenant: str | None = None,
    usd_per_gpu_hour: Decimal | None = None,
) -> tuple[Recommendation, ...]:
    """Return what could have been saved in the last days, the largest first. Raises StoreUnavailable."""
    return recommendations(
        store, cards.cards, now, timedelta(days=days), tenant=tenant, usd_per_gpu_hour=usd_per_gpu_hour
    )
