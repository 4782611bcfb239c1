"""Text completions as applications meet them, before a model that plays a script: shapes, counts, limits, refusals."""

import asyncio
import json
import threading
from typing import Any

import openai
import pytest
import yaml

from contracts.metering.gaps import unpack_gaps
from gateway.process.app import Gateway
from gateway.process.settings import GatewaySettings

KEY = "tk-" + "A" * 43
MICRO = 1_000_000  # pico-USD a token at 1 USD per million tokens
SECRET = "xyzzy-prompt-text"
WORDS = "Hello! I am the scripted model. I answer every prompt with these same words, one token"


def rule(metric, amount, window="minute", **more):
    return {"id": f"t-{metric}", "tenant": "acme", "level": "tenant", "metric": metric, "amount": amount} | (
        {"window": window} | more
    )


@pytest.fixture
def start(start_gateway, kit):
    """Start a gateway with one scripted model under limits and budgets."""

    async def start(limits=(), budgets=(), **script):
        return await start_gateway(
            kit.configuration(("scripted-1", [kit.scripted(**script)]), limits=list(limits), budgets=list(budgets))
        )

    return start


async def test_the_sdk_gets_an_answer_whole_and_the_same_streamed(gateway):
    client = gateway.sdk()
    whole = await client.completions.create(model="scripted-1", prompt="one two three", max_tokens=5)
    stream = await client.completions.create(
        model="scripted-1", prompt="one two three", max_tokens=5, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert (whole.object, whole.id[:5]) == ("text_completion", "cmpl-")
    [choice] = whole.choices
    assert (choice.text, choice.finish_reason, choice.logprobs) == ("Hello! I am the scripted", "length", None)
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == choice.text
    assert {chunk.object for chunk in chunks} == {"text_completion"}
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices] == [None] * 5 + ["length"]
    assert whole.usage == chunks[-1].usage
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (3, 5)
    for record, is_streamed in zip(gateway.requests(), (False, True), strict=True):
        assert (record.api, record.operation, record.stream) == ("completions", "text_completion", is_streamed)
        assert (record.usage.input_tokens, record.usage.output_tokens, record.max_tokens) == (3, 5, 5)
        assert record.cost_pico_usd == 3 * MICRO + 5 * 2 * MICRO
        assert len(unpack_gaps(record.gaps)) == 4


def test_the_synchronous_sdk_reads_a_stream_too(gateway_thread):
    with openai.OpenAI(base_url=gateway_thread, api_key=KEY, max_retries=0) as client:
        stream = client.completions.create(model="scripted-1", prompt=["a", "b"], max_tokens=2, stream=True)
        texts = ["", ""]
        for chunk in stream:
            texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == ["Hello! I"] * 2


