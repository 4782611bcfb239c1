"""What usage costs: parts that sum to the total, unknown that is never zero, and the right card at every moment."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.errors import ConfigurationError
from contracts.metering.usage import LEAVES, TOKEN_LEAVES, UNIT_LEAVES, UNKNOWN_USAGE, Usage
from contracts.pricing.prices import (
    UNPRICED,
    NewPrice,
    PriceCard,
    StandardCostCard,
    Tier,
    bill,
    cost_of,
    is_billable,
    price_card,
)

SOME = settings(max_examples=80, deadline=None)
TOKENS = st.builds(Usage, *[st.none() | st.integers(0, 10**6)] * len(TOKEN_LEAVES))
USAGES = st.builds(Usage, *[st.none() | st.integers(0, 10**6)] * len(LEAVES))
RATES = st.dictionaries(st.sampled_from(LEAVES), st.integers(0, 10**9))
TIERS = st.dictionaries(st.integers(0, 10**6), RATES, max_size=3)
YEAR_2026 = datetime(2026, 1, 1, tzinfo=UTC)
YEAR_2027 = datetime(2027, 1, 1, tzinfo=UTC)
INSTANT = timedelta(microseconds=1)


def card_of(rates, **options):
    return price_card(NewPrice("m", "v1", {leaf: Decimal(price) for leaf, price in rates.items()}, **options))


def dated(version, valid_from, valid_to=None, *, model="m", provider="", tenant=""):
    return PriceCard(
        model=model,
        version=version,
        valid_from=valid_from,
        valid_to=valid_to,
        rates={"input_text": 1},
        provider=provider,
        tenant=tenant,
    )


# --- worked examples, computed by hand ---

SMALL = card_of({"input_text": "0.15", "output_text": "0.60"})
CACHING = card_of({"input_text": "2.50", "cache_read_text": "1.25", "output_text": "10"})
LONG = card_of(
    {"input_text": "1.25", "cache_read_text": "0.125", "output_text": "10"},
    tiers=[
        (
            200_000,
            {"input_text": Decimal("2.50"), "cache_read_text": Decimal("0.25"), "output_text": Decimal("15")},
        )
    ],
)
OWN = StandardCostCard("m", "s1", YEAR_2026, input_rate=50_000, cached_input_rate=5_000, output_rate=400_000)


@pytest.mark.parametrize(
    ("card", "usage", "expected"),
    [
        # 1,000 x 150,000 + 200 x 600,000
        pytest.param(SMALL, Usage(input_text=1_000, output_text=200), 270_000_000, id="plain"),
        # 40 x 2,500,000 + 60 x 1,250,000 + (20 visible + 10 reasoning) x 10,000,000
        pytest.param(
            CACHING,
            Usage(input_text=40, cache_read_text=60, output_text=20, output_reasoning=10),
            475_000_000,
            id="cached input once, reasoning as output",
        ),
        # 3 x 18,750
        pytest.param(card_of({"input_text": "0.01875"}), Usage(input_text=3), 56_250, id="18.75 nano-USD a token"),
        # below: 199,999 x 1,250,000 + 1,000 x 10,000,000
        pytest.param(LONG, Usage(input_text=199_999, output_text=1_000), 259_998_750_000, id="below the tier"),
        # at: 200,000 x 1,250,000 + 1,000 x 10,000,000
        pytest.param(LONG, Usage(input_text=200_000, output_text=1_000), 260_000_000_000, id="at the tier"),
        # above, the whole request: 200,001 x 2,500,000 + 1,000 x 15,000,000
        pytest.param(LONG, Usage(input_text=200_001, output_text=1_000), 515_002_500_000, id="above the tier"),
        # cached input counts towards the tier: 1 x 2,500,000 + 200,000 x 250,000 + 2 x 15,000,000
        pytest.param(
            LONG, Usage(input_text=1, cache_read_text=200_000, output_text=2), 50_032_500_000, id="tier by all input"
        ),
        # 10 x 150,000 + 0 + 0.01 USD
        pytest.param(
            card_of({"input_text": "0.15", "output_text": "0.60"}, usd_per_request=Decimal("0.01")),
            Usage(input_text=10, output_text=0),
            10_001_500_000,
            id="fee per request",
        ),
        # (100 + 5 + 7) uncached x 50,000 + 30 cached x 5,000 + (4 + 6) x 400,000
        pytest.param(
            OWN,
            Usage(
                input_text=100,
                input_image=5,
                cache_write_5m=7,
                cache_read_text=30,
                output_text=4,
                output_reasoning=6,
            ),
            9_750_000,
            id="standard cost",
        ),
    ],
)
def test_worked_examples(card, usage, expected):
    cost = cost_of(usage, card)
    assert cost.total_pico_usd == expected
    assert sum(cost.parts.values()) == expected
    assert (cost.version, cost.basis) == (card.version, card.basis)


# --- parts and total ---


@SOME
@given(USAGES, RATES, TIERS, st.integers(0, 10**12))
def test_parts_sum_to_the_total_and_each_leaf_is_priced_or_named(usage, rates, tiers, fee):
    card = PriceCard(
        model="m",
        version="v1",
        valid_from=YEAR_2026,
        rates=rates,
        tiers=tuple(Tier(threshold, prices) for threshold, prices in tiers.items()),
        request_pico_usd=fee,
    )
    cost = cost_of(usage, card)
    assert all(isinstance(part, int) and part >= 0 for part in cost.parts.values())
    if cost.total_pico_usd is None:
        assert (cost.unpriced and not cost.parts) or not usage.is_known
        assert not cost.unpriced or cost.basis == "unpriced"
    else:
        assert usage.is_known
        assert cost.total_pico_usd == sum(cost.parts.values())
    used = {leaf for leaf, count in usage.reported().items() if count}
    told = set(cost.parts) | set(cost.unpriced)
    units = set(UNIT_LEAVES)
    assert used - units <= told or used & units & set(cost.parts), "tokens are paid, named, or sold by units"
    assert used & units <= told or fee or (used - units) & set(cost.parts), "units are paid, named, or sold by tokens"
    assert not (cost.unpriced and cost.total_pico_usd is not None) or fee or used & set(cost.parts)
    assert not set(cost.parts) & set(cost.unpriced)
    assert set(cost.unpriced) <= used


@SOME
@given(USAGES, USAGES, st.fixed_dictionaries(dict.fromkeys(LEAVES, st.integers(0, 10**9))))
def test_without_tiers_or_fees_the_cost_of_a_sum_is_the_sum_of_costs(one, two, rates):
    card = PriceCard(model="m", version="v1", valid_from=YEAR_2026, rates=rates)
    parts = [cost_of(usage, card).total_pico_usd for usage in (one, two)]
    assert (cost_of(one.plus(two), card).total_pico_usd or 0) == sum(part or 0 for part in parts)


@SOME
@given(TOKENS)
def test_a_standard_card_prices_every_leaf(usage):
    cost = cost_of(usage, OWN)
    assert cost.unpriced == ()
    assert (cost.total_pico_usd is None) is (not usage.is_known)


def test_unknown_usage_has_no_price_even_where_everything_is_free():
    free = card_of(dict.fromkeys(LEAVES, "0"), usd_per_request=Decimal("0.01"))
    assert cost_of(UNKNOWN_USAGE, free).total_pico_usd is None
    assert cost_of(UNKNOWN_USAGE, OWN).total_pico_usd is None
    assert cost_of(Usage(input_text=0), card_of({"input_text": "1"})).total_pico_usd == 0
    assert UNPRICED.total_pico_usd is None


@pytest.mark.parametrize("leaf", [leaf for leaf in TOKEN_LEAVES if leaf not in ("input_text", "output_text")])
def test_a_leaf_without_a_price_is_named_where_it_was_used_and_the_rest_is_billed(leaf):
    priced_as_output = leaf == "output_reasoning"
    used = cost_of(Usage(**{"input_text": 10, "output_text": 1, leaf: 1}), SMALL)
    assert used.unpriced == (() if priced_as_output else (leaf,))
    assert used.total_pico_usd == (2_700_000 if priced_as_output else 2_100_000)
    assert used.basis == "price_card"
    assert used.parts["input_text"] == 1_500_000
    unused = cost_of(Usage(**{"input_text": 10, "output_text": 1, leaf: 0}), SMALL)
    assert (unused.total_pico_usd, unused.unpriced) == (2_100_000, ())
    alone = cost_of(Usage(**{"input_text": 0, leaf: 1}), SMALL)
    assert (alone.total_pico_usd, alone.basis) == ((600_000, "price_card") if priced_as_output else (None, "unpriced"))
    assert alone.unpriced == used.unpriced


def test_reasoning_has_its_own_price_where_a_card_gives_one():
    card = card_of({"input_text": "1", "output_text": "10", "output_reasoning": "3"})
    assert cost_of(Usage(input_text=0, output_reasoning=2), card).total_pico_usd == 6_000_000


# --- half a usage ---


@pytest.mark.parametrize(
    ("usage", "operation", "expected"),
    [
        (Usage(input_text=1, output_text=1), "chat", True),
        (Usage(input_text=0, output_text=0), "chat", True),
        (Usage(cache_read_text=1, output_reasoning=1), "chat", True),
        (Usage(input_text=1), "chat", False),
        (Usage(output_text=1), "chat", False),
        (UNKNOWN_USAGE, "chat", False),
        (Usage(input_text=1), "text_completion", False),
        (Usage(input_text=1), "embeddings", True),
        (Usage(input_text=1, output_text=0), "embeddings", True),
        (Usage(output_text=1), "embeddings", False),
        (UNKNOWN_USAGE, "embeddings", False),
    ],
)
def test_half_a_usage_is_not_billed_and_an_embedding_has_no_second_half(usage, operation, expected):
    assert is_billable(usage, operation) is expected
    cost = bill(usage, operation, SMALL)
    assert (cost.total_pico_usd is not None) is expected
    assert (cost == UNPRICED) is not expected
    assert bill(usage, operation, None) == UNPRICED


# --- tiers ---


def test_the_highest_tier_exceeded_holds_in_whatever_order_tiers_are_given():
    tiers = [(100, {"input_text": Decimal(2)}), (1_000, {"input_text": Decimal(3)})]
    for given_tiers in (tiers, tiers[::-1]):
        card = card_of({"input_text": "1"}, tiers=given_tiers)
        rates = [card.rate("input_text", tokens) for tokens in (0, 100, 101, 1_000, 1_001)]
        assert rates == [1_000_000, 1_000_000, 2_000_000, 2_000_000, 3_000_000]


def test_a_tier_leaves_prices_it_does_not_name_as_they_were():
    card = card_of({"input_text": "1", "output_text": "4"}, tiers=[(100, {"input_text": Decimal(2)})])
    assert cost_of(Usage(input_text=101, output_text=1), card).total_pico_usd == 206_000_000


def test_without_a_known_input_no_tier_is_guessed():
    cost = cost_of(Usage(output_text=1_000), LONG)
    assert (cost.total_pico_usd, cost.unpriced) == (None, ("output_text",))
    assert cost_of(Usage(input_text=0, output_text=1_000), LONG).total_pico_usd == 10_000_000_000
    assert cost_of(Usage(output_text=1_000), SMALL).parts == {"output_text": 600_000_000}


# --- cards that cannot be ---


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: card_of({"input_text": "-1"}), "card 'v1', input_text: .* >= 0, not -1"),
        (lambda: card_of({"input_text": "NaN"}), "card 'v1', input_text: .* finite"),
        (lambda: card_of({"output_text": "0.0000001"}), "card 'v1', output_text: .* finer than 0.000001"),
        (lambda: card_of({"tokens": "1"}), "card 'v1' prices 'tokens', which is not a usage leaf"),
        (lambda: card_of({}, usd_per_request=Decimal(-1)), "card 'v1': the price per request must be >= 0"),
        (lambda: card_of({}, usd_per_request=Decimal("NaN")), "card 'v1', fee per request: .* finite"),
        (lambda: card_of({}, usd_per_request=Decimal("1e-13")), "card 'v1', fee per request: .* finer"),
        (lambda: card_of({}, tiers=[(-1, {})]), "threshold must be >= 0 tokens, not -1"),
        (lambda: card_of({}, tiers=[(5, {"x": Decimal(1)})]), "card 'v1' prices 'x'"),
        (lambda: card_of({}, tiers=[(5, {}), (5, {})]), "card 'v1' has two tiers with the same threshold"),
        (lambda: card_of({}, valid_from=datetime(2026, 1, 1)), "card 'v1': valid_from needs a time zone"),
        (lambda: card_of({}, valid_to=datetime(2026, 1, 1)), "card 'v1': valid_to needs a time zone"),
        (lambda: dated("v1", YEAR_2026, YEAR_2026), "card 'v1' ends .* before it begins"),
        (lambda: StandardCostCard("m", "s1", YEAR_2026, -1, 0, 0), "'s1': input_rate must be >= 0"),
        (lambda: StandardCostCard("m", "s1", YEAR_2026, 0, -1, 0), "'s1': cached_input_rate must be >= 0"),
        (lambda: StandardCostCard("m", "s1", YEAR_2026, 0, 0, -1), "'s1': output_rate must be >= 0"),
    ],
)
def test_a_card_that_cannot_be_is_refused_by_version_and_field(build, sentence):
    with pytest.raises(ConfigurationError, match=sentence):
        build()
