"""Finds the price card that applies to a request: looked up once, and cached until a card starts or ends."""

from datetime import UTC, datetime, timedelta
from typing import Final

from contracts.pricing.prices import AnyCard, PriceBook
from contracts.serving.configuration import Snapshot

_MAX_KEPT: Final = 50_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NONE: Final = PriceBook()


class KnownCards:
    """The currently valid cards of a snapshot's price book, by model, tenant, provider, region and service tier."""

    def __init__(self) -> None:
        self._book = _NONE
        self._from_ns = self._until_ns = 0  # between these times no card starts or ends
        self._cards: dict[tuple[str, str, str, str, str], AnyCard | None] = {}

    def card_for(
        self, model: str, tenant: str, seller: str, region: str, at_ns: int, snapshot: Snapshot, *, tier: str
    ) -> AnyCard | None:
        """Return the card that was valid at a time (Unix nanoseconds) for a service tier; `None` if none was.

        `region` is the region of the target that answers.
        """
        if snapshot.prices is not self._book or not self._from_ns <= at_ns < self._until_ns:
            self._book = snapshot.prices
            self._from_ns, self._until_ns = self._book.unchanged_around(at_ns)
            self._cards.clear()
        name = (model, tenant, seller, region, tier)
        try:
            return self._cards[name]
        except KeyError:
            moment = _EPOCH + timedelta(microseconds=at_ns // 1000)
            card = self._book.card_for(model, tenant, moment, seller, region)
            if card is not None and tier:
                card = card.at_tier(tier)
            if len(self._cards) >= _MAX_KEPT:
                self._cards.clear()
            self._cards[name] = card
            return card