@pytest.fixture
def gateway_thread(tmp_path, kit):
    """Run a gateway on a loop in a thread; provide its base URL."""
    path = tmp_path / "gateway.yaml"
    path.write_text(yaml.safe_dump(kit.configuration(("scripted-1", [kit.scripted()]))))
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> Gateway:
        gateway = Gateway(
            GatewaySettings(data=tmp_path / "data", gateway_config=path, gateway_port=0, drain_seconds=0.2)
        )
        await gateway.start()
        return gateway

    gateway = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    yield f"http://127.0.0.1:{gateway.port}/v1"
    asyncio.run_coroutine_threadsafe(gateway.stop(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


async def test_an_answer_has_sixteen_tokens_where_nothing_is_said(gateway):
    answer = await gateway.complete()
    assert answer.json["usage"]["completion_tokens"] == 16
    assert answer.json["choices"][0]["finish_reason"] == "length"
    assert gateway.requests()[0].max_tokens == 16


@pytest.mark.parametrize(
    ("prompt", "tokens", "choices"),
    [
        ("one two three", 3, 1),
        (["one two", "three"], 3, 2),
        ([1, 2, 3, 4], 4, 1),
        ([[1, 2], [3]], 3, 2),
        (["one two", [7, 8, 9]], 5, 2),
    ],
)
@pytest.mark.parametrize("n", [1, 3])
async def test_prompts_times_n_are_choices_of_one_answer(gateway, prompt, tokens, choices, n):
    answer = await gateway.complete(prompt=prompt, n=n, max_tokens=2)
    assert [choice["index"] for choice in answer.json["choices"]] == list(range(choices * n))
    assert {choice["text"] for choice in answer.json["choices"]} == {"Hello! I"}
    assert answer.json["usage"]["prompt_tokens"] == tokens
    [record] = gateway.requests()
    assert (record.choices, record.usage.input_tokens, record.usage.output_tokens) == (
        choices * n,
        tokens,
        2 * choices * n,
    )


async def test_a_stream_ends_with_done_and_says_usage_to_who_asked(gateway):
    silent = await gateway.complete(stream=True)
    asked = await gateway.complete(stream=True, stream_options={"include_usage": True})
    assert silent.events[-1] == asked.events[-1] == b"data: [DONE]"
    assert b'"usage"' not in silent.body
    usage = json.loads(asked.events[-2].removeprefix(b"data: "))
    assert (usage["choices"], usage["object"], usage["usage"]["total_tokens"]) == ([], "text_completion", 19)


async def test_a_completion_never_reasons(start):
    gateway = await start(tokens=10, reasoning=4)
    answer = await gateway.complete()
    assert answer.json["choices"][0]["text"].startswith("Hello! I am")
    [record] = gateway.requests()
    assert (record.usage.output_text, record.usage.output_reasoning) == (10, None)


# limits and money


async def test_the_default_of_sixteen_is_what_is_reserved_and_all_of_it_for_every_choice(start):
    gateway = await start([rule("output_tokens", 100)])
    answers = [await gateway.complete(n=3) for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 429]
    first, _, refused = gateway.requests()
    assert first.charge_tokens == [3 + 48]
    assert (refused.outcome, refused.limit) == ("rejected", "t-output_tokens")


async def test_a_nearly_spent_budget_clips_a_completion_and_says_so(start):
    budget = {"id": "bud", "tenant": "acme", "level": "tenant", "period": "month", "amount_usd": "0.000063"}
    gateway = await start(budgets=[budget], tokens=100)
    answer = await gateway.complete(max_tokens=100)
    assert answer.json["usage"]["completion_tokens"] == 30
    assert answer.json["choices"][0]["finish_reason"] == "length"
    assert (answer.headers["x-tollkeeper-max-tokens"], answer.headers["x-tollkeeper-clipped-by"]) == ("30", "bud")
    assert gateway.requests()[0].charged_pico_usd == 63 * MICRO
    refused = await gateway.complete()
    assert (refused.status, refused.error["code"]) == (429, "insufficient_quota")


async def test_a_long_completion_is_extended_while_there_is_room(start):
    gateway = await start([rule("tokens", 100_000)], tokens=3000)
    answer = await gateway.complete(stream=True, max_tokens=5000)
    assert b'"finish_reason":"stop"' in answer.body
    [record] = gateway.requests()
    assert record.usage.output_tokens == 3000
    assert len(record.charge_tokens) > 2 and sum(record.charge_tokens) == 3003


async def test_a_completion_that_no_limit_has_room_for_ends_clearly_and_is_charged(start):
    gateway = await start([rule("output_tokens", 700)], tokens=5000)
    await gateway.complete(max_tokens=100)
    answer = await gateway.complete(stream=True, max_tokens=5000, stream_options={"include_usage": True})
    *_, ending, usage, done = answer.events
    cut = json.loads(ending.removeprefix(b"data: "))
    assert cut["choices"] == [{"index": 0, "text": "", "logprobs": None, "finish_reason": "length"}]
    assert "t-output_tokens" in cut["tollkeeper"]["ended_by"]["message"]
    assert b'"completion_tokens":600' in usage and done == b"data: [DONE]"
    record = gateway.requests()[-1]
    assert (record.outcome, record.finish_reason, record.limit) == ("ok", "length", "t-output_tokens")
    assert sum(record.charge_tokens) == 3 + 600 and record.overdraft_tokens == 0


async def test_a_client_that_leaves_is_billed_what_was_made(start, eventually):
    gateway = await start([rule("tokens", 10_000)], tokens=1000, gap_ms=5)
    client = await gateway.connect()
    body = {"model": "scripted-1", "prompt": "one two three", "stream": True, "max_tokens": 1000}
    await client.send(gateway.request(body, path="/v1/completions"))
    await client.head()
    pieces = client.pieces()
    for _ in range(5):
        await anext(pieces)
    client.reset()
    await eventually(lambda: gateway.requests())
    [record] = gateway.requests()
    assert (record.outcome, record.api) == ("cancelled", "completions")
    assert 5 <= record.usage.output_tokens < 200 and sum(record.charge_tokens) == 3 + record.usage.output_tokens


async def test_completions_wait_for_their_tenants_turn_as_chats_do(start_gateway, kit, eventually):
    config = kit.configuration(("scripted-1", [kit.scripted(tokens=3, gap_ms=30)]))
    config["pools"][0]["queue"] = {"max_in_flight": 1}
    gateway = await start_gateway(config)
    await asyncio.gather(*(gateway.complete() for _ in range(3)))
    _, second, third = sorted(record.wait_ns for record in gateway.requests())
    assert second > 30_000_000 and third > 90_000_000, "an answer takes 60 ms at least"


# keys


async def test_a_key_is_held_to_the_endpoints_it_may_use(start_gateway, kit):
    config = kit.configuration(("scripted-1", [kit.scripted()]))
    config["keys"].append({"key": "tk-" + "B" * 43, "tenant": "acme", "id": "key_2", "endpoints": ["completions"]})
    config["keys"][0]["endpoints"] = ["chat.completions"]
    gateway = await start_gateway(config)
    other = {"Authorization": "Bearer tk-" + "B" * 43}
    refused = await gateway.complete()
    assert (refused.status, refused.error["type"]) == (403, "permission_error")
    assert "completions" in refused.error["message"]
    assert (await gateway.complete(headers=other)).status == 200
    assert (await gateway.chat()).status == 200
    assert (await gateway.chat(headers=other)).status == 403


async def test_a_missing_key_and_a_wrong_method_are_refused_as_for_chats(gateway):
    assert (await gateway.complete(headers={"Authorization": ""})).status == 401
    answer = await gateway.ask(b"GET /v1/completions HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (answer.status, answer.headers["allow"]) == (405, "post")


# bad input

# field: (fields, param, words of the message); every one of them names field, value and limit
REFUSED: dict[str, tuple[dict[str, Any], str, list[str]]] = {
    "no prompt": ({"prompt": None}, "prompt", ["prompt is null", "str"]),
    "a number": ({"prompt": 5}, "prompt", ["prompt is 5", "str", "array"]),
    "an object": ({"prompt": {"text": SECRET}}, "prompt", ["prompt is an object"]),
    "no prompts": ({"prompt": []}, "prompt", ["prompt is empty"]),
    "no token ids": ({"prompt": [[1], []]}, "prompt", ["prompt[1] is an empty list"]),
    "ids among texts": ({"prompt": [SECRET, 1]}, "prompt", ["mixes token ids"]),
    "a negative id": ({"prompt": [1, -1]}, "prompt[1]", ["prompt[1] is -1", ">= 0"]),
    "a negative id in a list": ({"prompt": [[1], [2, -3]]}, "prompt[1][1]", ["is -3", ">= 0"]),
    "an absurd id": ({"prompt": [10**30]}, "prompt[0]", ["<= 2147483647"]),
    "a fraction for an id": ({"prompt": [1.5]}, "prompt[0]", ["1.5"]),
    "too many texts": ({"prompt": ["a"] * 1025}, "prompt", ["1025 entries", "at most 1024"]),
    "too many texts by n": ({"prompt": ["a"] * 9, "n": 128}, "prompt", ["9 entries", "128 answers", "1152", "1024"]),
    "max_tokens-zero": ({"max_tokens": 0}, "max_tokens", ["max_tokens is 0", ">= 1"]),
    "max_tokens-huge": ({"max_tokens": 2**31}, "max_tokens", ["<= 2147483647"]),
    "n": ({"n": 129}, "n", ["n is 129", "<= 128"]),
    "best_of": ({"best_of": 129}, "best_of", ["best_of is 129", "<= 128"]),
    "best_of below n": ({"best_of": 2, "n": 3}, "best_of", ["best_of is 2", "at least n, 3"]),
    "best_of streamed": ({"best_of": 2, "stream": True}, "best_of", ["best_of is 2", "set stream to false"]),
    "logprobs-true": ({"logprobs": True}, "logprobs", ["logprobs is true", "int"]),
    "logprobs-above": ({"logprobs": 21}, "logprobs", ["logprobs is 21", "<= 20"]),
    "echo": ({"echo": "yes"}, "echo", ["a string of 3 characters", "bool"]),
    "suffix": ({"suffix": 1}, "suffix", ["suffix is 1", "str"]),
    "temperature": ({"temperature": 2.1}, "temperature", ["temperature is 2.1", "<= 2"]),
    "stream_options": ({"stream_options": {"include_usage": True}}, "stream_options", ["only allowed when stream"]),
    "user": ({"user": "u" * 257}, "user", ["257 characters", "<= 256"]),
    "model": ({"model": "gpt-nope"}, "model", ["gpt-nope"]),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_a_wrong_field_is_named_with_its_value_and_its_limit(gateway, name):
    fields, param, words = REFUSED[name]
    answer = await gateway.complete(**{"prompt": SECRET, **fields})
    assert answer.status == (404 if param == "model" else 400)
    assert answer.error["param"] == param, answer.error
    assert all(word in answer.error["message"] for word in words), answer.error["message"]
    assert SECRET.encode() not in answer.body
    [record] = gateway.requests()
    assert (record.outcome, record.attempts, record.usage.is_known) == ("rejected", 0, False)
    assert (await gateway.complete()).status == 200


@pytest.mark.parametrize(
    "body", [b"", b'{"model": "scripted-1", "prompt": "', b"[[[[", b'{"prompt":"\xff"}', b"[" * 90_000]
)
async def test_a_body_that_cannot_be_read_is_refused(gateway, body):
    answer = await gateway.ask(gateway.request(body, path="/v1/completions"))
    assert (answer.status, answer.error["type"]) == (400, "invalid_request_error")
    assert (await gateway.complete()).status == 200


@pytest.mark.parametrize(
    ("fields", "param"),
    [({"best_of": 2}, "best_of"), ({"echo": True}, "echo"), ({"suffix": "!"}, "suffix"), ({"logprobs": 0}, "logprobs")],
)
async def test_what_a_script_cannot_honour_is_refused_by_name(gateway, fields, param):
    answer = await gateway.complete(**fields)
    assert (answer.status, answer.error["param"]) == (400, param)
    harmless = await gateway.complete(best_of=1, echo=False, suffix="", logprobs=None)
    assert harmless.status == 200 and harmless.json["choices"][0]["text"] == WORDS
