"""Amounts as people write them and as they are counted: exact both ways, and limits that contradict each other."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import ConfigurationError
from contracts.pricing.money import pico_usd
from contracts.rules.limits import MAX_AMOUNT, LimitSpec, Scope, Window
from contracts.rules.metrics import Metric
from contracts.rules.rule_words import (
    MAX_GPU_MILLISECONDS,
    MAX_USD,
    amount_text,
    base_amount,
    contradiction_text,
    exact_text,
    find_contradiction,
)

ACME = Scope("acme", "tenant")


def limit(amount: int, window: Window | None, metric: Metric = "requests", scope: Scope = ACME) -> LimitSpec:
    return LimitSpec(f"lim_{window}_{amount}", scope, metric, amount, window)


def test_an_amount_is_counted_in_its_base_unit() -> None:
    assert base_amount("tokens", 7, None) == 7
    assert base_amount("gpu_ms", 7, None) == 7_000_000
    assert base_amount("usd", None, Decimal("0.000000000001")) == 1
    assert base_amount("usd", None, MAX_USD) == MAX_AMOUNT
    assert base_amount("gpu_ms", MAX_GPU_MILLISECONDS, None) <= MAX_AMOUNT


@pytest.mark.parametrize(
    ("word", "amount", "amount_usd", "words"),
    [
        ("usd", 5, None, "amount_usd"),
        ("usd", 5, Decimal(5), "amount_usd"),
        ("tokens", None, Decimal(5), "in amount"),
        ("tokens", None, None, "in amount"),
        ("usd", None, Decimal("1e-13"), "finer than a pico-USD"),
        ("usd", None, Decimal("NaN"), "finite"),
        ("gpu_ms", MAX_GPU_MILLISECONDS + 1, None, str(MAX_GPU_MILLISECONDS)),
    ],
)
def test_an_amount_in_the_wrong_field_or_of_the_wrong_size_is_refused(word, amount, amount_usd, words) -> None:
    with pytest.raises(ConfigurationError, match=words):
        base_amount(word, amount, amount_usd)


@given(st.integers(min_value=0, max_value=100 * MAX_AMOUNT))
def test_money_survives_being_shown(amount: int) -> None:
    text = exact_text("pico_usd", amount)
    assert "E" not in text and pico_usd(Decimal(text)) == amount
    assert Decimal(exact_text("gpu_ns", amount)) * 1_000_000 == amount
    assert exact_text("tokens", amount) == str(amount)


def test_amounts_are_written_as_short_as_they_can_be() -> None:
    assert [exact_text("pico_usd", amount) for amount in (0, 1, 12_500_000_000_000, 10**12, -5)] == [
        "0",
        "0.000000000001",
        "12.5",
        "1",
        "-0.000000000005",
    ]
    assert amount_text("gpu_ns", 1_500_000) == "1.5 GPU milliseconds"


@pytest.mark.parametrize(("per_minute", "contradicts"), [(9, True), (10, False), (11, False)])
def test_a_minute_may_not_allow_less_than_one_of_its_seconds(per_minute: int, contradicts: bool) -> None:
    second, minute = limit(10, "second"), limit(per_minute, "minute")
    expected = (second, minute) if contradicts else None
    assert find_contradiction([minute, second]) == expected
    if contradicts:
        text = contradiction_text(second, minute)
        assert "9 requests per minute" in text and "10 requests per second" in text and "raise" in text


def test_only_limits_of_one_scope_and_metric_can_contradict() -> None:
    team = Scope("acme", "team", "search")
    others = [
        limit(1, "day", scope=team),
        limit(1, "day", metric="tokens"),
        limit(1, None, metric="concurrency"),
        limit(1, "day", scope=Scope("acme", "tenant", model="m")),
    ]
    assert find_contradiction([limit(10, "second"), *others]) is None
    assert find_contradiction([limit(10, "second"), limit(20, "hour"), limit(15, "day")]) is not None
