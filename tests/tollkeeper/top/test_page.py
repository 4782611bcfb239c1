"""Sums, rates and quantiles of metrics pages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tollkeeper.top.pages import histogram, pair
from tollkeeper.top.page import MetricsPage


def test_a_rate_is_the_growth_by_second() -> None:
    found = pair('n{model="a"} 10\nn{model="b"} 1', 'n{model="a"} 30\nn{model="b"} 1')
    assert found.rate("n", "model") == {("a",): 10.0, ("b",): 0.0}


def test_a_counter_that_fell_began_anew() -> None:
    assert pair("n 1000", "n 6").growth("n") == {(): 6.0}


def test_a_series_that_is_new_grew_by_all_it_is() -> None:
    assert pair("", 'n{model="a"} 4').growth("n", "model") == {("a",): 4.0}


def test_what_is_not_on_the_page_is_unknown_and_not_zero() -> None:
    assert MetricsPage.read(["other 1"], 0.0).total("n") is None
    assert MetricsPage.read(["n 0"], 0.0).total("n") == 0.0


def test_workers_counters_add_up_and_their_engines_gauges_do_not() -> None:
    page = MetricsPage.read(['n{host="h"} 3', 'n{host="h"} 4'], 0.0)
    assert page.by("n", "host") == {("h",): 7.0}
    assert page.by("n", "host", join=max) == {("h",): 4.0}


def test_a_quantile_is_interpolated_in_its_bucket() -> None:
    before = histogram("t", {"0.1": 0, "0.2": 0, "+Inf": 0})
    after = histogram("t", {"0.1": 50, "0.2": 100, "+Inf": 100})
    assert pair(before, after).quantile("t", 0.5) == pytest.approx(0.1)
    assert pair(before, after).quantile("t", 0.75) == pytest.approx(0.15)


def test_a_quantile_beyond_the_last_bound_is_that_bound() -> None:
    after = histogram("t", {"0.1": 0, "0.2": 1, "+Inf": 100})
    assert pair("", after).quantile("t", 0.99) == 0.2


def test_only_what_came_between_both_readings_counts() -> None:
    before = histogram("t", {"0.1": 1_000, "0.2": 1_000, "+Inf": 1_000})
    after = histogram("t", {"0.1": 1_000, "0.2": 1_010, "+Inf": 1_010})
    assert pair(before, after).quantile("t", 0.5) == pytest.approx(0.15)


def test_a_quantile_of_nothing_is_unknown() -> None:
    same = histogram("t", {"0.1": 5, "+Inf": 5})
    assert pair(same, same).quantile("t", 0.5) is None
    assert pair("", "").quantile("t", 0.5) is None


def test_a_quantile_of_one_label_leaves_the_others_out() -> None:
    after = "\n".join(
        [histogram("t", {"0.1": 10, "+Inf": 10}, 'm="quick"'), histogram("t", {"0.1": 0, "+Inf": 10}, 'm="slow"')]
    )
    assert pair("", after).quantile("t", 0.5, "m", "quick") == pytest.approx(0.05)
    assert pair("", after).quantile("t", 0.5, "m", "slow") == 0.1


@given(st.lists(st.integers(0, 50), min_size=3, max_size=3), st.floats(0.01, 0.99))
def test_a_quantile_lies_within_the_bucket_that_holds_its_rank(counts: list[int], quantile: float) -> None:
    bounds = (0.1, 0.5, 2.0)
    cumulative = [sum(counts[: at + 1]) for at in range(3)]
    after = histogram("t", {**dict(zip(map(str, bounds), cumulative, strict=True)), "+Inf": cumulative[-1]})
    found = pair("", after).quantile("t", quantile)
    if not cumulative[-1]:
        assert found is None
        return
    at = next(at for at, count in enumerate(cumulative) if count >= quantile * cumulative[-1])
    lower = bounds[at - 1] if at else 0.0
    assert found is not None and lower - 1e-9 <= found <= bounds[at] + 1e-9
