"""Cards that are remembered hold exactly as long as those that are looked up."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from contracts.pricing.prices import AnyCard, NewPrice, PriceBook, price_card
from contracts.serving.configuration import Snapshot
from gateway.request.charges.settlement import KnownCards

SECOND_NS = 1_000_000_000
TURN = datetime(2026, 3, 1, 12, 0, 0, 250_000, UTC)
TURN_NS = int(TURN.timestamp()) * SECOND_NS + 250_000_000
OLD = price_card(NewPrice("m", "old", {"input_text": Decimal(1)}, valid_to=TURN))
NEW = price_card(NewPrice("m", "new", {"input_text": Decimal(2)}, valid_from=TURN))


def snapshot(*cards: AnyCard) -> Snapshot:
    return Snapshot(1, {}, {}, {}, PriceBook(cards))


def version_at(known: KnownCards, at_ns: int, of: Snapshot, tenant: str = "acme", region: str = "") -> str | None:
    card = known.card_for("m", tenant, "openai_http", region, at_ns, of, tier="")
    return None if card is None else card.version


@pytest.mark.parametrize(
    ("at_ns", "version"), [(TURN_NS - 1, "old"), (TURN_NS, "new"), (TURN_NS + 1, "new"), (TURN_NS - 2, "old")]
)
def test_a_card_holds_to_the_nanosecond_however_often_it_was_asked_for(at_ns, version):
    known, of = KnownCards(), snapshot(OLD, NEW)
    for moment in (TURN_NS - SECOND_NS, TURN_NS + SECOND_NS, at_ns, at_ns):
        found = version_at(known, moment, of)
    assert found == version


def test_a_new_price_book_is_seen_at_once():
    known = KnownCards()
    assert version_at(known, TURN_NS, snapshot(NEW)) == "new"
    assert version_at(known, TURN_NS, snapshot()) is None


def test_each_tenant_has_its_own_card():
    known = KnownCards()
    of = snapshot(NEW, price_card(NewPrice("m", "contract", {"input_text": Decimal(1)}, tenant="globex")))
    assert version_at(known, TURN_NS, of) == "new"
    assert version_at(known, TURN_NS, of, "globex") == "contract"
    assert version_at(known, TURN_NS, of) == "new"


def test_each_region_has_its_own_card():
    known = KnownCards()
    of = snapshot(NEW, price_card(NewPrice("m", "eu", {"input_text": Decimal(3)}, region="eu")))
    versions = [version_at(known, TURN_NS, of, region=region) for region in ("us", "eu", "", "eu")]
    assert versions == ["new", "eu", "new", "eu"]


def test_a_book_without_cards_never_changes():
    start, end = PriceBook().unchanged_around(TURN_NS)
    assert start < 0 < TURN_NS < end
