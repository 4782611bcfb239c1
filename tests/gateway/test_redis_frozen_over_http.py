"""A Redis that stands still under a gateway with a hard budget: served from the lease, then refused and not ready."""

import asyncio
import logging

import pytest

pytestmark = pytest.mark.service

BUDGET = {"id": "month", "tenant": "acme", "level": "tenant", "period": "month", "amount_usd": "1"}
LIMIT = {"id": "each-minute", "tenant": "acme", "level": "tenant", "metric": "requests", "window": "minute"}


@pytest.fixture
def start(start_gateway, upstream, kit, own_redis):
    """Start a gateway that counts in Redis and has one upstream."""

    async def start(*limits):
        upstream.always(upstream.whole(upstream.completion(prompt=5, output=100)))
        config = kit.configuration(
            ("scripted-1", [kit.http_target(upstream.url)]), limits=list(limits), budgets=[BUDGET]
        )
        return await start_gateway(config, redis_url=own_redis.url, metrics=True)

    return start


async def page(gateway, path):
    return await gateway.ask(b"GET %b HTTP/1.1\r\nhost: gateway\r\n\r\n" % path.encode())


async def ready(gateway):
    answer = await page(gateway, "/ready")
    return answer.status, answer.json


async def until_away(gateway):
    while (await ready(gateway))[1]["counters"]["reachable"]:
        await asyncio.sleep(0.05)


async def leased(gateway, own_redis):
    """Serve some requests, so that the budget is leased for the next minute, and stop Redis."""
    for _ in range(5):
        assert (await gateway.chat()).status == 200
        await asyncio.sleep(0.1)
    await asyncio.sleep(0.3)
    own_redis.hold_up()
    await until_away(gateway)


async def test_requests_are_served_from_the_lease_and_the_gateway_is_ready_and_degraded(start, own_redis, caplog):
    gateway = await start()
    await leased(gateway, own_redis)
    assert [(await gateway.chat()).status for _ in range(20)] == [200] * 20
    status, body = await ready(gateway)
    assert (status, body["status"], body["problems"]) == (200, "ready", [])
    assert "counters_away" in body["degraded"] and body["counters"]["leases_used_up"] == []
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "shared counters are unreachable"
    ]
    own_redis.go_on()


@pytest.mark.drill
async def test_once_the_lease_is_used_up_the_gateway_is_not_ready_until_redis_is_back(start, own_redis, caplog):
    gateway = await start()
    await leased(gateway, own_redis)
    served = 0
    while (answer := await gateway.chat()).status == 200:
        served += 1
    assert 5 <= served < 1000
    assert (answer.status, answer.error["code"]) == (503, "counters_unavailable")
    assert [(await gateway.chat()).status for _ in range(20)] == [503] * 20
    status, body = await ready(gateway)
    assert (status, body["status"]) == (503, "not_ready")
    assert "leases_used_up" in body["problems"] and body["counters"]["leases_used_up"] == ["month"]
    metrics = (await page(gateway, "/metrics")).body
    assert b"tollkeeper_budget_leases_used_up 1" in metrics
    assert b'tollkeeper_counters_reachable{store="redis"} 0' in metrics
    await asyncio.sleep(1.2)
    own_redis.go_on()
    while not (await ready(gateway))[1]["counters"]["reachable"]:
        await asyncio.sleep(0.05)
    assert (await gateway.chat()).status == 200
    status, body = await ready(gateway)
    assert (status, body["problems"]) == (200, [])
    assert b"tollkeeper_budget_leases_used_up 0" in (await page(gateway, "/metrics")).body
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "shared counters are unreachable",
        "leases on budgets are used up",
        "shared counters are back",
    ]
    await asyncio.sleep(0.5)
    records = gateway.requests()
    [budget] = gateway.gateway.directory.snapshot.budgets
    counter = gateway.gateway.counters.open(budget, "")
    assert counter.settled == sum(record.cost_pico_usd or 0 for record in records)


async def test_a_limit_lets_no_more_through_than_its_amount_and_no_request_waits_while_redis_stands_still(
    start, own_redis
):
    gateway = await start(LIMIT | {"amount": 40})
    await leased(gateway, own_redis)
    waits_before = (await ready(gateway))[1]["counters"]["requests_with_round_trip"]
    round_trips = (await ready(gateway))[1]["counters"]["round_trips"]
    found = [(await gateway.chat()).status for _ in range(60)]
    assert found.count(200) + 5 == 40
    assert set(found) == {200, 429}
    counters = (await ready(gateway))[1]["counters"]
    assert counters["round_trips"] == round_trips
    assert counters["requests_with_round_trip"] - waits_before <= 60  # asked for, and answered without waiting
    own_redis.go_on()
