"""Kept answers over HTTP: the same request is answered again without its model, to the same tenant alone."""

import asyncio
import json

import openai
import pytest

OTHER_KEY = "tk-" + "B" * 43


def configuration(kit, targets, cache=None, **more):
    config = kit.configuration(("m", targets), **more)
    config["models"][0]["cache"] = cache or {"mode": "exact"}
    config["keys"].append({"key": OTHER_KEY, "tenant": "globex", "id": "key_2"})
    return config


@pytest.fixture
def start_with(start_gateway, kit, upstream):
    async def start(cache=None, settings=None, **more):
        upstream.always(upstream.whole(upstream.completion(prompt=1000, output=500)))
        config = configuration(kit, [kit.http_target(upstream.url)], cache, **more)
        return await start_gateway(config, **(settings or {}))

    return start


def cache_of(gateway):
    return gateway.gateway.health()["answer_cache"]


async def test_the_same_request_is_answered_again_without_its_model(start_with, upstream):
    gateway = await start_with()
    first, again = await gateway.chat(model="m"), await gateway.chat(model="m")
    assert (first.status, again.status, again.body) == (200, 200, first.body)
    assert (first.headers["x-cache"], again.headers["x-cache"], again.headers["age"]) == ("miss", "hit", "0")
    assert again.headers["x-tollkeeper-model"] == first.headers["x-tollkeeper-model"] == "served-1"
    assert again.headers["x-request-id"] != first.headers["x-request-id"]
    assert len(upstream.requests) == 1
    made, kept = gateway.requests()
    assert (made.cache, made.cost_pico_usd, made.usage.input_tokens) == ("miss", 2000 * 10**6, 1000)
    assert (kept.cache, kept.cost_pico_usd, kept.charged_pico_usd, kept.attempts) == ("hit", 0, 0, 0)
    assert (kept.usage.input_tokens, kept.usage.output_tokens, kept.count_method) == (0, 0, "exact")
    assert (kept.outcome, kept.status, kept.model, kept.finish_reason) == ("ok", 200, "m", "stop")
    assert kept.price_version == "t/1#hit" and kept.response_bytes == made.response_bytes == len(first.body)
    assert cache_of(gateway)["saved_pico_usd"] == 2000 * 10**6


async def test_spelling_is_no_difference_and_what_is_asked_for_is(start_with, upstream):
    gateway = await start_with()
    bodies = [
        b'{"model":"m","messages":[{"role":"user","content":"caf\\u00e9"}],"temperature":null}',
        '{ "messages" : [ {"content":"café", "role":"user"} ], "model": "m", "user": "u7" }'.encode(),
        b'{"model":"m","messages":[{"role":"user","content":"caf\\u00e9"}],"temperature":0}',
        b'{"model":"m","messages":[{"role":"user","content":"caf\\u00e9 "}]}',
        b'{"model":"m","messages":[{"role":"system","content":"x"},{"role":"user","content":"caf\\u00e9"}]}',
        b'{"model":"m","messages":[{"role":"user","content":"caf\\u00e9"}],"an_unknown_field":1}',
    ]
    said = [(await gateway.chat(body)).headers["x-cache"] for body in bodies]
    assert said == ["miss", "hit", "miss", "miss", "miss", "miss"] and len(upstream.requests) == 5


async def test_identical_prompts_of_two_tenants_share_nothing(start_with, upstream):
    gateway = await start_with()
    await gateway.chat(model="m")
    other = {"Authorization": f"Bearer {OTHER_KEY}"}
    assert (await gateway.chat(headers=other, model="m")).headers["x-cache"] == "miss"
    assert (await gateway.chat(headers=other, model="m")).headers["x-cache"] == "hit"
    assert [record.who.tenant for record in gateway.requests()] == ["acme", "globex", "globex"]
    assert len(upstream.requests) == 2


async def test_a_model_that_keeps_nothing_says_nothing_of_a_cache(start_gateway, kit, upstream):
    upstream.always(upstream.whole(upstream.completion()))
    gateway = await start_gateway(kit.configuration(("m", [kit.http_target(upstream.url)])))
    for _ in range(2):
        assert "x-cache" not in (await gateway.chat(model="m")).headers
    assert len(upstream.requests) == 2 and {record.cache for record in gateway.requests()} == {""}


