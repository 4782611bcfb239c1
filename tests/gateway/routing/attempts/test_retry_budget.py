"""Additional attempts are a share of a pool's requests, and a few a second: never more, whatever fails."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.routing.attempts.retry_budget import RetryBudget

S = 1_000_000_000


def granted(budget, times, now_ns):
    return sum(budget.spend(now_ns) for _ in range(times))


@pytest.mark.parametrize(("requests", "tries"), [(0, 0), (9, 1), (10, 2), (100, 20), (10_000, 100)])
def test_tries_are_a_share_of_requests_and_at_most_a_hundred_are_saved(requests, tries):
    budget = RetryBudget(0.2, 0)
    budget.requests += requests
    assert granted(budget, 1000, 0) == tries


def test_a_pool_with_few_requests_has_some_a_second():
    budget = RetryBudget(0.0, 3)
    assert granted(budget, 10, 0) == 3
    assert granted(budget, 10, S) == 3
    assert granted(budget, 10, 100 * S) == 3, "what was not used in a second is gone"


def test_what_is_refused_is_counted():
    budget = RetryBudget(0.0, 1)
    assert (granted(budget, 3, 0), budget.spent, budget.refused) == (1, 1, 2)


@given(
    share=st.floats(0, 1),
    per_second=st.floats(0, 20),
    turns=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.floats(0, 3)), max_size=40),
)
def test_a_storm_is_never_granted_more_than_the_budget(share, per_second, turns):
    budget, now, spent, requests = RetryBudget(share, per_second), 0, 0, 0
    for new, wanted, seconds in turns:
        budget.requests += new
        requests += new
        now += round(seconds * S)
        spent += granted(budget, wanted, now)
        assert spent <= share * requests + per_second * now / S + max(per_second, 1.0) + 1e-6
