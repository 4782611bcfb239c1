"""A pool that is read again is the same pool: only what changed of it is begun with, and nothing goes back."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from algorithms.routing.policy_input import RoutingRequest
from contracts.api.generation import Result
from contracts.engine.wire import KvBlocks
from contracts.pricing.prices import PriceBook
from contracts.rules.limits import QueueSpec
from contracts.serving.configuration import ModelSpec, PoolSpec, Snapshot, TargetSpec
from gateway.replies.progress import Progress
from gateway.request.clock import Clock
from gateway.routing.replicas.cache_mirror import CacheMirror
from gateway.routing.replicas.choice import Choice
from gateway.routing.replicas.router import Router

SECOND = 1_000_000_000
MODEL = ModelSpec("m", "p")
ASK = RoutingRequest(64, [5, 6, 7, 8], 16)


def pool_of(count: int = 2, **more: Any) -> PoolSpec:
    targets = tuple(TargetSpec(f"t{place}", "p", "engine", url=f"unix:///{place}.sock") for place in range(count))
    return PoolSpec("p", targets, **{"policy": "cost", **more})


def snapshot_of(pool: PoolSpec | None) -> Snapshot:
    pools = {} if pool is None else {"p": pool}
    return Snapshot(1, {}, {"m": MODEL} if pools else {}, pools, PriceBook())


class Scene:
    """A router whose hosts tell at once what they hold, and count how often they are asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.mirror = CacheMirror()
        self.router = Router(Clock(lambda: 9 * SECOND, lambda: 9 * SECOND), mirror=self.mirror)
        for place in range(4):
            url = f"unix:///{place}.sock"
            self.mirror.on_kv_host(url, partial(self.ask, url))

    def ask(self, url: str, model: str) -> None:
        self.asked.append(url[8:9])
        self.mirror.on_kv_blocks(url, KvBlocks(model, "e", 0, 16, [5, 6], True))

    def place(self, pool: PoolSpec, within: frozenset[str] | None = None) -> Choice:
        return self.router.place(MODEL, pool, ASK, within)

    @property
    def replicas(self) -> Any:
        pools: Any = self.router.status()["pools"]
        return pools["p"]["replicas"] if "p" in pools else None

    @property
    def running(self) -> dict[str, int]:
        return {name: one["running"] for name, one in self.replicas.items()}


@pytest.mark.parametrize("is_followed", [False, True])
def test_an_equal_pool_asks_no_host_again(is_followed):
    scene, old, new = Scene(), pool_of(), pool_of()
    for number in range(10):
        scene.place((old, new)[number % 2])
        if is_followed:
            scene.router.sync(snapshot_of(pool_of()))
    assert scene.asked == ["0", "1"]
    assert {one["cache"] for one in scene.replicas.values()} == {"exact"}


def test_a_change_that_leaves_where_it_is_served_asks_no_host_again():
    scene = Scene()
    scene.place(pool_of())
    for pool in (pool_of(queue=QueueSpec(max_in_flight=3)), pool_of(policy="least_outstanding")):
        scene.router.sync(snapshot_of(pool))
        scene.place(pool)
    assert scene.asked == ["0", "1"]


def test_of_a_pool_that_grows_only_the_new_host_is_asked():
    scene = Scene()
    scene.place(pool_of(2))
    scene.router.sync(snapshot_of(pool_of(3)))
    assert scene.asked == ["0", "1", "2"]


def test_requests_of_before_a_change_do_not_bring_it_back():
    scene, old, new = Scene(), pool_of(2), pool_of(3)
    scene.place(old)
    scene.router.sync(snapshot_of(new))
    for _ in range(5):
        assert [spec for spec in old.targets if spec not in scene.place(old).candidates] == []
        assert len(scene.place(old).candidates) == 2
        assert len(scene.place(new).candidates) == 3
    assert scene.asked == ["0", "1", "2"] and list(scene.replicas) == ["t0", "t1", "t2"]


def test_a_request_of_before_a_change_sees_targets_as_it_knew_them():
    scene, old = Scene(), pool_of(2)
    moved = replace(old.targets[1], url="unix:///3.sock", region="elsewhere")
    scene.place(old)
    scene.router.sync(snapshot_of(replace(old, targets=(old.targets[0], moved))))
    choice = scene.place(old, frozenset({"t1"}))
    assert choice.candidates == [old.targets[1]]
    assert choice.begin(choice.candidates[0], Progress()) is None  # what it does there is not the moved one's work


def test_a_pool_that_is_gone_or_asked_in_turn_now_is_not_followed_for_requests_of_before():
    for newer in (None, pool_of(policy="round_robin")):
        scene, old = Scene(), pool_of(2)
        scene.place(old)
        scene.router.sync(snapshot_of(newer))
        choice = scene.place(old)
        assert sorted(spec.id for spec in choice.candidates) == ["t0", "t1"]
        assert choice.begin(choice.candidates[0], Progress()) is None
        assert scene.replicas is None and scene.mirror.status() == {}


def test_another_policy_keeps_what_is_under_way():
    scene, old = Scene(), pool_of()
    choice = scene.place(old)
    placed = choice.begin(old.targets[0], Progress())
    assert placed is not None
    for policy in ("least_outstanding", "peak_ewma", "cost"):
        newer = pool_of(policy=policy)
        scene.router.sync(snapshot_of(newer))
        choice = scene.router.place(MODEL, newer, RoutingRequest(64))  # of which nobody has anything
        assert [spec.id for spec in choice.candidates] == ["t1", "t0"]
        assert scene.running == {"t0": 1, "t1": 0}
    placed.end(Result(), None)
    assert scene.running == {"t0": 0, "t1": 0}
