"""Prices for batches: what a batch asks is priced by them, leaf by leaf, and the version says so."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import ConfigurationError
from contracts.metering.usage import TOKEN_LEAVES, Usage
from contracts.pricing.prices import NewPrice, PriceBook, PriceCard, StandardCostCard, Tier, bill, cost_of, price_card

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
USED = Usage(input_text=1000, cache_read_text=100, output_text=200)


def card(**fields):
    rates: Any = {"input_text": Decimal("2"), "cache_read_text": Decimal("0.5"), "output_text": Decimal("8")}
    return price_card(NewPrice("m", "m/1", rates, **fields))


def test_a_batch_pays_its_own_prices_and_the_version_says_so():
    halves = {"input_text": Decimal("1"), "cache_read_text": Decimal("0.25"), "output_text": Decimal("4")}
    found = card(batch_usd_per_mtok=halves)
    whole, half = (cost_of(USED, card).total_pico_usd for card in (found, found.at_tier("batch")))
    assert half is not None and whole == 2 * half
    assert cost_of(USED, found).version == "m/1"
    assert cost_of(USED, found.at_tier("batch")).version == "m/1#batch"
    assert found.at_tier("batch").at_tier("batch").version == "m/1#batch"


def test_a_leaf_without_a_batch_price_keeps_its_own():
    found = cost_of(USED, card(batch_usd_per_mtok={"input_text": Decimal("1")}).at_tier("batch"))
    assert found.parts == {
        "input_text": 1000 * 10**6,
        "cache_read_text": 100 * 5 * 10**5,
        "output_text": 200 * 8 * 10**6,
    }


def test_a_card_without_batch_prices_prices_batches_as_everything_else():
    plain = card()
    assert plain.at_tier("batch") is plain


def test_what_has_no_price_at_all_stays_unpriced_in_a_batch():
    found = card(batch_usd_per_mtok={"input_text": Decimal("1")}).at_tier("batch")
    cost = cost_of(Usage(input_text=1, output_audio=5), found)
    assert cost.total_pico_usd == 1_000_000 and cost.unpriced == ("output_audio",)
    assert bill(Usage(input_text=1), "chat", found).total_pico_usd is None, "half a usage has no price"


def test_reasoning_follows_the_batch_price_of_output():
    found = card(batch_usd_per_mtok={"output_text": Decimal("4")}).at_tier("batch")
    assert cost_of(Usage(output_reasoning=10), found).total_pico_usd == 10 * 4 * 10**6


@pytest.mark.parametrize(("tokens", "rate"), [(999, 1), (1000, 1), (1001, 3)])
def test_a_tier_has_batch_prices_of_its_own_below_at_and_above_its_threshold(tokens, rate):
    found = card(
        tiers=[(1000, {"input_text": Decimal("6")})],
        batch_usd_per_mtok={"input_text": Decimal("1")},
        batch_tiers={1000: {"input_text": Decimal("3")}},
    ).at_tier("batch")
    assert cost_of(Usage(input_text=tokens), found).total_pico_usd == tokens * rate * 10**6


def test_a_tier_without_batch_prices_keeps_its_own_above_its_threshold():
    tiers = [(1000, {"input_text": Decimal("6")})]
    found = card(tiers=tiers, batch_usd_per_mtok={"input_text": Decimal("1")}).at_tier("batch")
    assert found.rate("input_text", 1000) == 10**6 and found.rate("input_text", 1001) == 6 * 10**6


def test_a_fee_per_request_is_paid_in_a_batch_as_well():
    found = card(usd_per_request=Decimal("0.01"), batch_usd_per_mtok={"input_text": Decimal("0")})
    assert cost_of(Usage(input_text=7), found.at_tier("batch")).total_pico_usd == 10**10


def test_a_standard_card_has_batch_rates_beside_its_own():
    found = StandardCostCard("m", "m/1", EPOCH, 10, 5, 40, batch_input_rate=4, batch_output_rate=0).at_tier("batch")
    assert (found.version, found.basis) == ("m/1#batch", "standard_card")
    assert cost_of(USED, found).total_pico_usd == 1000 * 4 + 100 * 5 + 200 * 0
    plain = StandardCostCard("m", "m/1", EPOCH, 10, 5, 40)
    assert plain.at_tier("batch") is plain


@pytest.mark.parametrize("rate", ["batch_input_rate", "batch_cached_input_rate", "batch_output_rate"])
def test_a_negative_batch_rate_is_refused_by_name(rate):
    negative: Any = {rate: -1}
    unknown: Any = {"prompt": 1}
    with pytest.raises(ConfigurationError, match=f"{rate} must be >= 0"):
        StandardCostCard("m", "m/1", EPOCH, 1, 1, 1, **negative)
    with pytest.raises(ConfigurationError, match="the price of input_text must be >= 0"):
        PriceCard("m", "m/1", EPOCH, {}, service_tiers={"batch": {"input_text": -1}})
    with pytest.raises(ConfigurationError, match="not a usage leaf"):
        PriceCard("m", "m/1", EPOCH, {}, tiers=(Tier(1, {}, {"batch": unknown}),))


def test_a_version_that_looks_like_a_batch_s_is_refused():
    with pytest.raises(ConfigurationError, match="#batch"):
        PriceBook([PriceCard("m", "m/1#batch", EPOCH, {})])


counts = st.integers(0, 10**6)
rates = st.dictionaries(st.sampled_from(TOKEN_LEAVES), st.integers(0, 10**9))


@given(st.dictionaries(st.sampled_from(TOKEN_LEAVES), counts, min_size=1), rates, rates)
def test_a_batch_s_cost_is_the_sum_of_its_leaves_at_batch_rates(used, own, batch):
    found = PriceCard("m", "m/1", EPOCH, own, service_tiers={"batch": batch} if batch else {}).at_tier("batch")
    assert found is not None
    merged = {**own, **batch}
    priced_as = {leaf: merged.get(leaf) for leaf in used}
    if priced_as.get("output_reasoning", 0) is None:
        priced_as["output_reasoning"] = merged.get("output_text")
    cost = cost_of(Usage(**used), found)
    assert cost.version == ("m/1#batch" if batch else "m/1")
    unpriced = {leaf for leaf, rate in priced_as.items() if rate is None and used[leaf]}
    assert set(cost.unpriced) == unpriced
    if unpriced and not any(used[leaf] for leaf, rate in priced_as.items() if rate is not None):
        assert cost.total_pico_usd is None, "unknown is not zero"
    else:
        assert cost.total_pico_usd == sum(used[leaf] * (rate or 0) for leaf, rate in priced_as.items())
