"""Which price card holds for a request: looked up once, and remembered until some card begins or ends."""

from datetime import UTC, datetime, timedelta
from typing import Final

from contracts.pricing.prices import AnyCard, PriceBook
from contracts.serving.configuration import Snapshot

_MAX_KEPT: Final = 50_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NONE: Final = PriceBook()


class KnownCards:
    """The cards of a snapshot's price book that hold at present, by model, tenant, seller, region and service tier."""

    def __init__(self) -> None:
        self._book = _NONE
        self._from_ns = self._until_ns = 0  # between these no card begins or ends
        self._cards: dict[tuple[str, str, str, str, str], AnyCard | None] = {}

    def card_for(
        self, model: str, tenant: str, seller: str, region: str, at_ns: int, snapshot: Snapshot, *, tier: str
    ) -> AnyCard | None:
        """Return the card that held at a moment (Unix nanoseconds), at a service tier; `None` if none did.

        `region` is that of the target that answers.
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
