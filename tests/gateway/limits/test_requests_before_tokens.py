"""A limit on requests holds before a prompt is counted, and for what counts or reads without calling a model."""

import pytest

from tests.gateway.host_process import MODEL

PROMPT = {"model": "scripted-1", "messages": [{"role": "user", "content": "one two three"}]}


def rule(metric, amount, **more):
    return {"id": metric, "tenant": "acme", "level": "tenant", "metric": metric, "amount": amount, **more}


MINUTE = {"window": "minute"}


@pytest.fixture
def start(start_gateway, kit):
    async def start(*limits, target=None, **settings):
        pools = (("scripted-1", [target or kit.scripted()]), ("another", [kit.scripted("s2")]))
        return await start_gateway(kit.configuration(*pools, limits=list(limits)), **settings)

    return start


@pytest.fixture
def engine_target(engine_host):
    return {"name": "e1", "kind": "engine", "url": engine_host.url, "model": MODEL}


async def count(gateway, **more):
    return await gateway.ask(gateway.request({**PROMPT, **more}, path="/v1/messages/count_tokens"))


async def test_prompts_that_do_not_fit_count_as_requests(start, engine_target, eventually):
    gateway = await start(rule("requests", 2, **MINUTE), rule("tokens", 10**9, **MINUTE), target=engine_target)
    await eventually(lambda: next(iter(gateway.gateway.health()["engines"].values()))["state"] == "ready", 60.0)
    long = [{"role": "user", "content": "bridge " * 9000}]
    answers = [await gateway.chat(messages=long) for _ in range(3)]
    assert [answer.status for answer in answers] == [400, 400, 429]
    assert answers[0].error["code"] == "context_length_exceeded"
    assert "2 of 2 requests used" in answers[2].error["message"]


async def test_a_long_prompt_is_charged_one_request(start):
    gateway = await start(rule("requests", 3, **MINUTE), rule("tokens", 10**9, **MINUTE), rule("concurrency", 1))
    long = [{"role": "user", "content": "word " * 2000}]
    assert [(await gateway.chat(messages=long)).status for _ in range(4)] == [200, 200, 200, 429]


async def test_counting_tokens_is_a_request(start):
    gateway = await start(rule("requests", 3, **MINUTE))
    answers = [await count(gateway) for _ in range(2)]
    assert [(answer.status, answer.json) for answer in answers] == [(200, {"input_tokens": 3})] * 2
    assert (await gateway.chat()).status == 200
    refused = await count(gateway)
    assert refused.status == 429 and int(refused.headers["retry-after"]) > 50
    assert refused.json["error"]["type"] == "rate_limit_error"
    assert (await gateway.chat()).status == 429


async def test_counting_tokens_gives_its_slot_back(start):
    gateway = await start(rule("concurrency", 1))
    statuses = [(await count(gateway)).status for _ in range(3)]
    statuses += [(await count(gateway, model="nope")).status, (await count(gateway)).status]
    assert statuses == [200, 200, 200, 404, 200]


async def test_a_limit_on_one_model_counts_tokens_of_that_model_alone(start):
    gateway = await start(rule("requests", 1, model="another", **MINUTE))
    assert [(await count(gateway)).status for _ in range(3)] == [200, 200, 200]
    gateway = await start(rule("requests", 1, model="scripted-1", **MINUTE))
    assert [(await count(gateway)).status for _ in range(2)] == [200, 429]


async def test_reading_a_stored_response_is_a_request(start):
    gateway = await start(rule("requests", 3, **MINUTE))
    made = await gateway.ask(gateway.request({"model": "scripted-1", "input": "Hi"}, path="/v1/responses"))
    assert made.status == 200
    path = f"/v1/responses/{made.json['id']}"

    async def get(path):
        request = gateway.request(b"", path=path).replace(b"POST", b"GET", 1)
        return await gateway.ask(request)

    assert [(await get(path)).status, (await get(f"{path}/input_items")).status] == [200, 200]
    refused = await get(path)
    assert refused.status == 429 and refused.error["code"] == "rate_limit_exceeded"
