"""What stalls of a core make of a stream's chunks, whoever passes them on."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.load.stalls import jitter_ns, stalls_of

MS = 1_000_000


@pytest.mark.parametrize(
    ("stalls", "seconds", "expected"),
    [
        ([], 10.0, 0),
        ([10 * MS] * 10, 10.0, 5 * MS),  # 10 * (10 - 5) ms * 2 of 10 s: one in a hundred
        ([10 * MS] * 20, 10.0, 7_500_000),
        ([MS] * 10, 10.0, 0),  # 2 in a thousand
    ],
)
def test_the_share_of_wrong_gaps_is_that_of_the_time_that_stalls_take_twice(stalls, seconds, expected):
    assert jitter_ns(stalls, seconds, 0.99) == expected


@given(st.lists(st.integers(0, 50 * MS), max_size=30), st.floats(0.9, 0.999))
def test_more_stalls_never_make_less_jitter(stalls, quantile):
    alone = jitter_ns(stalls, 5.0, quantile)
    assert alone <= jitter_ns([*stalls, 20 * MS], 5.0, quantile) <= max([*stalls, 20 * MS])


@given(st.lists(st.integers(0, 20 * MS), min_size=1, max_size=20))
def test_it_is_what_chunks_at_all_times_would_see(stalls):
    seconds, worst = 10.0, jitter_ns(stalls, 10.0, 0.99)
    late = sum(max(stall - worst, 0) for stall in stalls)
    assert 2 * late / (seconds * 1e9) <= 0.01
    if worst:
        assert 2 * sum(max(stall - worst + 1, 0) for stall in stalls) / (seconds * 1e9) > 0.01


def test_a_core_is_watched():
    core = min(os.sched_getaffinity(0))
    assert all(stall > 100_000 for stall in stalls_of(core, 0.2))
