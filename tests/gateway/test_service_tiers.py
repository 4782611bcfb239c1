"""What is served at a service tier costs what the card says for it, on every API; what has no price is named."""

from typing import Any

import pytest

PROMPT = "one two three four"
STANDARD, FLEX, PRIORITY = (1_000_000, 2_000_000), (500_000, 1_000_000), (2_000_000, 4_000_000)  # pico-USD, in and out
TIERS = {
    "flex": {"input_text": "0.5", "output_text": "1"},
    "priority": {"input_text": "2", "output_text": "4"},
    "fast": {"input_text": "6", "output_text": "12"},
}
APIS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": PROMPT}]},
    "/v1/responses": {"input": PROMPT, "store": False},
}


def configuration(kit, upstream, tiers=TIERS, **more):
    config = kit.configuration(("m", [kit.http_target(upstream.url)]), **more)
    config["prices"][0]["service_tiers"] = tiers
    return config


def answers(upstream, tier, *, stream):
    said = {} if tier is None else {"service_tier": tier}
    if stream:
        events = [upstream.chunk("Hi", **said), upstream.chunk(finish="stop", **said), upstream.usage(10, 4)]
        return upstream.streamed(*events, upstream.event(b"[DONE]"))
    return upstream.whole(upstream.completion(prompt=10, output=4, **said))


def cost(rates, tokens_in=10, tokens_out=4):
    return tokens_in * rates[0] + tokens_out * rates[1]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", APIS)
@pytest.mark.parametrize(
    ("asked", "answered", "tier", "rates"),
    [
        (None, None, "", STANDARD),
        (None, "default", "", STANDARD),
        (None, "priority", "priority", PRIORITY),
        ("auto", "priority", "priority", PRIORITY),
        ("auto", None, "", STANDARD),
        ("flex", "flex", "flex", FLEX),
        ("flex", None, "flex", FLEX),
        ("flex", "default", "", STANDARD),
        ("priority", "default", "", STANDARD),
        ("priority", "flex", "flex", FLEX),
        ("scale", "scale", "scale", None),
        ("default", "scale", "scale", None),
    ],
)
async def test_the_tier_that_answered_sets_the_price(
    start_gateway, kit, upstream, path, stream, asked, answered, tier, rates
):
    gateway = await start_gateway(configuration(kit, upstream))
    upstream.always(answers(upstream, answered, stream=stream))
    body = {"model": "m", "stream": stream, **APIS[path]} | ({} if asked is None else {"service_tier": asked})
    answer = await gateway.ask(gateway.request(body, path=path))
    assert answer.status == 200, answer.body
    [record] = gateway.requests()
    assert record.service_tier == tier
    if rates is None:
        assert (record.cost_pico_usd, record.cost_basis, record.price_version) == (None, "unpriced", "")
    else:
        assert record.cost_pico_usd == cost(rates)
        assert record.price_version == ("t/1#" + tier if tier else "t/1")
    assert upstream.requests[0].json.get("service_tier") == asked


@pytest.mark.parametrize("reported", [None, "standard", "fast"])
async def test_anthropic_s_fast_mode_is_a_tier(start_gateway, kit, upstream, reported):
    gateway = await start_gateway(configuration(kit, upstream))
    usage = {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14, "service_tier": "standard"}
    usage |= {} if reported is None else {"speed": reported}
    reply = upstream.completion() | {"usage": usage}
    if reported is None:
        del reply["usage"]["service_tier"]
    upstream.always(upstream.whole(reply))
    body = {"model": "m", "max_tokens": 9, "speed": "fast", "messages": [{"role": "user", "content": PROMPT}]}
    answer = await gateway.ask(gateway.request(body, path="/v1/messages"))
    assert answer.status == 200, answer.body
    [record] = gateway.requests()
    assert upstream.requests[0].json["speed"] == "fast"
    assert record.service_tier == ("" if reported == "standard" else "fast")
    assert record.cost_pico_usd == cost(STANDARD if reported == "standard" else (6_000_000, 12_000_000))
    assert answer.json["usage"].get("speed") == ("fast" if reported == "fast" else None)


