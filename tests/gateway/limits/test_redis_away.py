"""What holds while Redis is away or slow, and what is made good when it is back."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from contracts.rules.limits import Rule
from gateway.limits.counters.base import Shortage
from gateway.process.settings import GatewaySettings
from tests.backends.counters.redis_server import RedisServer, happens
from tests.gateway.limits.counting import budget, limit, slots
from tests.gateway.limits.redis_gateways import Gateways, admit, at_most, now_ns

pytestmark = pytest.mark.service

AWAY = "the shared counters are unreachable"
EXPIRY_SECONDS = 4.0


@pytest.fixture
async def server(redis_server: RedisServer) -> AsyncIterator[RedisServer]:
    """A server of the test's own, which it may kill."""
    own = RedisServer()
    own.start()
    yield own
    own.close()


@pytest.fixture
async def gateways(server: RedisServer) -> AsyncIterator[Gateways]:
    opened = Gateways(server, expiry_seconds=EXPIRY_SECONDS, timeout_seconds=1.0)
    yield opened
    await opened.close()


async def test_rules_that_refuse_say_so_and_rules_that_share_go_on_with_a_share(
    gateways: Gateways, server: RedisServer
):
    first, second = await gateways.start("a"), await gateways.start("b")
    await happens(lambda: first.status()["gateways"] == 2, "hearing of the other")
    server.kill()
    await happens(lambda: first.status()["reachable"] is False, "noticing")
    refusing, sharing = first.open(budget(1000), ""), first.open(limit(100, "minute"), "")
    slotted = first.open(slots(4), "")
    await asyncio.sleep(EXPIRY_SECONDS)  # grants have ended by now
    with at_most(0.05):
        refused = await admit(first, [(refusing, 1)])
    assert isinstance(refused, Shortage)
    assert refused.reason == AWAY
    assert not isinstance(await admit(first, [(sharing, 50), (slotted, 2)]), Shortage)
    refused = await admit(first, [(sharing, 1)])
    assert isinstance(refused, Shortage)
    assert refused.wait_seconds is not None and 59 < refused.wait_seconds < 62
    assert not refused.is_held and not refused.reason
    assert isinstance(await admit(first, [(slotted, 1)]), Shortage)
    assert not isinstance(await admit(second, [(second.open(limit(100, "minute"), ""), 50)]), Shortage)
    status = first.status()
    assert status["on_shares"] == ["lim", "slots"]
    assert status["refusing"] == ["bud"]


async def test_a_limit_may_refuse_and_a_budget_may_share(gateways: Gateways, server: RedisServer):
    store = await gateways.start("a")
    limited = store.open(replace(limit(100, "minute"), when_away="refuse"), "")
    shared = store.open(replace(budget(1000), when_away="share"), "")
    taken = await admit(store, [(shared, 400)])
    assert not isinstance(taken, Shortage)
    server.kill()
    await happens(lambda: store.status()["reachable"] is False, "noticing")
    await asyncio.sleep(EXPIRY_SECONDS)
    refused = await admit(store, [(limited, 1)])
    assert isinstance(refused, Shortage) and refused.reason == AWAY
    assert isinstance(await admit(store, [(shared, 601)]), Shortage)
    assert not isinstance(await admit(store, [(shared, 600)]), Shortage)


async def test_what_was_charged_alone_is_reported_when_redis_is_back(gateways: Gateways, server: RedisServer):
    first = await gateways.start("a")
    server.kill()
    await happens(lambda: first.status()["reachable"] is False, "noticing")
    rule = limit(100, "minute")
    assert not isinstance(await admit(first, [(first.open(rule, ""), 80)]), Shortage)
    server.start()
    await happens(lambda: first.status()["reachable"] is True, "coming back")
    second = await gateways.start("b")
    other = second.open(rule, "")
    await asyncio.sleep(2.5)  # reported, and the quiet time after lost data is over
    assert isinstance(await admit(second, [(other, 21)]), Shortage)
    assert not isinstance(await admit(second, [(other, 20)]), Shortage)


async def test_lost_data_are_told_anew_before_anybody_is_granted_anything(gateways: Gateways, server: RedisServer):
    first, second = await gateways.start("a"), await gateways.start("b")
    rules: list[Rule] = [limit(1000, "minute"), budget(1000)]
    for store, amount in ((first, 500), (second, 300)):
        for rule in rules:
            counter = store.open(rule, "")
            taken = await admit(store, [(counter, amount)])
            assert not isinstance(taken, Shortage)
            counter.settle(taken[0], amount, amount, now_ns())
    server.kill()
    await happens(lambda: first.status()["reachable"] is False, "noticing")
    server.start()
    await happens(lambda: first.status()["reachable"] is True, "coming back")
    refused = await admit(first, [(first.open(budget(1000), ""), 200)])
    assert isinstance(refused, Shortage)
    assert "lost their data" in refused.reason
    await asyncio.sleep(2.5)
    for rule in rules:
        counter = first.open(rule, "")
        assert isinstance(await admit(first, [(counter, 201)]), Shortage)
        assert not isinstance(await admit(first, [(counter, 200)]), Shortage)


