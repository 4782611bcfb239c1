"""Prices by image, second, character and request: exact, and told apart from those of tokens."""

from decimal import Decimal
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import ConfigurationError
from contracts.metering.usage import UNIT_LEAVES, Leaf, Usage
from contracts.pricing.prices import NewPrice, cost_of, price_card
from contracts.pricing.service_tiers import image_variant
from contracts.pricing.unit_prices import UNIT_WORDS, check_units, unit_of, units_in, with_units, without_units

PRICES = st.decimals("0", "1000", places=9).map(lambda price: price.normalize())
KINDS = st.sampled_from(["image.hd", "image.1024x1024", "image.hd.1024x1024"])


def card(per_unit, **tokens):
    rates, tiers = with_units({cast(Leaf, leaf): Decimal(rate) for leaf, rate in tokens.items()}, {}, per_unit)
    return price_card(NewPrice("m", "m/1", rates, service_tiers=tiers))


@given(st.dictionaries(st.sampled_from(UNIT_WORDS) | KINDS, PRICES, min_size=1))
def test_what_is_written_by_unit_is_read_back_by_unit(per_unit):
    rates, tiers = with_units({"input_text": Decimal(1)}, {"flex": {"input_text": Decimal(2)}}, per_unit)
    assert units_in(rates, tiers) == per_unit
    assert without_units(rates, tiers) == ({"input_text": Decimal(1)}, {"flex": {"input_text": Decimal(2)}})


@given(PRICES, st.integers(0, 10**6))
def test_a_second_costs_a_thousand_of_its_milliseconds(price, seconds):
    found = cost_of(Usage(milliseconds=seconds * 1000), card({"second": price}))
    assert found.total_pico_usd == int(price * 10**12) * seconds


@pytest.mark.parametrize(
    ("kind", "pico"),
    [
        ("", 40),
        ("image.hd", 80),
        ("image.hd.512x512", 80),
        ("image.hd.1792x1024", 120),
        ("image.low.256x256", 10),
        ("image.256x256", 10),
        ("image.low", 40),
    ],
)
def test_an_image_is_sold_as_the_nearest_kind_that_has_a_price(kind, pico):
    kinds = {"image": "0.04", "image.hd": "0.08", "image.hd.1792x1024": "0.12", "image.256x256": "0.01"}
    found = card({word: Decimal(price) for word, price in kinds.items()}).at_tier(kind)
    assert cost_of(Usage(images=2), found).total_pico_usd == 2 * pico * 10**9


@pytest.mark.parametrize(
    ("quality", "size", "kind"),
    [
        (None, None, ""),
        ("auto", "auto", ""),
        ("HD", "1024x1024", "image.hd.1024x1024"),
        ("auto", "1024x1024", "image.1024x1024"),
        ("hd", None, "image.hd"),
        ("x" * 40, None, "unknown"),
    ],
)
def test_a_kind_of_image_is_its_quality_and_size(quality, size, kind):
    assert image_variant(quality, size) == kind


@pytest.mark.parametrize("word", ["images", "", "minute", "image.", "image.HD", "second.hd"])
def test_a_unit_that_is_none_is_named(word):
    with pytest.raises(ConfigurationError, match="units are image, second, character, request"):
        with_units({}, {}, {word: Decimal(1)})


def test_units_do_not_stand_among_tokens():
    with pytest.raises(ValueError, match="put second into usd_per_unit"):
        check_units({"milliseconds": Decimal(1)}, {}, {})


def test_a_price_that_is_finer_than_the_ledger_is_refused():
    with pytest.raises(ConfigurationError, match="milliseconds: .* is finer than"):
        card({"second": Decimal("0.0000000001")})


def test_what_a_card_does_not_sell_by_lacks_no_price():
    both = Usage(input_text=10, output_text=1, images=2)
    assert cost_of(both, card({"image": Decimal(1)})).unpriced == ()
    assert cost_of(both, card({}, input_text=1, output_text=1)).unpriced == ()
    assert cost_of(both, card({}, input_text=1)).unpriced == ("output_text",)
    assert cost_of(both, card({"second": Decimal(1)})).unpriced == ("input_text", "output_text", "images")
    assert cost_of(both, card({"second": Decimal(1)})).total_pico_usd is None


def test_each_unit_has_a_word_and_tokens_are_sold_by_the_million():
    assert [unit_of(leaf) for leaf in UNIT_LEAVES] == [("image", 1), ("second", 1000), ("character", 1), ("request", 1)]
    assert unit_of("input_text") == ("", 1_000_000)
