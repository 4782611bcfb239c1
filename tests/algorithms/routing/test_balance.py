"""The default policy shares requests evenly among equal replicas, and by speed among others, whole or streamed."""

import pytest

from algorithms.routing.pace import DecodePace
from tests.algorithms.routing.closed_loop import Replicas, busiest, play

MOST = 1.25  # of the mean
MS = 1_000_000


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize("workers", [4, 5, 6, 9, 24])
@pytest.mark.parametrize(
    "replicas",
    [
        Replicas((1, 1, 1), outputs=(2, 2), jitter=0.01),
        Replicas((1, 1, 1), outputs=(2, 2), jitter=0.5),
        Replicas((1, 1, 1), outputs=(1, 400)),
        Replicas((1, 1, 1), per_running=0.02),
    ],
    ids=["constant", "scattered", "lengths", "slower_under_load"],
)
@pytest.mark.parametrize("seed", [1, 2])
def test_equal_replicas_of_a_fresh_gateway_are_equally_busy(replicas, workers, is_whole, seed):
    sent, _ = play(replicas, workers, 240, is_whole=is_whole, seed=seed)
    assert busiest(sent) <= MOST


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize("workers", [4, 5, 6, 9])
def test_equal_replicas_stay_equally_busy_where_all_prompts_begin_alike(workers, is_whole):
    sent, _ = play(Replicas((1, 1, 1)), workers, 400, is_whole=is_whole, shared_blocks=40)
    assert busiest(sent) <= MOST


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize("shared_blocks", [0, 40])
@pytest.mark.parametrize("workers", [6, 9, 24])
@pytest.mark.parametrize("speeds", [(1, 1, 0.5), (0.5, 1, 1)])
def test_a_replica_that_takes_twice_as_long_is_sent_about_half(speeds, workers, shared_blocks, is_whole):
    sent, _ = play(Replicas(speeds), workers, 600, is_whole=is_whole, shared_blocks=shared_blocks)
    slow = sent[speeds.index(0.5)]
    others = (sum(sent) - slow) / 2
    assert 0.4 <= slow / others <= 0.65


@pytest.mark.parametrize("is_whole", [True, False])
def test_an_hour_of_traffic_changes_nothing_of_that(is_whole):
    sent, _ = play(Replicas((1, 1, 1)), 6, 6 * 3_600, is_whole=is_whole, idle_seconds=1.0)
    assert busiest(sent) <= 1.02


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize("workers", [1, 4, 9])
def test_what_is_cached_is_still_followed(workers, is_whole):
    """Sixty conversations: each begins at one replica, and finds what it has there."""
    replicas = Replicas((1, 1, 1), per_running=0.002)
    sent, found = play(replicas, workers, 1_500, is_whole=is_whole, shared_blocks=40, prefixes=60)
    assert found >= 0.9
    assert busiest(sent) <= 1.3


def test_a_growth_within_the_scatter_is_none():
    pace = DecodePace()
    for number in range(100):
        pace.note(1 + number % 4, 10 * MS + (number * 7919 % 11 - 5) * MS)
    assert pace.slope_ns == 0


def test_a_replica_has_the_line_of_its_pool_scaled_by_its_own_gaps():
    shared = DecodePace()
    fast, slow = DecodePace(shared), DecodePace(shared)
    for _ in range(200):
        for running in (1, 4, 8, 2):
            fast.note(running, 10 * MS + running * MS)
            slow.note(running, 30 * MS + 3 * running * MS)
    fast.refresh()
    assert slow.slope_ns / fast.slope_ns == pytest.approx(3, rel=0.2)
    assert shared.slope_ns == pytest.approx(2 * MS, rel=0.2)
