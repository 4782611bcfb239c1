"""A route's sampling over HTTP: set where the caller is silent, pinned against what it says, told in a header."""

import pytest

from contracts.errors import ConfigurationError
from tests.backends.llm.engine_fake import FakeHost, builtin_hello

SET = "x-tollkeeper-set"


def configuration(kit, targets, defaults=None, pinned=None, **model):
    config = kit.configuration(("m", targets))
    config["models"] = [{"name": "m", "pool": "m", "defaults": defaults or {}, "pinned": pinned or {}, **model}]
    return config


@pytest.fixture
def start_with(start_gateway, kit, upstream):
    upstream.always(upstream.whole(upstream.completion()))

    async def start(defaults=None, pinned=None, settings=None, **target):
        made = kit.http_target(upstream.url, **target)
        made["settings"] |= settings or {}
        return await start_gateway(configuration(kit, [made], defaults, pinned))

    return start


async def test_a_server_is_told_what_the_route_says_where_the_caller_says_nothing(start_with, upstream):
    gateway = await start_with({"temperature": 0.2, "max_tokens": 99, "seed": 4}, {"top_p": 0.5})
    answer = await gateway.chat(model="m", seed=5)
    sent = upstream.requests[0].json
    assert (sent["temperature"], sent["max_tokens"], sent["seed"], sent["top_p"]) == (0.2, 99, 5, 0.5)
    assert answer.headers[SET] == "top_p, temperature, max_tokens"


async def test_a_limit_goes_by_the_servers_name_for_it_and_below_the_callers_other_caps(start_with, upstream):
    gateway = await start_with({"max_tokens": 99}, settings={"output_limit_field": "max_completion_tokens"})
    await gateway.chat(model="m")
    assert "max_tokens" not in upstream.requests[0].json
    assert upstream.requests[0].json["max_completion_tokens"] == 99


async def test_what_the_caller_says_itself_goes_out_byte_for_byte(start_with, upstream):
    gateway = await start_with({"temperature": 0.2}, {"top_p": 0.5})
    body = b'{"model": "m","top_p":0.50, "temperature": 1e0, "messages":[{"role":"user","content":"a"}]}'
    answer = await gateway.chat(body)
    assert (answer.status, upstream.requests[0].body) == (200, body) and SET not in answer.headers


async def test_what_contradicts_a_pinned_value_is_refused_and_not_sent(start_with, upstream):
    gateway = await start_with(pinned={"temperature": 0})
    answer = await gateway.chat(model="m", temperature=0.7)
    assert (answer.status, answer.error["param"], answer.error["code"]) == (400, "temperature", "unsupported_value")
    assert not upstream.requests and gateway.requests()[0].outcome == "rejected"


async def test_a_default_effort_is_said_and_a_pinned_one_in_every_place(start_with, upstream):
    gateway = await start_with({"reasoning_effort": "low"})
    await gateway.chat(model="m")
    await gateway.chat(model="m", reasoning={"effort": "high"})  # OpenRouter's
    assert [one.json.get("reasoning_effort") for one in upstream.requests] == ["low", None]
    pinned = await start_with(pinned={"reasoning_effort": "low"})
    await pinned.chat(model="m", reasoning={"effort": "high"}, chat_template_kwargs={"reasoning_effort": "extreme"})
    sent = upstream.requests[-1].json
    assert (sent["reasoning"], sent["chat_template_kwargs"]) == ({"effort": "low"}, {"reasoning_effort": "low"})


async def test_a_server_that_takes_no_effort_is_told_none(start_with, upstream):
    gateway = await start_with({"reasoning_effort": "low"}, settings={"sends_reasoning_effort": False})
    await gateway.chat(model="m")
    assert "reasoning_effort" not in upstream.requests[0].json


async def test_a_completion_has_its_routes_limit(start_with, upstream):
    gateway = await start_with({"max_tokens": 99, "reasoning_effort": "low"})
    await gateway.complete(model="m")
    assert upstream.requests[0].json == {"model": "m", "prompt": "one two three", "max_tokens": 99}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/messages", {"max_tokens": 5, "messages": [{"role": "user", "content": "a"}]}),
        ("/v1/responses", {"input": "a", "store": False}),
    ],
)
async def test_other_apis_words_for_a_chat_have_its_routes_sampling(start_with, upstream, path, body):
    gateway = await start_with({"temperature": 0.2}, {"top_p": 0.5})
    answer = await gateway.ask(gateway.request({"model": "m", **body}, path=path))
    sent = upstream.requests[0].json
    assert (answer.status, sent["temperature"], sent["top_p"]) == (200, 0.2, 0.5), answer.body
    assert answer.headers[SET] == "top_p, temperature" and answer.headers["x-tollkeeper-model"] == "served-1"
    refused = await gateway.ask(gateway.request({"model": "m", **body, "top_p": 0.6}, path=path))
    assert refused.status == 400 and "top_p cannot be set" in refused.json["error"]["message"]
    assert len(upstream.requests) == 1


async def test_a_model_without_sampling_of_its_own_is_as_before(gateway):
    answer = await gateway.chat()
    assert answer.status == 200 and SET not in answer.headers
    assert gateway.gateway.directory.snapshot.models["scripted-1"].sampling is None


@pytest.fixture
async def engine(start_gateway, kit, tmp_path, eventually):
    host = await FakeHost(tmp_path / "h.sock", models=[builtin_hello("m", context_tokens=64)]).start()
    targets = [{"name": "e1", "kind": "engine", "url": host.url}]
    config = configuration(kit, targets, {"temperature": 0.25, "stop": "x", "max_tokens": 40}, {"seed": 9})
    gateway = await start_gateway(config)
    await eventually(lambda: all(one["state"] == "ready" for one in gateway.gateway.health()["engines"].values()))
    gateway.host = host
    yield gateway
    await host.stop()


async def test_an_engine_samples_as_the_route_says(engine):
    assert (await engine.chat(model="m")).status == 200
    submit = engine.host.received[-1][1]
    sampling = submit.sampling
    assert (sampling.temperature, sampling.seed, sampling.max_tokens, submit.stop) == (0.25, 9, 40, ["x"])


async def test_a_limit_nobody_asked_for_gives_way_to_a_long_prompt(engine):
    words = "one " * 45
    answer = await engine.chat(model="m", messages=[{"role": "user", "content": words}])
    submit = engine.host.received[-1][1]
    assert answer.status == 200 and submit.sampling.max_tokens == 64 - len(submit.token_ids) < 40
    asked = await engine.chat(model="m", max_tokens=40, messages=[{"role": "user", "content": words}])
    assert (asked.status, asked.error["code"]) == (400, "context_length_exceeded")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"defaults": {"temperature": 3}}, ["defaults.temperature"]),
        ({"pinned": {"warmth": 1}}, ["pinned.warmth"]),
        ({"defaults": {"seed": 1}, "pinned": {"seed": 1}}, ["seed is both a default and pinned"]),
        ({"defaults": {"max_tokens": 11}, "context_tokens": 10}, ["max_tokens is 11"]),
    ],
)
async def test_a_file_that_cannot_be_meant_is_refused_with_its_line(start_gateway, kit, fields, words):
    with pytest.raises(ConfigurationError) as refused:
        await start_gateway(configuration(kit, [kit.scripted()], **fields))
    assert "line " in refused.value.message
    assert all(word in refused.value.message for word in words), refused.value.message
