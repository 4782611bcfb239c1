"""Recommendations as a question whose answer can be kept: by its cards and days, whenever it is asked."""

from datetime import timedelta

from analytics.asked_at import AskedAt
from analytics.prices.card_list import CardList
from analytics.recommendations.reading import recommendations
from analytics.recommendations.recommendation import Recommendation
from backends.store.client import StoreClient


def recommended(
    store: StoreClient, cards: CardList, asked: AskedAt, days: int, tenant: str | None = None
) -> tuple[Recommendation, ...]:
    """Return what `tollkeeper savings --days` prints, of one tenant or all. Raises StoreUnavailable."""
    return recommendations(store, cards.cards, asked.moment, timedelta(days=days), tenant=tenant)
