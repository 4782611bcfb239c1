"""A model that is hosted in two regions costs what the card of the region asks whose target answered."""

import pytest

CHAT = {"model": "m", "messages": [{"role": "user", "content": "one two three four"}], "max_tokens": 40}


def configuration(kit, upstream, prices, **more):
    """Two targets that take turns, in eu and in us, a general card, and cards of the double price for regions."""
    targets = [kit.http_target(upstream.url, name, region=name) for name in ("eu", "us")]
    config = kit.configuration(("m", targets), **more)
    double = {"input_text": "2", "output_text": "4"}
    config["prices"] += [
        {"model": "m", "version": f"m/{name}", "region": name, "usd_per_mtok": double} for name in prices
    ]
    return config


async def test_the_region_that_answered_sets_the_price(start_gateway, kit, upstream):
    gateway = await start_gateway(configuration(kit, upstream, ["eu"]))
    upstream.always(upstream.whole(upstream.completion(prompt=10, output=4)))
    for _ in range(4):
        assert (await gateway.ask(gateway.request(CHAT))).status == 200
    found = {(record.region, record.price_version, record.cost_pico_usd) for record in gateway.requests()}
    assert found == {("eu", "m/eu", 36_000_000), ("us", "t/1", 18_000_000)}


@pytest.mark.parametrize(("prices", "status"), [(["asia"], 200), (["eu"], 429), (["us"], 429)])
async def test_a_hard_budget_reserves_at_the_price_of_the_most_expensive_region(
    start_gateway, kit, upstream, prices, status
):
    """It pays for 16 tokens of output at the general price, and not at the double; nobody knows yet who will answer."""
    budget = {"tenant": "acme", "level": "tenant", "period": "total", "amount_usd": "0.0001"}
    gateway = await start_gateway(configuration(kit, upstream, prices, budgets=[budget]))
    upstream.always(upstream.whole(upstream.completion(prompt=10, output=4)))
    answer = await gateway.ask(gateway.request(CHAT))
    assert answer.status == status, answer.body
