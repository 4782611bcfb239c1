"""Smooth weighted round robin: exact over each turn, never bunched, every target offered."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from contracts.configuration import ModelSpec, PoolSpec, Snapshot, TargetSpec
from contracts.prices import PriceBook
from gateway.routing.router import Router


def snapshot_of(weights: list[int]) -> Snapshot:
    targets = tuple(TargetSpec(str(index), "p", "scripted", weight=weight) for index, weight in enumerate(weights))
    return Snapshot(1, {}, {"m": ModelSpec("m", "p")}, {"p": PoolSpec("p", targets)}, PriceBook())


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 3))
def test_over_every_turn_each_target_is_first_exactly_its_weight(weights, turns):
    router, snapshot = Router(), snapshot_of(weights)
    for _ in range(turns):
        firsts = Counter(router.choose(snapshot.models["m"], snapshot)[0].id for _ in range(sum(weights)))
        assert firsts == {str(index): weight for index, weight in enumerate(weights)}


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_every_target_is_offered_once(weights):
    router, snapshot = Router(), snapshot_of(weights)
    for _ in range(10):
        chosen = router.choose(snapshot.models["m"], snapshot)
        assert sorted(target.id for target in chosen) == [str(index) for index in range(len(weights))]


def test_a_heavy_target_is_not_bunched():
    router, snapshot = Router(), snapshot_of([5, 1, 1])
    firsts = "".join(router.choose(snapshot.models["m"], snapshot)[0].id for _ in range(7))
    assert firsts == "0010200"  # nginx's own example
