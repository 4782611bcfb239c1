"""What failed requests cost their tenants: nothing for an error status, an estimate if the server may have worked."""

import asyncio
import time

import pytest

BUDGET = {"id": "month", "tenant": "acme", "level": "tenant", "period": "month", "amount_usd": "0.05"}
MONEY = {"id": "spend", "tenant": "acme", "level": "tenant", "metric": "usd", "window": "hour", "amount_usd": "0.05"}
TOKENS = {"id": "tokens", "tenant": "acme", "level": "tenant", "metric": "tokens", "window": "hour", "amount": 50_000}
REQUESTS = {"id": "asked", "tenant": "acme", "level": "tenant", "metric": "requests", "window": "hour", "amount": 900}
RULES = {"limits": [MONEY, TOKENS, REQUESTS], "budgets": [BUDGET]}
GOOD_COST = 3 * 1_000_000 + 2 * 2_000_000  # of an answer that the upstream reports as 3 and 2 tokens
FAILURES = 50
CHAT = {"model": "mock", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2000}
# Every way to ask a chat model, and one that embeds: path, body, extra headers.
APIS = {
    "chat": ("/v1/chat/completions", CHAT),
    "chat stream": ("/v1/chat/completions", CHAT | {"stream": True}),
    "completions": ("/v1/completions", {"model": "mock", "prompt": "Hi", "max_tokens": 2000}),
    "messages": ("/v1/messages", CHAT),
    "messages stream": ("/v1/messages", CHAT | {"stream": True}),
    "responses": ("/v1/responses", {"model": "mock", "input": "Hi", "max_output_tokens": 2000}),
    "responses stream": ("/v1/responses", {"model": "mock", "input": "Hi", "stream": True}),
    "embeddings": ("/v1/embeddings", {"model": "mock", "input": "Hi"}),
}


def used(gateway):
    """What every counter of a gateway holds, by rule."""
    snapshot, counters = gateway.gateway.directory.snapshot, gateway.gateway.counters
    return {rule.id: counters.open(rule, "").state(0).used for rule in snapshot.budgets} | {
        counter.rule.id: sum(amount for _, amount in counter.charges(time.time_ns())) for counter in counters.windows()
    }


def spent(gateway):
    [budget] = gateway.gateway.directory.snapshot.budgets
    state = gateway.gateway.counters.open(budget, "").state(0)
    return state.used


def without_pauses(config):
    for pool in config["pools"]:
        pool["failures"] = {"breaker": None, "retries": 0}
    return config


@pytest.fixture(params=["memory", "redis"])
def counted(request, start_gateway):
    """Start a gateway whose counters are in memory, or leased from Redis."""
    if request.param == "memory":
        return start_gateway
    server = request.getfixturevalue("own_redis")

    async def start(config, **more):
        return await start_gateway(config, redis_url=server.url, **more)

    return start


@pytest.mark.parametrize("status", [500, 503, 429, 400, 404])
async def test_a_hard_budget_survives_an_outage(counted, upstream, kit, status, eventually):
    config = without_pauses(kit.configuration(("mock", [kit.http_target(upstream.url)]), **RULES))
    gateway = await counted(config)
    upstream.always(upstream.whole({"error": {"message": "no"}}, status))
    for number in range(FAILURES):
        answer = await gateway.chat(model="mock", stream=bool(number % 2), max_tokens=2000)
        assert answer.status == {429: 429, 400: 400}.get(status, 502)
    await eventually(lambda: spent(gateway) == 0)
    upstream.always(upstream.whole(upstream.completion()))
    for _ in range(3):
        assert (await gateway.chat(model="mock", max_tokens=2000)).status == 200
    *failed, _, _, _ = records = gateway.requests()
    assert {(one.cost_basis, one.cost_pico_usd, one.charged_pico_usd) for one in failed} == {("free", 0, 0)}
    assert {(one.count_method, one.usage.is_known, tuple(one.charge_tokens)) for one in failed} == {("none", False, ())}
    assert sum(one.charged_pico_usd for one in records) == 3 * GOOD_COST
    await eventually(lambda: spent(gateway) == 3 * GOOD_COST)


async def test_an_error_status_is_free_by_every_api(start_gateway, upstream, kit, subtests):
    gateway = await start_gateway(without_pauses(kit.configuration(("mock", [kit.http_target(upstream.url)]), **RULES)))
    upstream.always(upstream.whole({"error": {"message": "no"}}, 500))
    for name, (path, body) in APIS.items():
        with subtests.test(name):
            before = len(gateway.requests())
            answer = await gateway.ask(gateway.request(body, path=path))
            assert answer.status == 502, answer.body
            [record] = gateway.requests()[before:]
            assert (record.cost_basis, record.charged_pico_usd) == ("free", 0)
    assert used(gateway) == {"month": 0, "spend": 0, "tokens": 0, "asked": len(APIS)}


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("fault", ["silent", "closed", "left"])
async def test_a_request_that_a_server_may_have_worked_on_is_charged_an_estimate(
    counted, upstream, kit, eventually, fault, is_streamed
):
    target = kit.http_target(upstream.url, timeouts={"first_token": 0.2} if fault == "silent" else None)
    gateway = await counted(without_pauses(kit.configuration(("mock", [target]), **RULES)))
    upstream.always(upstream.CLOSE if fault == "closed" else upstream.STALL)
    if fault == "left":
        client = await gateway.connect()
        await client.send(gateway.request(CHAT | {"stream": is_streamed}))
        await eventually(lambda: upstream.requests)
        client.close()
        await eventually(gateway.requests)
    else:
        assert (await gateway.chat(model="mock", stream=is_streamed, max_tokens=2000)).status in (502, 504)
    [record] = gateway.requests()
    assert (record.count_method, record.cost_basis, record.usage.output_tokens) == ("estimate", "price_card", 0)
    assert 0 < record.cost_pico_usd == record.charged_pico_usd == record.usage.input_tokens * 1_000_000
    assert sum(record.charge_tokens) == record.usage.input_tokens
    await eventually(lambda: spent(gateway) == record.charged_pico_usd)


