"""Anthropic through the whole gateway: what an application sends and gets, and what is recorded of it."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import openai
import pytest

from contracts.metering.usage import Usage
from tests.gateway.model_server import Upstream
from tests.gateway.providers import anthropic_words as anthropic
from tests.gateway.providers.host_process import KEY, litellm_target

pytestmark = pytest.mark.service

Start = Callable[..., Awaitable[Any]]
MODEL = "anthropic/claude-sonnet-4-5"
MESSAGES: Any = [{"role": "user", "content": "Hello"}]
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]
USED = Usage(input_text=10, cache_read_text=7, cache_write_5m=2, cache_write_1h=3, output_text=15)


@pytest.fixture
async def gateway(start_provider_gateway: Start, upstream: Upstream) -> Any:
    return await start_provider_gateway(litellm_target(MODEL, f"http://127.0.0.1:{upstream.port}"))


async def test_an_answer_comes_whole_with_the_served_model_and_exact_usage(gateway: Any, upstream: Upstream) -> None:
    upstream.always(anthropic.message())
    reply = await gateway.sdk().chat.completions.create(model="hosted", messages=MESSAGES, max_tokens=50)
    assert (reply.choices[0].message.content, reply.choices[0].finish_reason) == ("Hello there", "stop")
    assert reply.model == "claude-served-1"
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.total_tokens) == (22, 15, 37)
    assert reply.usage.prompt_tokens_details.cached_tokens == 7
    (record,) = gateway.requests()
    assert (record.usage, record.count_method) == (USED, "reported")
    (request,) = upstream.requests
    assert request.line == "POST /v1/messages HTTP/1.1"
    assert request.headers["x-api-key"] == KEY
    assert request.json["model"] == "claude-sonnet-4-5"
    assert request.json["max_tokens"] == 50


async def test_a_stream_comes_piece_by_piece_with_thoughts_and_exact_usage(gateway: Any, upstream: Upstream) -> None:
    events = [
        anthropic.started(),
        *anthropic.thoughts(0, "let me see"),
        *anthropic.text(1, "Hello", " there"),
        *anthropic.ended(),
    ]
    upstream.always(Upstream.streamed(*events))
    stream = await gateway.sdk().chat.completions.create(
        model="hosted", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Hello there"
    thoughts = [getattr(chunk.choices[0].delta, "reasoning_content", None) for chunk in chunks if chunk.choices]
    assert "".join(filter(None, thoughts)) == "let me see"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert {chunk.model for chunk in chunks} == {"claude-served-1"}
    assert len({chunk.id for chunk in chunks}) == 1
    (usage,) = [chunk.usage for chunk in chunks if chunk.usage is not None]
    assert (usage.prompt_tokens, usage.completion_tokens) == (22, 15)
    (record,) = gateway.requests()
    assert (record.usage, record.count_method) == (USED, "reported"), "thinking that nobody counted is not an estimate"


async def test_thinking_tokens_that_are_reported_are_reasoning(gateway: Any, upstream: Upstream) -> None:
    upstream.always(
        anthropic.message(
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "Hi"},
            output_tokens_details={"thinking_tokens": 6},
        )
    )
    await gateway.sdk().chat.completions.create(model="hosted", messages=MESSAGES)
    (record,) = gateway.requests()
    assert (record.usage.output_text, record.usage.output_reasoning) == (9, 6)


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_tools_are_called(gateway: Any, upstream: Upstream, is_streamed: bool) -> None:
    if is_streamed:
        events = [anthropic.started(), *anthropic.tool(0, "get_weather", '{"city":', '"Rome"}')]
        upstream.always(Upstream.streamed(*events, *anthropic.ended("tool_use")))
    else:
        call = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Rome"}}
        upstream.always(anthropic.message(call, reason="tool_use"))
    answer = await gateway.sdk().chat.completions.create(
        model="hosted", messages=MESSAGES, tools=TOOLS, stream=is_streamed
    )
    if is_streamed:
        chunks = [chunk async for chunk in answer]
        pieces = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or ()]
        name, identity = pieces[0].function.name, pieces[0].id
        arguments = "".join(piece.function.arguments or "" for piece in pieces)
        reason = chunks[-1].choices[0].finish_reason
    else:
        (call,) = answer.choices[0].message.tool_calls
        name, identity, arguments = call.function.name, call.id, call.function.arguments
        reason = answer.choices[0].finish_reason
    assert (name, identity, json.loads(arguments), reason) == ("get_weather", "toolu_1", {"city": "Rome"}, "tool_calls")
    assert upstream.requests[0].json["tools"][0]["name"] == "get_weather"
    (record,) = gateway.requests()
    assert record.tool_calls == 1


async def test_images_cache_marks_and_schemas_reach_the_provider(gateway: Any, upstream: Upstream) -> None:
    upstream.always(anthropic.message({"type": "text", "text": '{"a": "b"}'}))
    content = [
        {"type": "text", "text": "What is this?", "cache_control": {"type": "ephemeral"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
    ]
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
    messages: Any = [{"role": "user", "content": content}]
    await gateway.sdk().chat.completions.create(
        model="hosted",
        messages=messages,
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
        user="ada",
        n=1,
        presence_penalty=0,
    )
    sent = upstream.requests[0].json
    text, image = sent["messages"][0]["content"]
    assert text["cache_control"] == {"type": "ephemeral"}
    assert image["source"] == {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    assert json.dumps(schema["properties"]) in json.dumps(sent)
    assert sent["metadata"] == {"user_id": "ada"}


async def test_a_text_completion_is_asked_as_a_chat(gateway: Any, upstream: Upstream) -> None:
    upstream.always(anthropic.message())
    reply = await gateway.sdk().completions.create(model="hosted", prompt="Say", max_tokens=5)
    assert (reply.choices[0].text, reply.object) == ("Hello there", "text_completion")
    upstream.always(Upstream.streamed(anthropic.started(), *anthropic.text(0, "Hel", "lo"), *anthropic.ended()))
    stream = await gateway.sdk().completions.create(model="hosted", prompt="Say", max_tokens=5, stream=True)
    assert [chunk.choices[0].text async for chunk in stream] == ["Hel", "lo", ""]
    assert [record.usage for record in gateway.requests()] == [USED, USED]


@pytest.mark.parametrize(
    ("answer", "status", "code"),
    [
        (anthropic.error(401, "authentication_error", "invalid x-api-key"), 502, "upstream_credentials_refused"),
        (anthropic.error(400, "invalid_request_error", "max_tokens: too many"), 400, "upstream_rejected"),
        (anthropic.error(400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"), 400,
         "context_length_exceeded"),
        (anthropic.error(404, "not_found_error", "model: x"), 502, "upstream_not_found"),
        (anthropic.error(500, "api_error", "oh"), 502, "upstream_error"),
        (anthropic.error(503, "api_error", "oh"), 503, "upstream_overloaded"),
        (anthropic.error(529, "overloaded_error", "Overloaded"), 503, "upstream_overloaded"),
        (Upstream.whole(b"<html>no</html>"), 502, "upstream_broken"),
        (Upstream.CLOSE, 502, "upstream_broken"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_each_failure_has_its_error(
    gateway: Any, upstream: Upstream, answer: Any, status: int, code: str, is_streamed: bool
) -> None:
    upstream.always(answer)
    reply = await gateway.chat(model="hosted", messages=MESSAGES, stream=is_streamed)
    assert (reply.status, reply.error["code"]) == (status, code)
    for told in ("Traceback", "litellm", KEY, "/"):
        assert told not in reply.error["message"].replace("model: x", "")


async def test_the_provider_s_own_words_are_passed_on(gateway: Any, upstream: Upstream) -> None:
    upstream.always(anthropic.error(400, "invalid_request_error", "max_tokens: 9 > 8"))
    with pytest.raises(openai.BadRequestError, match="max_tokens: 9 > 8"):
        await gateway.sdk().chat.completions.create(model="hosted", messages=MESSAGES)


@pytest.mark.parametrize("before", ["", "x" * 490])
async def test_a_key_that_the_provider_repeats_is_not(gateway: Any, upstream: Upstream, before: str) -> None:
    upstream.always(anthropic.error(400, "invalid_request_error", f"{before} you sent {KEY}"))
    reply = await gateway.chat(model="hosted", messages=MESSAGES)
    assert reply.status == 400 and KEY[:8] not in reply.error["message"]


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_limited_rate_says_when_to_come_back(gateway: Any, upstream: Upstream, is_streamed: bool) -> None:
    upstream.always(anthropic.error(429, "rate_limit_error", "slow down", "retry-after: 7\r\n"))
    reply = await gateway.chat(model="hosted", messages=MESSAGES, stream=is_streamed)
    assert (reply.status, reply.error["code"]) == (429, "upstream_rate_limited")
    assert reply.headers["retry-after"] == "7"


async def test_a_parameter_that_the_provider_has_not_is_refused_by_name(gateway: Any, upstream: Upstream) -> None:
    for fields, param in (({"seed": 3}, "seed"), ({"min_p": 0.1}, "min_p"), ({"n": 2}, "n")):
        reply = await gateway.chat(model="hosted", messages=MESSAGES, **fields)
        assert (reply.status, reply.error["code"], reply.error["param"]) == (400, "unsupported_parameter", param)
        assert param in reply.error["message"]
    assert upstream.requests == []


async def test_an_application_cannot_reach_litellm_s_switches(gateway: Any, upstream: Upstream) -> None:
    for name, value in (("api_base", "http://127.0.0.1:1"), ("api_key", "x"), ("mock_response", "x")):
        reply = await gateway.chat(model="hosted", messages=MESSAGES, **{name: value})
        assert (reply.status, reply.error["param"]) == (400, name)
    assert upstream.requests == []


async def test_a_cut_stream_is_broken_and_billed_for_what_came(gateway: Any, upstream: Upstream) -> None:
    upstream.always(Upstream.streamed(anthropic.started(), *anthropic.text(0, "Hello", " there")[:3]))
    reply = await gateway.chat(model="hosted", messages=MESSAGES, stream=True)
    assert b"upstream_broken" in reply.events[-1]
    assert b"[DONE]" not in reply.body
    (record,) = gateway.requests()
    assert record.outcome == "error"
    assert record.usage == Usage(input_text=10, cache_read_text=7, cache_write_5m=2, cache_write_1h=3, output_text=2)


async def test_garbage_in_a_stream_is_broken(gateway: Any, upstream: Upstream) -> None:
    upstream.always(Upstream.streamed(b"data: {nope\n\n", b"what\n\n"))
    reply = await gateway.chat(model="hosted", messages=MESSAGES, stream=True)
    assert (reply.status, reply.error["code"]) == (502, "upstream_broken")


async def test_an_error_within_a_stream_ends_it(gateway: Any, upstream: Upstream) -> None:
    overloaded = anthropic.event("error", error={"type": "overloaded_error", "message": "Overloaded"})
    upstream.always(Upstream.streamed(anthropic.started(), *anthropic.text(0, "Hello")[:2], overloaded))
    reply = await gateway.chat(model="hosted", messages=MESSAGES, stream=True)
    assert b'"code":"upstream_' in reply.events[-1]


@pytest.mark.alone
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_client_that_leaves_ends_the_call_at_the_provider(
    gateway: Any, upstream: Upstream, eventually: Any, is_streamed: bool
) -> None:
    pieces = (anthropic.started(), *anthropic.text(0, "Hello", " there")[:3])
    begun = Upstream.stream_head() + b"".join(map(Upstream.piece, pieces))
    upstream.always(*((begun,) if is_streamed else ()), Upstream.STALL)
    client = await gateway.connect()
    await client.send(gateway.request(model="hosted", messages=MESSAGES, stream=is_streamed))
    await eventually(lambda: upstream.requests)
    if is_streamed:
        await client.reader.readuntil(b"there")
    else:
        await asyncio.sleep(0.05)  # for the request to be more than begun
    loop = asyncio.get_running_loop()
    left = loop.time()
    client.close()
    await eventually(lambda: upstream.lost_at)
    assert upstream.lost_at[0] - left < 0.1
    await eventually(lambda: gateway.requests())
    (record,) = gateway.requests()
    assert record.outcome == "cancelled"
    if is_streamed:
        assert record.usage.output_tokens == 2
        assert record.usage.input_tokens == 22


async def test_a_stream_waits_for_a_slow_client(gateway: Any, upstream: Upstream, eventually: Any) -> None:
    piece = Upstream.piece(
        anthropic.event("content_block_delta", index=0, delta={"type": "text_delta", "text": "x" * 100_000})
    )
    count = 400
    opening = Upstream.stream_head() + b"".join(map(Upstream.piece, (anthropic.started(), anthropic.text(0, "a")[0])))
    ending = b"".join(map(Upstream.piece, (anthropic.text(0, "a")[-1], *anthropic.ended()))) + Upstream.END
    upstream.always(opening, *([piece] * count), ending)
    client = await gateway.connect()
    await client.send(gateway.request(model="hosted", messages=MESSAGES, stream=True))
    await client.head()
    await eventually(lambda: upstream.bytes_written > 100_000)
    seen, still = -1, 0
    while still < 10:
        await asyncio.sleep(0.05)
        still = still + 1 if upstream.bytes_written == seen else 0
        seen = upstream.bytes_written
    assert seen < count * len(piece), "the provider's answer was read whatever the client did"
    received = sum([len(part) async for part in client.pieces()])
    assert received > count * 100_000
    await eventually(lambda: gateway.requests())
    assert gateway.requests()[0].outcome == "ok"
