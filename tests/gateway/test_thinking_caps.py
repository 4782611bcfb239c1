"""A key's cap on thinking: what the model server is told, where a stream ends, and what a whole answer says of it."""

import json

import pytest

from backends.llm.http.openai_body import BodyFields, body_for

CAPPED_KEY = "tk-" + "C" * 43
CAP = 10
THOUGHTS = [f"thought{place:03d}" for place in range(30)]
WORDS = [f"word{place:03d}" for place in range(12)]
CHAT = {"model": "scripted-1", "messages": [{"role": "user", "content": "say"}]}


@pytest.fixture
def start(start_gateway, kit, upstream):
    async def start(**settings):
        target = kit.http_target(upstream.url)
        target["settings"] |= settings
        config = kit.configuration(("scripted-1", [target]))
        config["keys"].append({"key": CAPPED_KEY, "tenant": "acme", "id": "key_2", "max_thinking_tokens": CAP})
        return await start_gateway(config)

    return start


async def ask(gateway, *, key=CAPPED_KEY, **fields):
    return await gateway.ask(gateway.request({**CHAT, **fields}, {"Authorization": f"Bearer {key}"}))


def stream(upstream, thoughts, each=1, words=WORDS, *, is_paced=False):
    def event(field, text):
        return upstream.event({"choices": [{"index": 0, "delta": {field: text}, "finish_reason": None}]})

    events = [
        *[event("reasoning_content", " ".join(thoughts[at : at + each]) + " ") for at in range(0, len(thoughts), each)],
        *[event("content", word + " ") for word in words],
        upstream.chunk(finish="stop"),
        upstream.usage(10, len(thoughts) + len(words)),
        upstream.event(b"[DONE]"),
    ]
    if not is_paced:
        return [upstream.streamed(*events)]
    return [upstream.stream_head(), *[step for one in events for step in (upstream.piece(one), 0.003)], upstream.END]


@pytest.mark.parametrize("is_paced", [False, True])
@pytest.mark.parametrize("each", [1, 4, 30])
async def test_a_stream_ends_at_the_cap_while_the_model_thinks(start, upstream, each, is_paced):
    gateway = await start()
    upstream.always(*stream(upstream, THOUGHTS, each, is_paced=is_paced))
    answer = await ask(gateway, stream=True)
    assert sum(word.encode() in answer.body for word in THOUGHTS) == CAP
    assert not any(word.encode() in answer.body for word in WORDS), "it is not cut after the answer's first word"
    assert b'"finish_reason":"length"' in answer.body and b"thinking_tokens_exceeded" in answer.body
    [record] = gateway.requests()
    assert (record.outcome, record.finish_reason) == ("ok", "length")
    assert record.overdraft_tokens == record.usage.output_tokens - CAP


@pytest.mark.parametrize("each", [1, 5])
async def test_a_stream_that_thinks_up_to_the_cap_is_whole(start, upstream, each):
    gateway = await start()
    upstream.always(*stream(upstream, THOUGHTS[:CAP], each))
    answer = await ask(gateway, stream=True)
    assert all(word.encode() in answer.body for word in (*THOUGHTS[:CAP], *WORDS))
    assert b"ended_by" not in answer.body
    [record] = gateway.requests()
    assert record.finish_reason == "stop" and record.thinking_over_tokens is None