async def test_no_request_waits_longer_than_the_timeout_for_a_redis_that_hangs(gateways: Gateways, server: RedisServer):
    store = await gateways.start("a", timeout_seconds=0.1)
    counter = store.open(budget(1000), "")
    server.hold_up()
    with at_most(0.2):
        refused = await admit(store, [(counter, 10)])
    assert isinstance(refused, Shortage)
    assert refused.reason
    await happens(lambda: store.status()["reachable"] is False, "noticing")
    with at_most(0.05):
        await admit(store, [(counter, 10)])
    server.go_on()
    await happens(lambda: store.status()["reachable"] is True, "coming back")
    assert not isinstance(await admit(store, [(counter, 1000)]), Shortage)


async def test_a_batch_that_was_done_and_not_answered_is_not_done_twice(gateways: Gateways, server: RedisServer):
    first, second = await gateways.start("a", timeout_seconds=0.25), await gateways.start("b")
    rule = limit(1000, "minute")
    counter = first.open(rule, "")
    for _ in range(3):
        assert not isinstance(await admit(first, [(counter, 100)]), Shortage)
        asking = asyncio.create_task(admit(first, [(counter, 50), (first.open(budget(10), ""), 1)]))
        await asyncio.sleep(0)
        server.hold_up()  # what was sent is done when it goes on, after the sender has lost patience
        taken = await asking
        if not isinstance(taken, Shortage):
            counter.settle(taken[0], 50, 0, now_ns())
        await asyncio.sleep(0.2)
        server.go_on()
        await happens(lambda: "away_seconds" not in first.status(), "coming back")
    await happens(lambda: not counter._pool and not any(counter._moved[0].values()), "giving back", 5)  # type: ignore[attr-defined]
    await asyncio.sleep(0.3)
    other = second.open(rule, "")
    assert isinstance(await admit(second, [(other, 701)]), Shortage)
    assert not isinstance(await admit(second, [(other, 700)]), Shortage)


async def test_a_gateway_cut_off_for_longer_than_its_expiry_uses_no_grant_that_others_may_have(
    gateways: Gateways, server: RedisServer
):
    store = await gateways.start("a")
    counter = store.open(slots(100), "")
    for _ in range(10):
        assert not isinstance(await admit(store, [(counter, 1)]), Shortage)
    await happens(lambda: counter.room(now_ns()) > 0, "leasing ahead")
    server.hold_up()
    await asyncio.sleep(0.85 * EXPIRY_SECONDS)
    refusing = replace(slots(100), when_away="refuse")
    assert store.open(refusing, "").room(now_ns()) <= 0
    server.go_on()
    await happens(lambda: "away_seconds" not in store.status(), "coming back")
    assert not isinstance(await admit(store, [(counter, 90)]), Shortage)
    assert isinstance(await admit(store, [(counter, 1)]), Shortage)


async def test_a_gateway_starts_while_redis_is_away(gateways: Gateways, server: RedisServer):
    server.kill()
    store = await gateways.start("a")
    assert store.status()["reachable"] is False
    assert not isinstance(await admit(store, [(store.open(limit(10, "minute"), ""), 10)]), Shortage)
    server.start()
    await happens(lambda: store.status()["reachable"] is True, "coming back")


async def test_workers_that_start_while_redis_is_away_share_among_each_other(gateways: Gateways, server: RedisServer):
    server.kill()
    admitted = 0
    for name in ("host:8080", "host:8080#2"):
        store = await gateways.start(name, expected_gateways=2)
        counter = store.open(limit(10, "minute"), "")
        for _ in range(6):
            admitted += not isinstance(await admit(store, [(counter, 1)]), Shortage)
    assert admitted == 10


@pytest.mark.parametrize("worker", [1, 2])
async def test_a_gateway_that_nobody_named_joins_under_its_address(
    gateways: Gateways, monkeypatch: pytest.MonkeyPatch, worker: int
):
    monkeypatch.setattr("platform.node", lambda: f"{'h' * 60}.local")
    settings = GatewaySettings(worker=worker, workers=2, redis_url="redis://127.0.0.1:6379")
    store = await gateways.start(settings.name)
    assert store.status()["gateway"] == settings.name
    assert store.status()["reachable"] is True


async def test_a_redis_that_is_late_for_want_of_a_core_is_no_alarm_and_a_stopped_one_is(
    gateways: Gateways, server: RedisServer, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    store = await gateways.start("a", timeout_seconds=0.25, expiry_seconds=10.0)
    counter = store.open(limit(1000, "minute"), "")

    def messages() -> list[str]:
        return [record.message for record in caplog.records if "shared counters" in record.message]

    server.hold_up()
    with at_most(0.3):
        await admit(store, [(counter, 10)])
    await happens(lambda: "away_seconds" in store.status(), "going on alone", 3)
    with at_most(0.05):
        assert not isinstance(await admit(store, [(counter, 10)]), Shortage)
    await asyncio.sleep(1.0)
    assert store.status()["reachable"] is True
    server.go_on()
    await happens(lambda: "away_seconds" not in store.status(), "answering again")
    assert messages() == ["shared counters answered late"]
    server.hold_up()
    await admit(store, [(counter, 10)])
    await happens(lambda: store.status()["reachable"] is False, "noticing", 5)
    server.go_on()
    await happens(lambda: store.status()["reachable"] is True, "coming back")
    assert messages()[1:] == ["shared counters are unreachable", "shared counters are back"]
