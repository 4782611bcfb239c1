"""Smooth weighted round robin: exact over each turn, never bunched, every target offered."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.pricing.prices import PriceBook
from contracts.serving.configuration import ModelSpec, PoolSpec, Snapshot, TargetSpec
from gateway.routing.replicas.router import Router


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


@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.data())
def test_over_every_turn_each_target_that_may_be_asked_is_first_exactly_its_weight(weights, data):
    router, snapshot = Router(), snapshot_of(weights)
    within = data.draw(st.frozensets(st.sampled_from([str(index) for index in range(len(weights))]), min_size=1))
    allowed = {name: weights[int(name)] for name in within}
    for _ in range(2):
        chosen = [router.choose(snapshot.models["m"], snapshot, within) for _ in range(sum(allowed.values()))]
        assert Counter(found[0].id for found in chosen) == allowed
        assert all({target.id for target in found} == within for found in chosen)


def test_turns_among_some_do_not_keep_the_others_from_theirs():
    router, snapshot = Router(), snapshot_of([1, 1, 1, 1])
    firsts: Counter[str] = Counter()
    for _ in range(400):
        router.choose(snapshot.models["m"], snapshot, frozenset({"0", "1"}))
        firsts[router.choose(snapshot.models["m"], snapshot)[0].id] += 1
    assert firsts == {"0": 100, "1": 100, "2": 100, "3": 100}


def test_with_none_that_may_be_asked_nobody_is():
    router, snapshot = Router(), snapshot_of([1, 2])
    assert router.choose(snapshot.models["m"], snapshot, frozenset()) == []


@pytest.mark.parametrize("is_followed", [False, True])
def test_after_the_weights_change_turns_begin_anew(is_followed):
    router, before, after = Router(), snapshot_of([1000, 1]), snapshot_of([1, 1])
    for _ in range(500):
        router.choose(before.models["m"], before)
    if is_followed:
        router.sync(after)
    assert "".join(router.choose(after.models["m"], after)[0].id for _ in range(4)) == "0101"


def test_requests_of_before_a_change_do_not_take_the_turns_of_those_after_it():
    router, before, after = Router(), snapshot_of([3, 1]), snapshot_of([1, 1])
    router.sync(after)
    firsts: Counter[str] = Counter()
    for _ in range(8):
        router.choose(before.models["m"], before)
        firsts[router.choose(after.models["m"], after)[0].id] += 1
    assert firsts == {"0": 4, "1": 4}


def test_a_reload_that_leaves_the_weights_keeps_the_turns():
    router = Router()
    firsts = ""
    for _ in range(7):
        snapshot = snapshot_of([5, 1, 1])
        router.sync(snapshot)
        firsts += router.choose(snapshot.models["m"], snapshot)[0].id
    assert firsts == "0010200"
