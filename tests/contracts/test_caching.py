"""What a policy of kept answers may say, and what a hit costs by it."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import ConfigurationError
from contracts.serving.caching import MAX_TTL_SECONDS, CachePolicy, cache_policy


@pytest.mark.parametrize("given_fields", [None, {}])
def test_nothing_said_is_no_policy(given_fields: Any) -> None:
    assert cache_policy(given_fields) is None


def test_a_policy_is_read_from_plain_data() -> None:
    found = cache_policy({"mode": "semantic", "hit_price": "0.25", "similarity": 0.9, "share": "key"})
    assert found == CachePolicy(mode="semantic", hit_price=Decimal("0.25"), similarity=0.9, share="key")


@pytest.mark.parametrize(
    ("field", "below", "least", "most", "above"),
    [
        ("ttl_seconds", 0, 1, MAX_TTL_SECONDS, MAX_TTL_SECONDS + 1),
        ("similarity", -0.01, 0, 1, 1.01),
        ("hit_price", "-0.000001", "0", "1", "1.000001"),
        ("max_answer_bytes", 0, 1, 16 << 20, (16 << 20) + 1),
    ],
)
def test_bounds_hold_at_both_ends(field: str, below: Any, least: Any, most: Any, above: Any) -> None:
    for value in (least, most):
        assert cache_policy({"mode": "exact", field: value}) is not None
    for value in (below, above):
        with pytest.raises(ConfigurationError, match="cache: "):
            cache_policy({"mode": "exact", field: value})


@pytest.mark.parametrize("price", ["NaN", "Infinity", "0.0000001"])
def test_a_price_that_is_none_is_refused_by_name(price: str) -> None:
    with pytest.raises(ConfigurationError, match="hit_price"):
        cache_policy({"hit_price": price})


@given(st.integers(0, 10**15), st.integers(0, 10**6))
def test_a_hit_costs_its_share_and_never_more_than_the_answer(answer_pico_usd: int, millionths: int) -> None:
    paid = CachePolicy(hit_price=Decimal(millionths) / 10**6).price_of(answer_pico_usd)
    assert 0 <= paid * 10**6 - answer_pico_usd * millionths < 10**6 and paid <= answer_pico_usd
