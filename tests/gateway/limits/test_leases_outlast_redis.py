"""Budgets while Redis does not answer: a lease covers the next minute, and all leases stay below the budget."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from contracts.errors import CountersUnavailable
from contracts.rules.limits import Rule
from gateway.limits.counters.base import Counter, Shortage
from gateway.limits.counters.redis_store import RedisStore
from tests.backends.counters.redis_server import RedisServer, happens
from tests.gateway.limits.counting import budget, limit
from tests.gateway.limits.redis_gateways import Gateways, admit, now_ns, now_seconds
from tests.gateway.limits.test_redis_killed import cut_off

pytestmark = pytest.mark.service

LEASE_SECONDS = 90.0
RULE = budget(1_000_000)


@pytest.fixture
async def gateways(redis_server: RedisServer) -> AsyncIterator[Gateways]:
    opened = Gateways(redis_server, expiry_seconds=4.0, timeout_seconds=0.25)
    yield opened
    await opened.redis.go_on()
    await opened.close()


async def serve(store: RedisStore, rule: Rule, amount: int, reserved: int | None = None) -> bool:
    """Serve one request that reserves some and is charged an amount; return whether it was admitted."""
    counter: Counter = store.open(rule, "")
    taken = await admit(store, [(counter, reserved or amount)])
    if isinstance(taken, Shortage):
        return False
    await asyncio.sleep(0.05)
    counter.settle(taken[0], reserved or amount, amount, now_ns())
    return True


async def steadily(store: RedisStore, rule: Rule, seconds: float, amount: int = 50, reserved: int = 80) -> list[bool]:
    """Serve ten requests a second, one after the other; return which were admitted."""
    admitted, until = [], now_seconds() + seconds
    while now_seconds() < until:
        admitted.append(await serve(store, rule, amount, reserved))
        await asyncio.sleep(0.05)
    return admitted


@pytest.mark.parametrize("warm_seconds", [5.0, 70.0])
async def test_a_minute_without_redis_refuses_nothing_where_most_of_the_budget_is_left(
    gateways: Gateways, warm_seconds: float
):
    stores = [await gateways.start(name) for name in ("a", "b", "c")]
    assert all(await steadily(stores[0], RULE, warm_seconds))
    both = await asyncio.gather(*(steadily(store, RULE, 5.0) for store in stores[:2]))
    assert all(both[0]) and all(both[1])
    gateways.redis.is_frozen = True
    admitted = await asyncio.gather(*(steadily(store, RULE, 60.0) for store in stores[:2]))
    assert [each.count(False) for each in admitted] == [0, 0]
    assert stores[0].status()["reachable"] is False
    await gateways.redis.go_on()
    await happens(lambda: stores[0].status()["reachable"] is True, "coming back")
    await asyncio.sleep(3)
    spent = 50 * (sum(map(len, admitted)) + sum(map(len, both)))
    totals = [store.open(RULE, "").settled_by_all for store in stores[:2]]  # type: ignore[attr-defined]
    assert totals[0] == totals[1] >= spent


async def test_exactly_ten_times_the_last_minute_is_enough(gateways: Gateways):
    store = await gateways.start("a")
    rule = replace(RULE, amount=11 * 600 * 50)
    assert all(await steadily(store, rule, 61.0, reserved=50))
    gateways.redis.is_frozen = True
    assert all(await steadily(store, rule, 60.0, reserved=50))


async def test_a_budget_that_rests_keeps_room_for_some_requests(gateways: Gateways):
    store = await gateways.start("a")
    assert await serve(store, RULE, 50)
    await asyncio.sleep(300)
    gateways.redis.is_frozen = True
    await asyncio.sleep(5)
    assert [await serve(store, RULE, 50) for _ in range(4)] == [True] * 4


async def test_a_lease_ends_on_time_where_only_one_gateway_is_cut_off(gateways: Gateways):
    first, second = await gateways.start("a"), await gateways.start("b")
    rule = replace(RULE, amount=10_000)
    assert all(await steadily(first, rule, 10.0))
    counter = first.open(rule, "")
    with cut_off(first):
        cut = now_seconds()
        await happens(lambda: counter.room(now_ns()) <= 0, "the end of the lease", LEASE_SECONDS)
        assert 70 < now_seconds() - cut < 80
        left = 10_000 - counter.settled - 1  # type: ignore[attr-defined]
        assert isinstance(await admit(second, [(second.open(rule, ""), left)]), Shortage)
        await asyncio.sleep(LEASE_SECONDS - 60)
        assert not isinstance(await admit(second, [(second.open(rule, ""), left)]), Shortage)
    await happens(lambda: first.status()["reachable"] is True, "coming back")
    assert isinstance(await admit(first, [(counter, 2)]), Shortage)


async def test_nothing_is_overspent_however_long_redis_was_away(gateways: Gateways):
    """The one that comes first finds what the others had leased still theirs: they have not told what they spent."""
    first, second = await gateways.start("a"), await gateways.start("b")
    rule = replace(RULE, amount=10_000)
    warm = await steadily(first, rule, 5.0)
    gateways.redis.is_frozen = True
    admitted = await steadily(first, rule, 120.0)
    assert 0 < sum(admitted) < len(admitted), "the lease was never used up"
    first._sender._pump.cancel()  # type: ignore[union-attr]  # the other is quicker to come back
    connection, first._sender._connection = first._sender._connection, NeverAnswers()  # type: ignore[assignment]
    await gateways.redis.go_on()
    await happens(lambda: second.status()["reachable"] is True, "coming back")
    left = 10_000 - 50 * (sum(admitted) + sum(warm))
    assert isinstance(await admit(second, [(second.open(rule, ""), left + 1)]), Shortage)
    first._sender._connection = connection
    await happens(lambda: first.status()["reachable"] is True, "coming back")
    await asyncio.sleep(1.5)
    assert isinstance(await admit(second, [(second.open(rule, ""), left + 1)]), Shortage)
    await asyncio.sleep(1.5)
    assert not isinstance(await admit(second, [(second.open(rule, ""), left)]), Shortage)


async def test_a_request_that_also_waits_for_a_limit_does_not_give_up_the_lease(gateways: Gateways):
    store = await gateways.start("a")
    assert all(await steadily(store, RULE, 5.0))
    gateways.redis.is_frozen = True
    window = replace(limit(1000, "minute"), when_away="refuse")
    assert isinstance(await admit(store, [(store.open(window, ""), 10), (store.open(RULE, ""), 50)]), Shortage)
    assert all(await steadily(store, RULE, 10.0))


class NeverAnswers:
    """A way on which nothing comes back."""

    async def run_batch(self, keys: object, payload: bytes) -> bytes:
        raise CountersUnavailable("it was cut")
