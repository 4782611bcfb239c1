"""Redis' clock is set while gateways count: no window ends early, and none stays closed for longer."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from contracts.rules.limits import Rule
from gateway.limits.counters.base import Shortage
from tests.backends.counters.redis_server import RedisServer
from tests.gateway.limits.counting import budget, limit, slots
from tests.gateway.limits.redis_gateways import Gateways, admit, now_ns, now_seconds

pytestmark = pytest.mark.service


@pytest.fixture
async def gateways(redis_server: RedisServer) -> AsyncIterator[Gateways]:
    opened = Gateways(redis_server, timeout_seconds=1.0)
    yield opened
    await opened.redis.go_on()
    await opened.close()


@pytest.mark.parametrize("set_seconds", [7200, 61, 3, 0.6, -0.6, -3, -61, -3600])
async def test_a_window_lasts_as_long_as_it_should_whatever_clock_is_set(gateways: Gateways, set_seconds: float):
    first, second = await gateways.start("a"), await gateways.start("b")
    rule = limit(100, "minute")
    assert not isinstance(await admit(first, [(first.open(rule, ""), 100)]), Shortage)
    began = now_seconds()
    for moved in (set_seconds, 0.0, -set_seconds, 2 * set_seconds):
        gateways.redis.set_seconds = moved
        for store in (second, first):
            assert isinstance(await admit(store, [(store.open(rule, ""), 1)]), Shortage)
        await asyncio.sleep(3)
    late = await gateways.start("c")
    while isinstance(await admit(late, [(late.open(rule, ""), 100)]), Shortage):
        await asyncio.sleep(0.5)
    assert 60 <= now_seconds() - began < 66


async def test_slots_and_budgets_are_not_free_because_redis_clock_is_set(gateways: Gateways):
    first, second = await gateways.start("a"), await gateways.start("b")
    rules: list[Rule] = [slots(5), budget(1000)]
    assert not isinstance(await admit(first, [(first.open(rule, ""), rule.amount) for rule in rules]), Shortage)
    for moved in (3600.0, -3600.0, 86_400.0):
        gateways.redis.set_seconds = moved
        for rule in rules:
            assert isinstance(await admit(second, [(second.open(rule, ""), 1)]), Shortage)
        await asyncio.sleep(1)


async def test_a_gateway_that_joins_first_after_the_clock_was_set_waits_for_those_who_know(gateways: Gateways):
    first = await gateways.start("a")
    rule = limit(100, "minute")
    assert not isinstance(await admit(first, [(first.open(rule, ""), 100)]), Shortage)
    await asyncio.sleep(1)
    gateways.redis.set_seconds = 7200.0
    second = await gateways.start("b")
    assert isinstance(await admit(second, [(second.open(rule, ""), 1)]), Shortage)


async def test_a_window_goes_on_while_redis_stands_still(gateways: Gateways):
    first, second = await gateways.start("a"), await gateways.start("b")
    rule = limit(100, "minute")
    assert not isinstance(await admit(first, [(first.open(rule, ""), 100)]), Shortage)
    await asyncio.sleep(1)
    gateways.redis.is_frozen = True
    await asyncio.sleep(62)
    await gateways.redis.go_on()
    await asyncio.sleep(3)
    assert not isinstance(await admit(second, [(second.open(rule, ""), 100)]), Shortage)


async def test_a_gateway_that_starts_alone_after_all_were_killed_takes_redis_time_as_it_is(gateways: Gateways):
    first = await gateways.start("a")
    rule = limit(100, "minute")
    taken = await admit(first, [(first.open(rule, ""), 100)])
    assert not isinstance(taken, Shortage)
    first.open(rule, "").settle(taken[0], 100, 100, now_ns())
    await asyncio.sleep(1)
    await gateways.kill(first)
    await asyncio.sleep(62)
    second = await gateways.start("b")
    assert not isinstance(await admit(second, [(second.open(rule, ""), 100)]), Shortage)
