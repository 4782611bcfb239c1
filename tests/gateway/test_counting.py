"""The calibrated estimate of input tokens."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.counting import TokenEstimator


def test_before_any_report_four_bytes_are_a_token():
    assert TokenEstimator().estimate("m", 400) == 100


def test_the_first_report_is_believed_and_later_ones_move_the_average():
    estimator = TokenEstimator()
    estimator.learn("m", 1000, 500)
    assert estimator.estimate("m", 1000) == 500
    for _ in range(200):
        estimator.learn("m", 1000, 100)
    assert 99 <= estimator.estimate("m", 1000) <= 101


def test_each_model_has_its_own_ratio():
    estimator = TokenEstimator()
    estimator.learn("dense", 100, 100)
    assert estimator.estimate("dense", 100) == 100
    assert estimator.estimate("other", 100) == 25


@given(st.lists(st.tuples(st.integers(-5, 10**9), st.integers(-5, 2**32))), st.integers(0, 10**8))
def test_whatever_is_reported_an_estimate_is_at_least_one(reports, size):
    estimator = TokenEstimator()
    for request_bytes, tokens in reports:
        estimator.learn("m", request_bytes, tokens)
    assert estimator.estimate("m", size) >= 1