@pytest.mark.parametrize("thought", [CAP - 1, CAP, CAP + 1, 30])
async def test_a_whole_answer_says_that_the_cap_was_exceeded_and_costs_what_it_cost(start, upstream, thought):
    gateway = await start()
    details = {"completion_tokens_details": {"reasoning_tokens": thought}}
    usage = {"prompt_tokens": 10, "completion_tokens": 42, "total_tokens": 52, **details}
    upstream.always(upstream.whole(upstream.completion(usage=usage)))
    answer = await ask(gateway)
    assert answer.status == 200
    [record] = gateway.requests()
    assert record.usage.output_tokens == 42 and record.cost_pico_usd == (10 + 2 * 42) * 1_000_000
    if thought <= CAP:
        assert "x-tollkeeper-thinking-tokens" not in answer.headers and record.thinking_over_tokens is None
    else:
        assert answer.headers["x-tollkeeper-thinking-tokens"] == str(thought)
        assert answer.headers["x-tollkeeper-thinking-cap"] == str(CAP)
        assert record.thinking_over_tokens == thought - CAP


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_the_server_is_told_the_cap_of_the_key_that_has_one(start, upstream, kit, is_streamed):
    gateway = await start(thinking_cap_field="thinking_token_budget")
    usual = stream(upstream, []) if is_streamed else [upstream.whole(upstream.completion())]
    upstream.always(*usual)
    await ask(gateway, stream=is_streamed)
    await ask(gateway, key=kit.KEY, stream=is_streamed)
    told = [request.json.get("thinking_token_budget") for request in upstream.requests]
    assert told == [CAP, None]


async def test_a_server_of_unknown_words_is_told_nothing(start, upstream):
    gateway = await start()
    upstream.always(upstream.whole(upstream.completion()))
    await ask(gateway)
    assert upstream.requests[0].json == CHAT


@pytest.mark.parametrize(
    ("field", "asked", "cap", "sent"),
    [
        ("thinking_token_budget", {}, 2000, {"thinking_token_budget": 2000}),
        ("thinking_token_budget", {"thinking_token_budget": 500}, 2000, {"thinking_token_budget": 500}),
        ("thinking_budget", {"thinking_budget": 5000}, 2000, {"thinking_budget": 2000}),
        ("reasoning", {}, 2000, {"reasoning": {"max_tokens": 2000}}),
        (
            "reasoning",
            {"reasoning": {"effort": "high", "exclude": True}},
            9,
            {"reasoning": {"exclude": True, "max_tokens": 9}},
        ),
        ("reasoning", {"reasoning_effort": "high"}, 2000, {"reasoning": {"max_tokens": 2000}}),
        ("reasoning", {"reasoning_effort": "none"}, 2000, {"reasoning_effort": "none"}),
        ("thinking", {}, 2000, {}),
        ("thinking", {"reasoning_effort": "high"}, 2000, {"thinking": {"type": "enabled", "budget_tokens": 2000}}),
        ("thinking", {"reasoning_effort": "high"}, 1023, {}),
        ("thinking", {"reasoning_effort": "high"}, 1024, {"thinking": {"type": "enabled", "budget_tokens": 1024}}),
        (
            "thinking",
            {"thinking": {"type": "enabled", "budget_tokens": 1500}},
            2000,
            {"thinking": {"type": "enabled", "budget_tokens": 1500}},
        ),
        (
            "thinking",
            {"thinking": {"type": "adaptive"}, "max_tokens": 1800},
            2000,
            {"max_tokens": 1800, "thinking": {"type": "enabled", "budget_tokens": 1799}},
        ),
        ("thinking", {"thinking": {"type": "adaptive"}, "max_tokens": 1000}, 2000, {"max_tokens": 1000}),
        ("thinking", {"thinking": {"type": "disabled"}}, 2000, {"thinking": {"type": "disabled"}}),
        ("", {"reasoning_effort": "high"}, 2000, {"reasoning_effort": "high"}),
    ],
)
def test_each_server_is_told_in_its_own_words(call_for, field, asked, cap, sent):
    body = json.loads(body_for(call_for({**CHAT, **asked}, cap), BodyFields(thinking_cap_field=field)))
    assert body == {**CHAT, **sent}


@pytest.fixture
def call_for():
    from uuid import UUID

    from backends.llm.base import ModelCall
    from gateway.apis.operations import CHAT as OPERATION

    def make(body, cap):
        data = json.dumps(body).encode()
        request = OPERATION.read("application/json", data)
        return ModelCall(UUID(int=1), OPERATION.path, request, data, "acme", "", max_thinking=cap)

    return make
