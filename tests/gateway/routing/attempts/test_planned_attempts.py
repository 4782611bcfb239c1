"""Targets that fail where requests go by a plan: left alone, tried again and called again all the same."""

import pytest


@pytest.fixture
async def pair(start_gateway, kit, new_upstream):
    """A gateway with two servers asked in turn, the first of which fails."""
    bad, good = await new_upstream(), await new_upstream()
    bad.always(bad.whole({"error": {"message": "out of memory"}}, 500))
    good.always(good.whole(good.completion()))
    targets = [kit.http_target(bad.url, "bad"), kit.http_target(good.url, "good")]
    gateway = await start_gateway(kit.configuration(("mock", targets)))
    return gateway, bad, good


async def ask(gateway, times):
    client = await gateway.connect()
    for _ in range(times):
        await client.send(gateway.request(model="mock"))
        assert (await client.answer()).status == 200
    client.close()


async def test_one_that_fails_is_left_alone_and_its_requests_are_answered(pair):
    gateway, bad, good = pair
    await ask(gateway, 30)
    assert len(bad.requests) == 5 and len(good.requests) == 30
    book = gateway.gateway.health_book
    assert book.states()["mock/bad"]["state"] == "open" and book.is_degraded
    assert sum(record.outcome == "ok" for record in gateway.requests()) == 30


async def test_one_that_is_well_again_is_found_by_traffic_that_goes_by_a_plan(pair):
    gateway, bad, good = pair
    await ask(gateway, 20)
    bad.always(bad.whole(bad.completion()))
    book = gateway.gateway.health_book
    health = book.pool("mock").targets["bad"]
    health.breaker.until_ns = 0  # its pause is over
    book.look()
    seen = len(bad.requests)
    await ask(gateway, 1)
    assert len(bad.requests) == seen + 1 and health.is_plain
    await ask(gateway, 10)
    assert len(bad.requests) == seen + 6, "it has its turns again"


async def test_good_answers_of_a_plan_earn_the_pool_its_budget(pair):
    gateway, bad, good = pair
    bad.always(bad.whole(bad.completion()))
    await ask(gateway, 12)
    assert gateway.gateway.health_book.pool("mock").budget.requests == 12
