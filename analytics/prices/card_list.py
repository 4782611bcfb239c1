"""All price cards as one comparable value, which is a cache key."""

from dataclasses import dataclass, field

from sqlalchemy.orm import Session

from backends.control.prices import load_cards
from contracts.pricing.prices import AnyCard


@dataclass(frozen=True, slots=True)
class CardList:
    """Price cards. Two lists are equal if they have the same versions with the same ends: a version's prices never
    change.
    """

    cards: tuple[AnyCard, ...] = field(compare=False, repr=False)
    known_by: tuple[tuple[str, str], ...]


def card_list(session: Session, tenant: str | None = None) -> CardList:
    """Read all cards, or one tenant's. Raises ConfigurationError on an invalid row."""
    cards = tuple(card for card in load_cards(session) if tenant is None or card.tenant in ("", tenant))
    return CardList(cards, tuple(sorted((card.version, str(card.valid_to)) for card in cards)))
