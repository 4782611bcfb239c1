"""What gateways that are killed or cut off had reserved and leased of windows: free after the expiry, used once."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from redis.asyncio import Redis

from backends.counters.amounts import joined
from backends.counters.batch_sender import Keys
from contracts.errors import CountersUnavailable
from contracts.rules.limits import MAX_AMOUNT, LimitSpec
from gateway.limits.counters.base import Counter, Mark, Shortage
from gateway.limits.counters.leased_sliding import LeasedSliding
from gateway.limits.counters.redis_store import RedisStore
from tests.backends.counters.redis_server import RedisServer, happens
from tests.gateway.limits.counting import limit
from tests.gateway.limits.leaping_loop import LeapingLoop
from tests.gateway.limits.redis_gateways import Gateways, admit, now_ns, now_seconds

pytestmark = pytest.mark.service

EXPIRY_SECONDS = 4.0
REPORTED_SECONDS = 0.6  # by then a minute's or a second's uses are reported


@pytest.fixture
async def gateways(redis_server: RedisServer) -> AsyncIterator[Gateways]:
    opened = Gateways(redis_server, expiry_seconds=EXPIRY_SECONDS, timeout_seconds=1.0)
    yield opened
    await opened.close()


def sliding(store: RedisStore, rule: LimitSpec) -> LeasedSliding:
    counter = store.open(rule, "")
    assert isinstance(counter, LeasedSliding)
    return counter


async def take(store: RedisStore, counter: Counter, amount: int) -> Mark:
    taken = await admit(store, [(counter, amount)])
    assert not isinstance(taken, Shortage), taken
    return taken[0]


async def is_refused(store: RedisStore, counter: Counter, amount: int) -> bool:
    return isinstance(await admit(store, [(counter, amount)]), Shortage)


async def window_of(server: RedisServer, counter: LeasedSliding) -> dict[bytes, bytes]:
    with LeapingLoop.running().in_real_time():
        async with Redis.from_url(server.url) as client:
            found: Any = await client.hgetall(counter.key)
    return dict(found)


async def fields_of_gateways(server: RedisServer, counter: LeasedSliding) -> list[str]:
    fields = await window_of(server, counter)
    return [name.decode() for name in fields if name[:1] == b"o" and name != b"o@data"]


async def counted(server: RedisServer, counter: LeasedSliding) -> int:
    window = await window_of(server, counter)
    return sum(int(amount) for name, amount in window.items() if name[:1] in (b"c", b"l"))


class NoWay:
    """A connection that is cut."""

    async def run_batch(self, keys: object, payload: bytes) -> bytes:
        raise CountersUnavailable("it was cut")


@contextmanager
def cut_off(store: RedisStore) -> Iterator[None]:
    """Let nothing through to Redis and back."""
    connection = store._sender._connection
    store._sender._connection = NoWay()  # type: ignore[assignment]  # all that the courier uses
    try:
        yield
    finally:
        store._sender._connection = connection


@pytest.mark.parametrize(
    "rule", [limit(1000, "minute"), limit(1000, "day"), limit(MAX_AMOUNT, "day", metric="pico_usd")], ids=str
)
@pytest.mark.parametrize("after_seconds", [0.0, REPORTED_SECONDS], ids=["at once", "reported"])
async def test_what_runs_at_a_killed_gateway_is_free_after_its_expiry(gateways: Gateways, rule, after_seconds):
    first, second = await gateways.start("a"), await gateways.start("b")
    await take(first, sliding(first, rule), rule.amount)
    await asyncio.sleep(after_seconds)
    assert await is_refused(second, sliding(second, rule), 1)
    await gateways.kill(first)
    killed = now_seconds()
    while await is_refused(second, sliding(second, rule), rule.amount):
        assert now_seconds() - killed < EXPIRY_SECONDS + 0.5
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("window", ["minute", "day"])
async def test_what_a_killed_gateway_had_settled_stays_charged_and_what_it_had_leased_does_not(
    gateways: Gateways, redis_server: RedisServer, window
):
    first, second = await gateways.start("a"), await gateways.start("b")
    rule = limit(1000, window)
    counter = sliding(first, rule)
    for _ in range(10):
        counter.settle(await take(first, counter, 20), 20, 15, now_ns())
    await asyncio.sleep(REPORTED_SECONDS)
    await take(first, counter, 5)
    assert counter._pool, "nothing is leased ahead, so nothing is shown"
    await gateways.kill(first)
    await asyncio.sleep(EXPIRY_SECONDS + 0.1)
    other = sliding(second, rule)
    assert await is_refused(second, other, 851)
    assert not await is_refused(second, other, 850)
    assert await fields_of_gateways(redis_server, other) == ["ob"]


async def test_a_charge_settled_whole_is_not_open_any_more(gateways: Gateways, redis_server: RedisServer):
    first, second = await gateways.start("a"), await gateways.start("b")
    rule = limit(100, "minute")
    counter = sliding(first, rule)
    mark = await take(first, counter, 100)
    await asyncio.sleep(REPORTED_SECONDS)
    assert await fields_of_gateways(redis_server, counter) == ["oa"]
    counter.settle(mark, 100, 100, now_ns())
    await asyncio.sleep(REPORTED_SECONDS)
    assert await fields_of_gateways(redis_server, counter) == []
    await gateways.kill(first)
    await asyncio.sleep(EXPIRY_SECONDS + 0.1)
    assert await is_refused(second, sliding(second, rule), 1)


async def test_leases_set_aside_for_a_request_are_reported_as_open(gateways: Gateways):
    store = await gateways.start("a")
    counter = sliding(store, limit(1000, "day"))
    await take(store, counter, 100)
    await happens(lambda: counter._pool >= 100, "leasing ahead")
    aside = counter.earmark(60)
    packed: list[Any] = counter.pack(Keys([]), 1000, True)
    assert [sum(joined(parts) for _, *parts in open_amounts) for open_amounts in packed[-2:]] == [100, 60]
    counter.undo()
    counter.release(aside)


async def test_what_still_runs_at_a_gateway_that_was_cut_off_counts_again_and_is_given_back_once(gateways: Gateways):
    first, second = await gateways.start("a"), await gateways.start("b")
    rule = limit(100, "minute")
    counter, other = sliding(first, rule), sliding(second, rule)
    mark = await take(first, counter, 60)
    await asyncio.sleep(REPORTED_SECONDS)
    with cut_off(first):
        await asyncio.sleep(EXPIRY_SECONDS + 0.1)
        await take(second, other, 30)
        assert await is_refused(second, other, 71)  # and keeps no leases for a second
    await happens(lambda: first.status()["reachable"] is True, "coming back")
    await asyncio.sleep(REPORTED_SECONDS)
    assert await is_refused(second, other, 11)
    await take(second, other, 10)
    counter.settle(mark, 60, 20, now_ns())
    await asyncio.sleep(REPORTED_SECONDS)
    assert await is_refused(second, other, 41)
    assert not await is_refused(second, other, 40)


async def test_leases_that_were_taken_back_are_not_given_back_as_well(gateways: Gateways, redis_server: RedisServer):
    first, second = await gateways.start("a"), await gateways.start("b")
    rule = limit(1000, "day")
    counter, other = sliding(first, rule), sliding(second, rule)
    await take(first, counter, 100)
    await happens(lambda: counter._pool >= 100, "leasing ahead")
    with cut_off(first):
        await asyncio.sleep(EXPIRY_SECONDS + 0.1)
        await take(second, other, 30)
        await happens(lambda: other._pool > 0, "leasing ahead")
        assert await counted(redis_server, other) == 30 + other._pool
    await happens(lambda: first.status()["reachable"] is True, "coming back")
    await asyncio.sleep(2 * REPORTED_SECONDS)
    assert await counted(redis_server, other) == 100 + 30 + counter._pool + other._pool


async def test_a_gateway_that_is_cut_off_stops_using_its_leases_before_others_may_have_them(gateways: Gateways):
    first, second = await gateways.start("a"), await gateways.start("b")
    rule = replace(limit(1000, "day"), when_away="refuse")
    counter, other = sliding(first, rule), sliding(second, rule)
    await take(first, counter, 100)
    await happens(lambda: counter._pool >= 100, "leasing ahead")
    with cut_off(first):
        cut = now_seconds()
        while not await is_refused(first, counter, 1):
            assert now_seconds() - cut < EXPIRY_SECONDS
            await asyncio.sleep(EXPIRY_SECONDS / 100)
            assert counter._pool > 10, "it ended for want of leases"
        await asyncio.sleep(EXPIRY_SECONDS)
        await take(second, other, 1000)
        assert await is_refused(first, counter, 1)
    await happens(lambda: first.status()["reachable"] is True, "coming back")
    assert await is_refused(first, counter, 1)


async def test_a_gateway_started_again_after_a_kill_has_nothing_reserved_of_its_former_life(gateways: Gateways):
    first = await gateways.start("a")
    rule = limit(100, "minute")
    await take(first, sliding(first, rule), 100)
    await gateways.kill(first)
    again = await gateways.start("a")
    await take(again, sliding(again, rule), 100)
    assert await is_refused(again, sliding(again, rule), 1)