async def test_a_stream_is_given_again_as_the_stream_it_was(start_with, upstream):
    gateway = await start_with()
    events = [upstream.chunk("one "), upstream.chunk("two"), upstream.chunk(finish="stop"), upstream.usage(3, 2)]
    upstream.always(upstream.streamed(*events, upstream.event(b"[DONE]")))
    first, again = [await gateway.chat(model="m", stream=True) for _ in range(2)]
    assert first.headers["x-cache"] == "miss" and again.headers["x-cache"] == "hit"
    assert again.headers["content-type"] == first.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert again.events == first.events and again.events[-1] == b"data: [DONE]" and len(again.events) == 4
    whole = await gateway.chat(model="m", stream=False)  # in another shape: asked for itself
    assert len(upstream.requests) == 2 and whole.status != 200 or whole.headers["x-cache"] == "miss"
    client = gateway.sdk()
    stream = await client.chat.completions.create(**{**gateway_body(), "stream": True})
    text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    assert text == "one two" and isinstance(client, openai.AsyncOpenAI)
    assert [record.cache for record in gateway.requests() if record.stream] == ["miss", "hit", "hit"]


def gateway_body():
    return {"model": "m", "messages": [{"role": "user", "content": "one two three"}]}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/messages", {"max_tokens": 5, "messages": [{"role": "user", "content": "a"}]}),
        ("/v1/messages", {"max_tokens": 5, "messages": [{"role": "user", "content": "a"}], "stream": True}),
    ],
)
async def test_other_apis_answers_are_kept_in_their_own_words(start_gateway, kit, path, body):
    gateway = await start_gateway(configuration(kit, [kit.scripted(reply="one two")]))
    request = kit.request({"model": "m", **body}, path=path)
    first, again = await gateway.ask(request), await gateway.ask(request)
    assert (first.status, first.headers["x-cache"], again.headers["x-cache"]) == (200, "miss", "hit"), first.body
    assert again.body == first.body


async def test_embeddings_are_kept_too(start_with, upstream, kit):
    gateway = await start_with()
    upstream.always(upstream.whole({"data": [{"index": 0, "embedding": [0.5]}], "usage": {"prompt_tokens": 1}}))
    said = [await gateway.ask(kit.request({"model": "m", "input": "a"}, path="/v1/embeddings")) for _ in range(2)]
    assert [one.headers["x-cache"] for one in said] == ["miss", "hit"] and said[0].body == said[1].body


@pytest.mark.parametrize(
    ("header", "first", "second", "third"),
    [
        ("no-store", "hit", "bypass", "hit"),
        ("no-cache", "hit", "miss", "hit"),
        ("max-age=0", "hit", "miss", "hit"),
        ("max-age=3600", "hit", "hit", "hit"),
        ("x-unheard-of, MAX-AGE = 60", "hit", "hit", "hit"),
    ],
)
async def test_a_caller_says_what_it_wants_of_the_cache(start_with, header, first, second, third):
    gateway = await start_with()
    await gateway.chat(model="m")
    said = [
        (await gateway.chat(headers=headers, model="m")).headers["x-cache"]
        for headers in ({}, {"Cache-Control": header}, {})
    ]
    assert said == [first, second, third]


async def test_what_a_caller_wants_unstored_is_not_stored(start_with):
    gateway = await start_with()
    await gateway.chat(headers={"Cache-Control": "no-store"}, model="m")
    assert (await gateway.chat(model="m")).headers["x-cache"] == "miss"
    assert cache_of(gateway)["bypasses"] == 1


@pytest.mark.parametrize(("price", "paid"), [("0", 0), ("0.25", 500 * 10**6), ("1", 2000 * 10**6)])
async def test_a_hit_costs_the_share_that_the_policy_says(start_with, price, paid):
    gateway = await start_with({"hit_price": price})
    for _ in range(2):
        await gateway.chat(model="m")
    record = gateway.requests()[1]
    assert (record.cache, record.cost_pico_usd, record.charged_pico_usd) == ("hit", paid, paid)
    assert cache_of(gateway)["saved_pico_usd"] == 2000 * 10**6 - paid