async def test_a_server_that_is_not_there_costs_nothing(start_gateway, kit):
    config = kit.configuration(("mock", [kit.http_target("http://127.0.0.1:1/v1")]), **RULES)
    gateway = await start_gateway(without_pauses(config))
    for path, body in APIS.values():
        assert (await gateway.ask(gateway.request(body, path=path))).status == 502
    assert {(one.cost_basis, one.cost_pico_usd, one.charged_pico_usd) for one in gateway.requests()} == {("free", 0, 0)}
    assert used(gateway) == {"month": 0, "spend": 0, "tokens": 0, "asked": len(APIS)}


async def test_a_target_may_say_that_failures_are_charged_otherwise(start_gateway, upstream, kit):
    paid, free = kit.http_target(upstream.url, "paid"), kit.http_target(upstream.url, "free")
    paid["settings"] = {"billing": {"on_error": "estimate"}}
    free["settings"] = {"billing": {"on_break": "free"}}
    gateway = await start_gateway(without_pauses(kit.configuration(("paid", [paid]), ("free", [free]), **RULES)))
    upstream.always(upstream.whole({"error": {"message": "no"}}, 500))
    await gateway.chat(model="paid")
    upstream.always(upstream.CLOSE)
    await gateway.chat(model="free")
    first, second = gateway.requests()
    assert (first.count_method, first.cost_basis) == ("estimate", "price_card") and first.charged_pico_usd > 0
    assert (second.cost_basis, second.charged_pico_usd) == ("free", 0)
    assert spent(gateway) == first.charged_pico_usd


@pytest.mark.parametrize(
    ("billing", "words"), [({"on_errors": "free"}, "on_errors"), ({"on_error": "never"}, "never"), ("free", "object")]
)
async def test_billing_that_cannot_be_used_stops_the_start_by_name(start_gateway, kit, billing, words):
    target = kit.http_target("http://127.0.0.1:1/v1")
    target["settings"] = {"billing": billing}
    with pytest.raises(Exception, match="target 'u1', billing") as refused:
        await start_gateway(kit.configuration(("mock", [target])))
    assert words in str(refused.value) and "on_timeout" in str(refused.value)


async def test_a_failed_try_before_a_good_one_is_on_no_rule(start_gateway, new_upstream, kit):
    bad, good = await new_upstream(), await new_upstream()
    bad.always(bad.CLOSE)
    good.always(good.whole(good.completion()))
    targets = [kit.http_target(bad.url, "bad", weight=1000), kit.http_target(good.url, "good")]
    gateway = await start_gateway(kit.configuration(("mock", targets), **RULES))
    assert (await gateway.chat(model="mock", max_tokens=2000)).status == 200
    [record] = gateway.requests()
    assert record.charged_pico_usd == record.cost_pico_usd == GOOD_COST == spent(gateway)
    costs = {one.replica: (one.cost_basis, one.count_method) for one in gateway.attempts()}
    assert costs["bad"] == ("price_card", "estimate")


async def test_a_route_whose_models_all_answer_with_errors_is_free(start_gateway, upstream, kit):
    upstream.always(upstream.whole({"error": {"message": "no"}}, 500))
    pools = [(name, [kit.http_target(upstream.url, f"u-{name}")]) for name in ("one", "two")]
    config = kit.configuration(*pools, **RULES)
    config["routes"] = [{"name": "both", "choose": [{"model": "one"}, {"model": "two"}]}]
    gateway = await start_gateway(without_pauses(config))
    assert (await gateway.chat(model="both", max_tokens=2000)).status == 502
    [record] = gateway.requests()
    assert (record.attempts, record.cost_basis, record.charged_pico_usd) == (2, "free", 0)
    assert used(gateway) == {"month": 0, "spend": 0, "tokens": 0, "asked": 1}


async def test_who_leaves_before_a_connection_is_there_pays_nothing(start_gateway, kit, eventually):
    accepted = asyncio.Event()

    async def shake_no_hand(reader, writer):
        accepted.set()
        await reader.read()  # until the gateway gives up
        writer.close()

    server = await asyncio.start_server(shake_no_hand, "127.0.0.1", 0)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    gateway = await start_gateway(kit.configuration(("mock", [kit.http_target(url)]), **RULES))
    client = await gateway.connect()
    await client.send(gateway.request(CHAT))
    await accepted.wait()
    client.close()
    await eventually(gateway.requests)
    [record] = gateway.requests()
    assert (record.outcome, record.cost_basis, record.charged_pico_usd) == ("cancelled", "free", 0)
    assert spent(gateway) == 0
    await gateway.gateway.stop()
    server.close()
    await server.wait_closed()
