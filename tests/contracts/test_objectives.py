"""What an objective may promise, and when its error budget burns: below, at and above every threshold."""

import re
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import InvalidRequest
from contracts.rules.objectives import (
    BURN_PAIRS,
    PROMPT_CLASS_BELOW_TOKENS,
    STEPS_TENTHS_MS,
    Counts,
    ErrorBudget,
    Objective,
    burning_pairs,
    is_burning,
)

ROOT = Path(__file__).resolve().parents[2]


def objective(**changes: Any) -> Objective:
    stated: dict[str, Any] = {"id": "up", "indicator": "availability", "target_percent": Decimal("99.9"), **changes}
    return Objective(**stated)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"target_percent": Decimal(0)}, "slo_target_promises_nothing"),
        ({"target_percent": Decimal(100)}, "slo_target_leaves_no_budget"),
        ({"target_percent": Decimal("100.0")}, "slo_target_leaves_no_budget"),
        ({"target_percent": Decimal("100.001")}, "invalid_request"),
        ({"target_percent": Decimal("99.9999999")}, "invalid_request"),
        ({"window_days": 86}, "slo_window_beyond_retention"),
        ({"window_days": 0}, "invalid_request"),
        ({"indicator": "ttft", "thresholds_ms": {"ttft": Decimal(510)}}, "slo_threshold_not_kept"),
        ({"indicator": "ttft", "thresholds_ms": {}}, "invalid_request"),
        ({"indicator": "ttft", "thresholds_ms": {"inter_token": Decimal(50)}}, "invalid_request"),
        ({"thresholds_ms": {"ttft": Decimal(500)}}, "invalid_request"),
        ({"indicator": "goodput"}, "invalid_request"),
        ({"indicator": "speed"}, "invalid_request"),
        ({"prompt_class": "huge"}, "invalid_request"),
        ({"hooks": ("stop_everything",)}, "invalid_request"),
    ],
)
def test_a_promise_that_cannot_be_kept_or_counted_is_refused_by_name(changes: dict[str, Any], code: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        objective(**changes)
    assert refused.value.error_code == code
    assert refused.value.param in {"target_percent", "window_days", "thresholds_ms", *changes}


def test_targets_just_inside_and_the_longest_window_are_taken() -> None:
    for target in ("0.00001", "99.99999"):
        assert 0 < objective(target_percent=Decimal(target)).bad_share < 1
    assert objective(window_days=85).window_days == 85


def test_a_threshold_between_two_steps_names_both() -> None:
    with pytest.raises(InvalidRequest, match="the nearest are 500 and 600"):
        objective(indicator="ttft", thresholds_ms={"ttft": Decimal(540)})


@pytest.mark.parametrize("pair", BURN_PAIRS, ids=lambda pair: pair.name)
def test_a_pair_burns_at_its_factor_and_not_below(pair: Any) -> None:
    promise = objective(target_percent=Decimal(90))  # a tenth may be bad, so 14.4 times as fast cannot be
    promise = objective() if pair.factor > 9 else promise
    total = 100_000
    at = int(pair.factor * promise.bad_share * total)
    assert Fraction(at, total) == pair.factor * promise.bad_share, "the counts are not at the threshold"
    burning, below = Counts(total, at), Counts(total, at - 1)
    assert is_burning(promise, pair, burning, burning)
    assert is_burning(promise, pair, Counts(total, at + 1), burning)
    assert not is_burning(promise, pair, below, burning)
    assert not is_burning(promise, pair, burning, below)
    assert not is_burning(promise, pair, burning, Counts())


@pytest.mark.parametrize(("total", "bad", "burns"), [(20, 1, True), (19, 6, False), (19, 7, True), (1, 1, False)])
def test_few_requests_burn_only_where_many_of_them_are_bad(total: int, bad: int, burns: bool) -> None:
    counts = Counts(total, bad)
    assert is_burning(objective(min_events=20), BURN_PAIRS[0], counts, counts) is burns


def test_the_most_urgent_pair_comes_first_and_windows_without_requests_do_not_burn() -> None:
    everything = {window: Counts(1000, 1000) for pair in BURN_PAIRS for window in (pair.long, pair.short)}
    assert burning_pairs(objective(), everything) == BURN_PAIRS
    recovered = {**everything, timedelta(minutes=5): Counts(1000, 0)}
    assert burning_pairs(objective(), recovered) == BURN_PAIRS[1:]
    assert burning_pairs(objective(), {}) == ()


@given(total=st.integers(1, 10**9), share=st.fractions(0, 1), target=st.decimals("0.1", "99.999", places=3))
def test_what_is_left_of_a_budget_and_the_burn_rate_add_up(total: int, share: Fraction, target: Decimal) -> None:
    promise = objective(target_percent=target)
    counts = Counts(total, int(share * total))
    budget, rate = ErrorBudget.of(promise, counts), counts.burn_rate(promise)
    assert rate is not None and budget.remaining_share is not None
    assert budget.remaining_share + rate == 1
    good = counts.good_share()
    assert good is not None and (good >= Fraction(target) / 100) == (budget.remaining_share >= 0)


def test_no_requests_are_not_a_kept_promise() -> None:
    assert Counts().good_share() is None
    assert Counts().burn_rate(objective()) is None
    assert ErrorBudget.of(objective(), Counts()).remaining_share is None


def test_the_steps_are_what_the_store_counts_by() -> None:
    text = (ROOT / "migrations" / "clickhouse" / "0018_indicators.sql").read_text()
    (listed,) = re.findall(r"\[([\d,\s]+)\] AS steps", text)
    assert [int(step) for step in listed.split(",")] == [0, *STEPS_TENTHS_MS]
    for name, bound in PROMPT_CLASS_BELOW_TOKENS.items():
        assert f"prompt_tokens < {bound}, '{name}'" in text
