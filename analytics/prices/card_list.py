"""All price cards as one value, which two reads can compare: questions about prices are kept by it."""

from dataclasses import dataclass, field

from sqlalchemy.orm import Session

from backends.control.prices import load_cards
from contracts.pricing.prices import AnyCard


@dataclass(frozen=True, slots=True)
class CardList:
    """Cards, known by what may change of them: their versions, and when they end. A version's prices never change."""

    cards: tuple[AnyCard, ...] = field(compare=False, repr=False)
    known_by: tuple[tuple[str, str], ...]


def card_list(session: Session, tenant: str | None = None) -> CardList:
    """Read all cards, or one tenant's. Raises ConfigurationError on a row that breaks a card's rules."""
    cards = tuple(card for card in load_cards(session) if tenant is None or card.tenant in ("", tenant))
    return CardList(cards, tuple(sorted((card.version, str(card.valid_to)) for card in cards)))