async def test_a_hit_counts_as_a_request_and_as_no_tokens(start_with):
    limits = [
        {"tenant": "acme", "level": "tenant", "metric": "requests", "window": "minute", "amount": 3, "id": "r"},
        {"tenant": "acme", "level": "tenant", "metric": "tokens", "window": "minute", "amount": 2000, "id": "t"},
    ]
    gateway = await start_with(limits=limits)
    answers = [await gateway.chat(model="m") for _ in range(4)]
    assert [answer.status for answer in answers] == [200, 200, 200, 429], answers[1].body
    left = [answer.headers["x-ratelimit-remaining-tokens"] for answer in answers[1:3]]
    assert left == ["500", "500"] and answers[2].headers["x-ratelimit-remaining-requests"] == "0"
    assert [record.cache for record in gateway.requests()] == ["miss", "hit", "hit", ""]


async def test_a_hit_is_paid_from_the_budget_and_refused_where_that_is_spent(start_with, upstream):
    budgets = [{"tenant": "acme", "level": "tenant", "period": "month", "amount_usd": "0.003", "id": "b"}]
    gateway = await start_with({"hit_price": "0.5"}, budgets=budgets)
    answers = [await gateway.chat(model="m", max_tokens=500) for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 429]
    assert answers[2].error["code"] == "insufficient_quota" and len(upstream.requests) == 1
    assert [record.charged_pico_usd for record in gateway.requests()[:2]] == [2000 * 10**6, 1000 * 10**6]


async def test_who_may_not_use_the_model_gets_no_hit(start_with):
    gateway = await start_with()
    config = json.loads(json.dumps(cache_of(gateway)))
    await gateway.chat(model="m")
    assert (await gateway.chat(headers={"Authorization": "Bearer tk-" + "C" * 43}, model="m")).status == 401
    assert cache_of(gateway)["hits"] == config["hits"] == 0


async def test_equal_requests_at_once_are_one_request_to_the_model(start_with, upstream):
    gateway = await start_with()
    upstream.always(0.05, upstream.whole(upstream.completion()))
    answers = await asyncio.gather(*(gateway.chat(model="m") for _ in range(8)))
    assert len(upstream.requests) == 1 and {answer.body for answer in answers} == {answers[0].body}
    assert sorted(answer.headers["x-cache"] for answer in answers) == ["hit"] * 7 + ["miss"]
    assert cache_of(gateway)["waits"] == 7 and cache_of(gateway)["under_way"] == 0


async def test_who_waited_asks_for_itself_where_the_other_failed(start_with, upstream):
    gateway = await start_with()
    upstream.then(0.05, upstream.whole({"error": {"message": "no"}}, status=400))
    answers = await asyncio.gather(*(gateway.chat(model="m") for _ in range(3)))
    assert sorted(answer.status for answer in answers) == [200, 200, 400] and len(upstream.requests) == 3


async def test_who_waited_goes_on_where_the_others_client_has_left(start_with, upstream, eventually):
    gateway = await start_with()
    upstream.then(upstream.STALL)
    leaving = await gateway.connect()
    await leaving.send(gateway.request(model="m"))
    await eventually(lambda: len(upstream.requests) == 1)
    staying = [asyncio.ensure_future(gateway.chat(model="m")) for _ in range(3)]
    await eventually(lambda: cache_of(gateway)["waits"] == 3)
    leaving.close()
    answers = await asyncio.gather(*staying)
    assert [answer.status for answer in answers] == [200] * 3 and len(upstream.requests) == 2
    assert sorted(answer.headers["x-cache"] for answer in answers) == ["hit", "hit", "miss"]


async def test_equal_requests_of_two_tenants_at_once_are_two(start_with, upstream):
    gateway = await start_with()
    upstream.always(0.05, upstream.whole(upstream.completion()))
    other = {"Authorization": f"Bearer {OTHER_KEY}"}
    await asyncio.gather(gateway.chat(model="m"), gateway.chat(headers=other, model="m"))
    assert len(upstream.requests) == 2 and cache_of(gateway)["waits"] == 0


