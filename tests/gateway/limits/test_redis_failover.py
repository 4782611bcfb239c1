"""Limits and budgets while the primary of a Redis Cluster, or one that Sentinels watch, is killed or frozen."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from backends.counters.address import CountersAddress
from gateway.limits.counters.base import Counter, Shortage
from gateway.limits.counters.redis_store import RedisStore
from tests.backends.counters.redis_fleet import (
    RedisCluster,
    RedisFleet,
    RedisNode,
    WatchedRedis,
    folder_of_fleet,
    running,
)
from tests.backends.counters.redis_server import RedisServer, happens
from tests.gateway.limits.counting import budget, limit

pytestmark = pytest.mark.service

NAMESPACE = "failover"
AMOUNT = 600
GATEWAYS = 3


@pytest.fixture(scope="module", params=["cluster", "sentinel"])
def fleet(request: pytest.FixtureRequest, require_service) -> Iterator[RedisFleet]:
    require_service("redis-server", RedisServer.is_installed(), "apt-get install redis-server")
    with folder_of_fleet() as folder:
        made = RedisCluster(folder, NAMESPACE) if request.param == "cluster" else WatchedRedis(folder)
        with running(made):
            yield made


class Load:
    """Gateways that each take one at a time of a day's window and of a budget, as fast as 100 a second."""

    def __init__(self, address: CountersAddress, name: str) -> None:
        day = replace(limit(AMOUNT, "day", name=f"day-{name}"), when_away="refuse")
        self._rules = (day, replace(budget(AMOUNT), id=f"budget-{name}"))
        self._stores = [
            RedisStore(address, f"{name}-{number}", namespace=NAMESPACE, timeout_seconds=0.25)
            for number in range(GATEWAYS)
        ]
        self._tasks: list[asyncio.Task[None]] = []
        self.taken = 0
        self.takes_until = AMOUNT
        self.last_take = 0.0

    async def start(self) -> None:
        for store in self._stores:
            await store.start()
            self._tasks.append(asyncio.create_task(store.run()))
        self._tasks += [asyncio.create_task(self._take(store)) for store in self._stores]

    async def _take(self, store: RedisStore) -> None:
        counters: list[Counter] = [store.open(rule, "") for rule in self._rules]
        while True:
            if self.taken < self.takes_until:
                now_ns = time.time_ns()
                if all(counter.room(now_ns, "") >= 1 for counter in counters) or not isinstance(
                    await store.seek_room([(counter, 1) for counter in counters], "", now_ns), Shortage
                ):
                    for counter in counters:
                        counter.settle(counter.take(1, time.time_ns(), ""), 1, 1, time.time_ns())
                    self.taken += 1
                    self.last_take = time.monotonic()
            await asyncio.sleep(0.01)

    @property
    def is_together(self) -> bool:
        return all(store.status()["reachable"] is True and not store._link.is_away for store in self._stores)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for store in self._stores:
            await store.close()


@pytest.mark.parametrize("how", ["killed", "frozen"])
async def test_a_primary_that_is_lost_under_load_lets_nothing_exceed_its_amount(fleet: RedisFleet, how: str):
    load = Load(CountersAddress(fleet.url), how)
    await load.start()
    try:
        load.takes_until = AMOUNT // 3
        await happens(lambda: load.taken >= AMOUNT // 6, "a sixth of it being taken")
        lost = fleet.primary()
        assert lost is not None
        stop(lost, how)
        began = time.monotonic()
        await happens(lambda: is_replaced(fleet, lost), "the promotion of a replica")
        promoted = time.monotonic()
        bring_back(lost, how)
        await happens(lambda: load.is_together, "coming back")
        print(
            f"{how}: promoted after {promoted - began:.2f} s, all gateways back after {time.monotonic() - began:.2f} s"
        )
        load.takes_until = 2 * AMOUNT
        await happens(lambda: load.taken >= AMOUNT * 0.97, "the rest of it being taken", 60)
        await asyncio.sleep(1.0)  # it would go on if anything allowed it
        assert load.taken <= AMOUNT
        await happens(lambda: len(fleet.replicas()) == 2, "the return of the old primary as a replica")
    finally:
        bring_back(lost, how)
        await load.close()


async def test_nothing_is_granted_that_no_replica_confirms(fleet: RedisFleet):
    store = RedisStore(CountersAddress(fleet.url), "unconfirmed", namespace=NAMESPACE)
    primary = fleet.primary()
    assert primary is not None
    with primary.client() as client:
        facts = client.info("replication")
    ports = [value["port"] for key, value in facts.items() if key.startswith("slave") and isinstance(value, dict)]
    replicas = [node for node in fleet.nodes if node.port in ports]
    assert len(replicas) == 2
    running_store = asyncio.create_task(store.run())
    try:
        await store.start()
        counter = store.open(budget(100), "")
        for node in replicas:
            node.freeze()
        shortage = await store.seek_room([(counter, 10)], "", time.time_ns())
        assert isinstance(shortage, Shortage)
        assert counter.room(time.time_ns(), "") == 0
    finally:
        for node in replicas:
            node.go_on()
        await happens(lambda: not store._link.is_away, "coming back")
        running_store.cancel()
        await store.close()
    assert fleet.primary() is not None


def stop(node: RedisNode, how: str) -> None:
    node.kill() if how == "killed" else node.freeze()


def bring_back(node: RedisNode, how: str) -> None:
    """Start it again, or let it go on; nothing if it runs."""
    if how == "frozen":
        node.go_on()
    elif not node.is_running:
        node.start()


def is_replaced(fleet: RedisFleet, lost: RedisNode) -> bool:
    found = fleet.primary()
    return found is not None and found is not lost
