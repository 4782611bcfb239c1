"""Which list prices become cards: none twice, none beside another, none if one card would stand for two prices."""

from datetime import UTC, datetime
from decimal import Decimal

from analytics.prices.listing import (
    SoldModel,
    adjusted,
    as_new_price,
    bought_under_one_name,
    compatible_cards,
    missing_cards,
)
from contracts.pricing.prices import NewPrice, PriceCard, price_card

NOW = datetime(2026, 11, 20, tzinfo=UTC)
ENDED = datetime(2026, 11, 1, tzinfo=UTC)


def card(version: str, usd: str = "1.5", tenant: str = "", until: datetime | None = None) -> PriceCard:
    return price_card(
        NewPrice("gpt", version, {"input_text": Decimal(usd)}, provider="openai", tenant=tenant, valid_to=until)
    )


def test_a_second_import_finds_nothing_missing() -> None:
    listed = [card("list")]
    assert missing_cards(listed, [], NOW) == listed
    assert missing_cards(listed, [card("list")], NOW) == []
    # A tenant's own card is another than the one all pay.
    assert missing_cards(listed, [card("list")], NOW, "acme") == listed
    own = adjusted(card("list"), "acme", -10)
    assert missing_cards(listed, [card("list"), own], NOW, "acme") == []
    assert missing_cards(listed, [own], NOW) == listed


def test_a_card_begins_where_the_one_before_has_ended() -> None:
    (late,) = missing_cards([card("list")], [card("old", until=ENDED)], NOW)
    assert late.valid_from == ENDED
    assert compatible_cards([late], [card("old", until=ENDED)]) == ([late], [])


def test_a_card_that_does_not_fit_is_named_and_the_others_stay() -> None:
    fitting, refused = compatible_cards([card("list"), card("again")], [])
    assert [one.version for one in fitting] == ["list"]
    assert len(refused) == 1 and refused[0].startswith("gpt of openai gets no card")


def test_a_percentage_is_on_every_price_and_in_the_version() -> None:
    own = adjusted(card("list", "0.000015"), "acme", -10)
    assert (own.version, own.tenant, own.rates) == ("list@acme-10", "acme", {"input_text": 14})  # 13.5 is not a price
    assert adjusted(card("list"), percent=10).version == "list+10" and adjusted(card("list")) == card("list")
    assert as_new_price(own).usd_per_mtok == {"input_text": Decimal("0.000014")}


def test_a_model_bought_under_two_names_has_no_one_price() -> None:
    sold = [
        SoldModel("chat", "openai", "gpt-5"),
        SoldModel("chat", "openai", "gpt-5-mini"),
        SoldModel("chat", "azure", "gpt-5"),
    ]
    clear, refused = bought_under_one_name(sold)
    assert clear == [sold[2]]
    assert len(refused) == 1 and "bought as gpt-5 and gpt-5-mini" in refused[0]
