"""Exact Shapley values of measured subsets, and how far a split lies from them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.gpu_shares import coalitions, distance, excess, shapley


def game(members, value):
    return {chosen: float(value(chosen)) for chosen in coalitions(members)}


def test_every_subset_but_the_empty_one_is_a_coalition():
    assert len(coalitions("abcde")) == 31
    assert coalitions("ab") == [frozenset("a"), frozenset("b"), frozenset("ab")]


def test_the_airport_game_has_its_known_shares():
    """Runways of length 1, 2 and 4: Littlechild and Owen 1973."""
    lengths = {"a": 1, "b": 2, "c": 4}
    shares = shapley(game("abc", lambda chosen: max(lengths[one] for one in chosen)))
    assert shares == pytest.approx({"a": 1 / 3, "b": 1 / 3 + 1 / 2, "c": 1 / 3 + 1 / 2 + 2})


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=5))
def test_additive_costs_are_their_own_shares(costs):
    members = [str(place) for place in range(len(costs))]
    shares = shapley(game(members, lambda chosen: sum(costs[int(one)] for one in chosen)))
    assert shares == pytest.approx(dict(zip(members, costs, strict=True)))


@given(st.dictionaries(st.sampled_from("abcd"), st.floats(0.1, 10), min_size=4, max_size=4), st.floats(0.1, 50))
def test_a_fixed_cost_is_shared_equally_and_all_is_shared(own, fixed):
    times = game(sorted(own), lambda chosen: fixed + sum(own[one] for one in chosen))
    shares = shapley(times)
    assert sum(shares.values()) == pytest.approx(times[frozenset(own)])
    assert shares == pytest.approx({one: own[one] + fixed / 4 for one in own})
    assert distance(shares, shares) == 0
    assert excess(shares, times) <= 1e-12


def test_a_split_that_makes_one_pay_for_another_is_outside_the_core():
    times = game("ab", lambda chosen: {"a": 1.0, "b": 3.0, "ab": 4.0}["".join(sorted(chosen))])
    assert excess({"a": 2.0, "b": 2.0}, times) == pytest.approx(0.25)
    assert distance({"a": 2.0, "b": 2.0}, shapley(times)) == pytest.approx(0.25)


def test_a_missing_subset_is_an_error():
    times = game("ab", len)
    del times[frozenset("a")]
    with pytest.raises(KeyError):
        shapley(times)