async def test_an_operator_s_card_may_price_every_tier(start_gateway, kit, upstream):
    gateway = await start_gateway(configuration(kit, upstream, {"*": {}, "flex": TIERS["flex"]}))
    for tier in ("scale", "flex"):
        upstream.then(answers(upstream, tier, stream=False))
        body = {"model": "m", "service_tier": tier, **APIS["/v1/chat/completions"]}
        await gateway.ask(gateway.request(body))
    assert [record.cost_pico_usd for record in gateway.requests()] == [cost(STANDARD), cost(FLEX)]
    assert [record.price_version for record in gateway.requests()] == ["t/1#scale", "t/1#flex"]


@pytest.mark.parametrize(
    ("asked", "status", "tokens_in"),
    [("flex", 200, None), (None, 200, None), ("priority", 429, None), ("auto", 429, None), ("scale", 403, None)],
)
async def test_a_hard_budget_reserves_at_the_tier_s_price(start_gateway, kit, upstream, asked, status, tokens_in):
    """One that pays for 16 tokens of output at the standard price, and not at the double."""
    budget = {"tenant": "acme", "level": "tenant", "period": "total", "amount_usd": "0.0001"}
    gateway = await start_gateway(configuration(kit, upstream, budgets=[budget]))
    upstream.always(answers(upstream, asked, stream=False))
    body = {"model": "m", "max_tokens": 40, **APIS["/v1/chat/completions"]}
    answer = await gateway.ask(gateway.request(body | ({} if asked is None else {"service_tier": asked})))
    assert answer.status == status, answer.body
    if status == 403:
        assert answer.json["error"]["code"] == "unpriced_model"
        assert "service tier 'scale'" in answer.json["error"]["message"]


@pytest.mark.parametrize(("tier", "said"), [("batch", "/v1/batches"), ("a b", "not a name"), ("x" * 41, "length")])
async def test_a_tier_that_single_requests_cannot_have_is_refused(start_gateway, kit, upstream, tier, said):
    gateway = await start_gateway(configuration(kit, upstream))
    body = {"model": "m", "service_tier": tier, **APIS["/v1/chat/completions"]}
    answer = await gateway.ask(gateway.request(body))
    assert (answer.status, upstream.requests) == (400, [])
    assert "service_tier" in answer.body.decode() and said in answer.body.decode()


@pytest.mark.parametrize("stream", [False, True])
async def test_one_kind_of_token_without_a_price_leaves_the_rest_billed(start_gateway, kit, upstream, stream):
    gateway = await start_gateway(kit.configuration(("m", [kit.http_target(upstream.url)])))
    usage: dict[str, Any] = {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14}
    usage["prompt_tokens_details"] = {"audio_tokens": 3}
    if stream:
        events = [upstream.chunk("Hi"), upstream.chunk(finish="stop"), upstream.usage(10, 4, **usage)]
        upstream.always(upstream.streamed(*events, upstream.event(b"[DONE]")))
    else:
        upstream.always(upstream.whole(upstream.completion() | {"usage": usage}))
    body = {"model": "m", "stream": stream, **APIS["/v1/chat/completions"]}
    answer = await gateway.ask(gateway.request(body))
    assert answer.status == 200
    [record] = gateway.requests()
    assert (record.cost_pico_usd, record.cost_basis) == (cost(STANDARD, 7, 4), "price_card")
    assert (record.unpriced_leaves, record.price_version) == (["input_audio"], "t/1")
    assert record.charged_pico_usd == record.cost_pico_usd


async def test_a_hard_budget_is_charged_the_part_that_has_a_price(start_gateway, kit, upstream):
    budget = {"tenant": "acme", "level": "tenant", "period": "total", "amount_usd": "1"}
    gateway = await start_gateway(kit.configuration(("m", [kit.http_target(upstream.url)]), budgets=[budget]))
    usage: dict[str, Any] = {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14}
    usage["prompt_tokens_details"] = {"audio_tokens": 3}
    upstream.always(upstream.whole(upstream.completion() | {"usage": usage}))
    await gateway.ask(gateway.request({"model": "m", **APIS["/v1/chat/completions"]}))
    [record] = gateway.requests()
    assert record.charged_pico_usd == record.cost_pico_usd == cost(STANDARD, 7, 4)
    assert record.unpriced_leaves == ["input_audio"]
