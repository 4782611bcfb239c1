"""Money is exact to the pico-dollar, or refused."""

from decimal import Decimal, localcontext

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.pricing.money import MAX_PICO_USD, pico_usd, pico_usd_per_token, usd

SOME = settings(max_examples=80, deadline=None)


@SOME
@given(st.integers(-(10**30) + 1, 10**30 - 1))
def test_pico_dollars_survive_a_round_trip(amount):
    assert pico_usd(usd(amount)) == amount
    assert usd(amount).as_tuple().exponent == -12


@SOME
@given(st.integers(-MAX_PICO_USD, MAX_PICO_USD))
def test_the_callers_rounding_has_no_say(amount):
    with localcontext() as context:
        context.prec = 3
        assert pico_usd(usd(amount)) == amount


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("-0", 0),
        ("1", 10**12),
        ("0.000000000001", 1),
        ("-0.000000000001", -1),
        ("18.75e-9", 18_750),
        ("999999.999999999999", MAX_PICO_USD),
        ("1000000", 10**18),
        ("1.000000000000000000000000000", 10**12),
        ("0E-99999999", 0),
    ],
)
def test_dollars_become_pico_dollars(text, expected):
    assert pico_usd(Decimal(text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "0.0000000000001",
        "0.0000000000015",
        "1e-999999999",
        "1." + "0" * 28 + "1",  # one digit beyond Python's default precision
        "1." + "0" * 70 + "1",
    ],
)
def test_an_amount_finer_than_a_pico_dollar_is_refused_not_rounded(text):
    with pytest.raises(ValueError, match="finer than a pico-USD"):
        pico_usd(Decimal(text))


@pytest.mark.parametrize("text", ["NaN", "sNaN", "-NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("convert", [pico_usd, pico_usd_per_token])
def test_what_is_no_number_is_refused(convert, text):
    with pytest.raises(ValueError, match="finite number of USD"):
        convert(Decimal(text))


@pytest.mark.parametrize("convert", [pico_usd, pico_usd_per_token])
def test_an_absurd_amount_is_refused_before_it_is_written_out(convert):
    assert convert(Decimal("999999999999999999")) > 0
    for text in ("1e18", "1e999999999"):
        with pytest.raises(ValueError, match="below 10\\^18 USD"):
            convert(Decimal(text))


@pytest.mark.parametrize(
    ("usd_per_mtok", "expected"),
    [
        ("0", 0),
        ("0.15", 150_000),
        ("0.01875", 18_750),  # 18.75 nano-USD per token
        ("0.000001", 1),
        ("60", 60_000_000),
        ("0.1500000000", 150_000),
    ],
)
def test_prices_per_million_tokens_become_pico_dollars_per_token(usd_per_mtok, expected):
    assert pico_usd_per_token(Decimal(usd_per_mtok)) == expected


@pytest.mark.parametrize("text", ["0.0000001", "0.0000015", "0.15" + "0" * 26 + "1", "1." + "0" * 70 + "1"])
def test_a_price_finer_than_a_pico_dollar_per_token_is_refused(text):
    with pytest.raises(ValueError, match="finer than 0.000001"):
        pico_usd_per_token(Decimal(text))


def test_a_price_is_never_negative_but_an_amount_may_be():
    with pytest.raises(ValueError, match="must be a finite number of USD >= 0, not -0.000001"):
        pico_usd_per_token(Decimal("-0.000001"))
    assert pico_usd(Decimal("-2.5")) == -2_500_000_000_000


@SOME
@given(st.integers(0, 10**12))
def test_a_price_is_exact_at_the_grain(rate):
    assert pico_usd_per_token(Decimal(rate) / 10**6) == rate
