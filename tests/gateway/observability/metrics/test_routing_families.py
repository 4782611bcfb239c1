"""Replicas on the metrics page: what they do, how long they would keep one waiting, how their caches are known."""

import random

import pytest

from algorithms.routing.policy_input import RoutingRequest
from contracts.engine.wire import KvBlocks
from contracts.pricing.prices import PriceBook
from contracts.serving.configuration import ModelSpec, PoolSpec, Snapshot, TargetSpec
from gateway.observability.metrics.exposition import render
from gateway.observability.metrics.routing_families import routing_families
from gateway.request.clock import Clock
from gateway.routing.replicas.router import Router
from tests.gateway.exposition_parser import Page

MODEL = ModelSpec("m", "p")


def text_of(router: Router) -> bytes:
    return b"".join(render(routing_families(router)))


def page_of(router: Router) -> Page:
    return Page(text_of(router))


def pool_of(policy: str) -> PoolSpec:
    return PoolSpec("p", tuple(TargetSpec(f"t{n}", "p", "engine", url=f"unix:///{n}.sock") for n in range(2)), policy)


@pytest.fixture
def router() -> Router:
    """A router at a moment that does not pass."""
    return Router(Clock(wall_ns=lambda: 0, monotonic_ns=lambda: 10**11), draw=random.Random(0).random)


def test_a_replica_shows_what_it_was_given_and_how_long_the_next_would_wait(router: Router) -> None:
    choice = router.place(MODEL, pool_of("cost"), RoutingRequest(32_000, [1, 2], 16))
    chosen, other = (spec.id for spec in choice.candidates)
    idle = page_of(router)
    assert {labels["target"] for labels in idle.labels("tollkeeper_replica_in_flight")} == {"t0", "t1"}
    assert idle.value("tollkeeper_replica_predicted_wait_seconds", pool="p", target=chosen) == 0
    fleet = router._fleets["p"]
    place = fleet.place_of(choice.candidates[0])
    assert place is not None
    replica = fleet.replicas[place]
    hold = fleet.begin(replica, RoutingRequest(32_000, [1, 2], 16), 0, 10**11)
    busy = page_of(router)
    assert busy.value("tollkeeper_replica_in_flight", pool="p", target=chosen) == 1
    assert busy.value("tollkeeper_replica_in_flight", pool="p", target=other) == 0
    wait_seconds = replica.wait_ns(10**11) / 1e9
    assert wait_seconds > 0
    assert busy.value("tollkeeper_replica_predicted_wait_seconds", pool="p", target=chosen) == pytest.approx(
        wait_seconds, abs=1e-4
    )
    assert busy.value("tollkeeper_replica_suspect", pool="p", target=chosen) == 0
    assert busy.value("tollkeeper_routing_decisions_total", pool="p") == 1
    replica.end(hold, 10**11, has_failed=True)
    failed = page_of(router)
    assert failed.value("tollkeeper_replica_suspect", pool="p", target=chosen) == 1
    assert failed.value("tollkeeper_replica_in_flight", pool="p", target=chosen) == 0


def test_a_cache_is_shown_as_mirrored_as_long_as_it_is_known_exactly(router: Router) -> None:
    router.mirror.on_kv_host("unix:///1.sock", lambda model: None)
    router.place(MODEL, pool_of("cost"), RoutingRequest(32, [1], 16))
    name = "tollkeeper_replica_cache_mirrored"
    assert [page_of(router).value(name, pool="p", target=target) for target in ("t0", "t1")] == [0, 0]
    held = KvBlocks(model="m", engine="e", sequence=0, block_size=16, block_hashes=[1, 2, 3], is_last=True)
    router.mirror.on_kv_blocks("unix:///1.sock", held)
    page = page_of(router)
    assert [page.value(name, pool="p", target=target) for target in ("t0", "t1")] == [0, 1]
    assert page.value("tollkeeper_routing_index_blocks", pool="p") == 3
    router.mirror.on_kv_lost("unix:///1.sock")
    assert page_of(router).value(name, pool="p", target="t1") == 0


def test_pools_that_are_asked_in_turn_show_nothing(router: Router) -> None:
    pool = pool_of("round_robin")
    assert len(router.choose(MODEL, Snapshot(1, {}, {"m": MODEL}, {"p": pool}, PriceBook()))) == 2
    assert text_of(router) == b""


def test_a_pool_is_shown_as_long_as_it_is_configured(router: Router) -> None:
    router.place(MODEL, pool_of("cost"), RoutingRequest(32, [1], 16))
    assert "tollkeeper_replica_in_flight" in page_of(router).metrics
    router.sync(Snapshot(2, {}, {}, {}, PriceBook()))
    assert text_of(router) == b""


async def test_the_gateway_s_page_holds_its_router_s_pools(gateway) -> None:
    serving = gateway.gateway
    serving.router.place(MODEL, pool_of("cost"), RoutingRequest(32, [1], 16))
    page = Page(await serving._metrics._endpoint._page.rendered())
    assert page.value("tollkeeper_replica_in_flight", pool="p", target="t0") == 0
