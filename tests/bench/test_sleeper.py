"""What late wakes of a core make of a stream's chunks, no matter who passes them on."""

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.load.sleeper import STEP_NS, Sleeper, jitter_ns

MS = 1_000_000
GAP = 20 * MS
LATES = st.lists(st.integers(0, 50 * MS), min_size=GAP // STEP_NS + 1, max_size=300)


def wakes(seconds: float, *stalls: tuple[float, int]) -> list[int]:
    """Return the lates of a core that stands still from each of these seconds on for the given number of
    nanoseconds.
    """
    lates = []
    for due in range(0, int(seconds * 1e9), STEP_NS):
        ends = [int(at * 1e9) + stall for at, stall in stalls if int(at * 1e9) <= due < int(at * 1e9) + stall]
        lates.append(max((end - due for end in ends), default=0))
    return lates


def test_a_core_that_is_always_there_makes_none() -> None:
    assert jitter_ns(wakes(1.0), GAP, 0.99) == 0
    assert jitter_ns([7 * MS] * 1000, GAP, 1.0) == 0, "all as late as each other"


def test_a_stall_makes_two_gaps_wrong() -> None:
    stalled = wakes(1.0, (0.5, 10 * MS))  # 50 of 5,000 wakes: 100 of 4,900 gaps are wrong, by 10 ms to 0.2
    assert jitter_ns(stalled, GAP, 1.0) == 10 * MS
    assert jitter_ns(stalled, GAP, 0.99) == pytest.approx(5 * MS, abs=STEP_NS)
    assert jitter_ns(stalled, GAP, 0.975) == 0
    assert jitter_ns(stalled, GAP, 0.985) > 0


def test_stalls_one_gap_apart_hide_each_other() -> None:
    assert jitter_ns(wakes(1.0, (0.5, 10 * MS), (0.52, 10 * MS)), GAP, 0.99) == pytest.approx(5 * MS, abs=STEP_NS)


@given(LATES, st.floats(0.0, 1.0))
def test_it_is_never_more_than_the_latest_and_grows_with_the_quantile(lates: list[int], quantile: float) -> None:
    found = jitter_ns(lates, GAP, quantile)
    assert 0 <= found <= jitter_ns(lates, GAP, 1.0) <= max(lates)


@pytest.mark.parametrize(("count", "is_enough"), [(0, False), (100, False), (101, True)])
def test_wakes_that_span_no_gap_are_an_error(count: int, *, is_enough: bool) -> None:
    if is_enough:
        assert jitter_ns([0] * count, GAP, 0.99) == 0
    else:
        with pytest.raises(ValueError, match="do not span 20 ms"):
            jitter_ns([0] * count, GAP, 0.99)


def test_a_core_is_slept_on() -> None:
    core = min(os.sched_getaffinity(0))
    with Sleeper(core, 0.2) as sleeper:
        assert os.sched_getaffinity(sleeper.pid) == {core}
        lates = sleeper.lates_ns()
    assert len(lates) == 0.2e9 / STEP_NS
    assert all(late >= 0 for late in lates)


def test_a_sleeper_that_fails_is_an_error_and_no_calm_core() -> None:
    with Sleeper(min(os.sched_getaffinity(0)), 60) as sleeper:
        os.kill(sleeper.pid, 9)
        with pytest.raises(RuntimeError, match="ended with -9"):
            sleeper.lates_ns()


def test_it_prints_what_it_found() -> None:
    command = [sys.executable, "-m", "bench.load.sleeper", "0.01"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.count(",") == 49
