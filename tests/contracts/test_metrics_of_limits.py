"""Every metric has one row, one position among a request's amounts, and texts that show it exactly."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.rules.limits import MAX_AMOUNT
from contracts.rules.metrics import KIND_OF_WORD, METRIC_KINDS, METRICS, Metric, MetricKind, MetricWord
from contracts.rules.rule_words import amount_text, base_amount, exact_text


def test_each_metric_has_one_row_in_the_order_of_its_names() -> None:
    assert get_args(Metric) == METRICS, (
        "contracts/rules/metrics.py: METRIC_KINDS has a row for each Metric, in its order"
    )
    assert get_args(MetricWord) == tuple(KIND_OF_WORD), "contracts/rules/metrics.py: each row's word is in MetricWord"


@pytest.mark.parametrize("kind", METRIC_KINDS, ids=lambda kind: kind.word)
def test_an_amount_is_shown_in_the_unit_it_was_written_in(kind: MetricKind) -> None:
    assert amount_text(kind.name, 3 * 10**kind.decimals) == f"3 {kind.unit}"
    if kind.word != "usd":
        assert base_amount(kind.word, 3, None) == 3 * 10**kind.decimals


@given(st.integers(-MAX_AMOUNT, MAX_AMOUNT), st.sampled_from(METRIC_KINDS))
def test_no_digit_of_an_amount_is_lost_in_its_text(amount: int, kind: MetricKind) -> None:
    whole, _, decimals = exact_text(kind.name, amount).partition(".")
    assert int(whole + decimals.ljust(kind.decimals, "0")) == amount