async def test_what_no_longer_parses_is_a_miss_and_counted(start_with, upstream):
    gateway = await start_with()
    await gateway.chat(model="m")
    store = gateway.gateway._answers._store
    entry = next(iter(store._partitions["acme"].entries.values()))
    entry.packed = entry.packed[:-3]
    assert (await gateway.chat(model="m")).headers["x-cache"] == "miss"
    assert (await gateway.chat(model="m")).headers["x-cache"] == "hit"
    assert cache_of(gateway)["unreadable"] == 1 and len(upstream.requests) == 2


@pytest.mark.parametrize(
    "reply",
    [
        {"status": 500, "body": {"error": {"message": "no"}}},
        {
            "status": 200,
            "body": b'{"choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "content_filter"}]}',
        },
    ],
)
async def test_what_failed_or_was_filtered_is_not_kept(start_with, upstream, reply):
    gateway = await start_with()
    upstream.always(upstream.whole(reply["body"], status=reply["status"]))
    for _ in range(2):
        assert (await gateway.chat(model="m")).headers.get("x-cache") != "hit"


async def test_an_answer_above_the_bound_is_given_and_not_kept(start_with, upstream):
    gateway = await start_with({"max_answer_bytes": 100})
    for _ in range(2):
        answer = await gateway.chat(model="m")
        assert (answer.status, answer.headers["x-cache"]) == (200, "miss")
    assert cache_of(gateway)["not_kept"] == 2 and cache_of(gateway)["bytes"] == 0


async def test_a_body_with_a_name_twice_gives_no_answer_to_others(start_with, upstream):
    gateway = await start_with()
    twice = b'{"model":"m","messages":[{"role":"user","content":"evil"}],"messages":[{"role":"user","content":"a"}]}'
    assert (await gateway.chat(twice)).headers["x-cache"] == "miss"
    assert (await gateway.chat(model="m", messages=[{"role": "user", "content": "a"}])).headers["x-cache"] == "miss"


async def test_an_answer_that_a_budget_has_cut_is_not_kept(start_gateway, kit):
    budgets = [{"tenant": "acme", "level": "tenant", "period": "month", "amount_usd": "0.000100", "id": "b"}]
    target = kit.scripted(tokens=200)
    gateway = await start_gateway(configuration(kit, [target], budgets=budgets))
    cut = await gateway.chat(model="m")
    assert cut.status == 200 and cut.json["choices"][0]["finish_reason"] == "length", cut.body
    assert cache_of(gateway)["kept"] == 0


@pytest.mark.parametrize(
    ("share", "said"),
    [
        ("tenant", ["miss", "hit", "hit", "hit"]),
        ("key", ["miss", "hit", "hit", "miss"]),
        ("user", ["bypass", "miss", "miss", "bypass"]),
    ],
)
async def test_answers_go_as_far_within_a_tenant_as_the_policy_says(start_gateway, kit, share, said):
    config = configuration(kit, [kit.scripted()], {"share": share})
    config["keys"].append({"key": "tk-" + "D" * 43, "tenant": "acme", "id": "key_3"})
    gateway = await start_gateway(config)
    asked = [({}, {}), ({"user": "u1"}, {}), ({"user": "u2"}, {}), ({}, {"Authorization": "Bearer tk-" + "D" * 43})]
    found = [(await gateway.chat(headers=headers, model="m", **fields)).headers["x-cache"] for fields, headers in asked]
    assert found == said


async def test_another_model_behind_the_name_is_another_request(start_gateway, kit, upstream, eventually):
    upstream.always(upstream.whole(upstream.completion()))
    config = configuration(kit, [kit.http_target(upstream.url, model="one")])
    gateway = await start_gateway(config)
    assert (await gateway.chat(model="m")).headers["x-cache"] == "miss"
    settings = gateway.gateway._settings.gateway_config
    import yaml

    config["pools"][0]["targets"][0]["model"] = "two"
    settings.write_text(yaml.safe_dump(config))
    gateway.gateway.reload()
    await eventually(lambda: gateway.gateway.directory.snapshot.revision > 0)
    assert (await gateway.chat(model="m")).headers["x-cache"] == "miss"
    assert [request.json["model"] for request in upstream.requests] == ["one", "two"]
