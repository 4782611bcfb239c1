"""Quantiles within ten per cent, of the two latest halves of a window."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.routing.health.pool_health import Latencies


@given(st.lists(st.integers(1_000_000, 600_000_000_000), min_size=1, max_size=60), st.floats(0.01, 0.99))
def test_a_quantile_is_at_most_ten_per_cent_above_the_true_one(times, share):
    found = Latencies()
    for took in times:
        found.add(took)
    true = sorted(times)[max(-(-share * len(times) // 1) - 1, 0).__int__()]
    quantile = found.quantile_ns(share)
    assert quantile is not None and true * 0.999 <= quantile <= true * 1.101


def test_what_was_never_seen_is_not_known():
    assert Latencies().quantile_ns(0.5) is None


def test_after_two_turns_it_is_forgotten():
    found = Latencies()
    found.add(5_000_000)
    found.turn()
    assert found.count == 1
    found.turn()
    assert found.quantile_ns(0.5) is None
