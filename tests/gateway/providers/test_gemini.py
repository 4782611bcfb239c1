"""Gemini through the whole gateway: thoughts, cached input, calls, and streams whose end LiteLLM makes up."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from contracts.metering.usage import Usage
from tests.gateway.model_server import Upstream
from tests.gateway.providers import gemini_words as gemini
from tests.gateway.providers.host_process import KEY, litellm_target

pytestmark = pytest.mark.service

Start = Callable[..., Awaitable[Any]]
MESSAGES: Any = [{"role": "user", "content": "Hello"}]
USED = Usage(input_text=5, cache_read_text=3, output_text=5, output_reasoning=4)


@pytest.fixture
async def gateway(start_provider_gateway: Start, upstream: Upstream) -> Any:
    return await start_provider_gateway(litellm_target("gemini/gemini-2.5-flash", f"http://127.0.0.1:{upstream.port}"))


async def test_an_answer_comes_whole_with_thoughts_counted_once(gateway: Any, upstream: Upstream) -> None:
    upstream.always(gemini.whole(gemini.THOUGHT, {"text": "Hello"}))
    reply = await gateway.sdk().chat.completions.create(model="hosted", messages=MESSAGES, seed=3, max_tokens=20)
    assert (reply.choices[0].message.content, reply.model) == ("Hello", "gemini-served-1")
    assert reply.choices[0].message.reasoning_content == "pondering"
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.total_tokens) == (8, 9, 17)
    assert reply.usage.completion_tokens_details.reasoning_tokens == 4
    (record,) = gateway.requests()
    assert (record.usage, record.count_method) == (USED, "reported")
    (request,) = upstream.requests
    assert request.line == "POST /models/gemini-2.5-flash:generateContent HTTP/1.1"
    assert request.headers["x-goog-api-key"] == KEY
    assert request.json["generationConfig"] == {"seed": 3, "max_output_tokens": 20}


async def test_a_stream_with_a_call_comes_with_exact_usage(gateway: Any, upstream: Upstream) -> None:
    upstream.always(
        Upstream.streamed(
            gemini.event(gemini.THOUGHT, promptTokenCount=8, thoughtsTokenCount=4, totalTokenCount=12),
            gemini.event({"text": "Hello"}, promptTokenCount=8, candidatesTokenCount=2, totalTokenCount=14),
            gemini.event(gemini.CALL, finish="STOP", **gemini.USAGE),
        )
    )
    stream = await gateway.sdk().chat.completions.create(
        model="hosted", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Hello"
    (call,) = [call for chunk in chunks if chunk.choices for call in chunk.choices[0].delta.tool_calls or ()]
    assert (call.function.name, call.function.arguments) == ("get_weather", '{"city": "Rome"}')
    assert chunks[-2].choices[0].finish_reason == "tool_calls"
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[-1].usage.total_tokens == 17
    (record,) = gateway.requests()
    assert (record.usage, record.count_method) == (USED, "reported")


async def test_input_of_the_provider_s_own_tools_is_no_reasoning(gateway: Any, upstream: Upstream) -> None:
    used: Any = {"promptTokenCount": 8, "candidatesTokenCount": 5, "toolUsePromptTokenCount": 6, "totalTokenCount": 19}
    upstream.always(gemini.whole({"text": "Hello"}, **used))
    await gateway.sdk().chat.completions.create(model="hosted", messages=MESSAGES)
    (record,) = gateway.requests()
    assert (record.usage.input_tokens, record.usage.output_tokens) == (14, 5)
    assert record.usage.output_reasoning is None


async def test_a_cut_stream_is_broken_though_litellm_calls_it_complete(gateway: Any, upstream: Upstream) -> None:
    event = gemini.event({"text": "Hello"}, promptTokenCount=8, candidatesTokenCount=2, totalTokenCount=10)
    upstream.always(Upstream.streamed(event))
    reply = await gateway.chat(model="hosted", messages=MESSAGES, stream=True)
    assert b"upstream_broken" in reply.events[-1]
    assert b"[DONE]" not in reply.body
    (record,) = gateway.requests()
    assert (record.usage.input_text, record.usage.output_text) == (8, 1)


async def test_an_answer_without_usage_is_estimated_and_says_so(gateway: Any, upstream: Upstream) -> None:
    event = gemini.event({"text": "Hello"}, finish="STOP")
    upstream.always(Upstream.streamed(event))
    reply = await gateway.chat(model="hosted", messages=MESSAGES, stream=True, stream_options={"include_usage": True})
    assert b"[DONE]" in reply.events[-1]
    assert gateway.requests()[0].count_method == "estimate"


@pytest.mark.parametrize(
    ("answer", "status", "code"),
    [
        (gemini.error(400, "INVALID_ARGUMENT", "API key not valid. Pass a valid one"), 502,
         "upstream_credentials_refused"),
        (gemini.error(403, "PERMISSION_DENIED", "no"), 502, "upstream_credentials_refused"),
        (gemini.error(400, "INVALID_ARGUMENT", "bad temperature"), 400, "upstream_rejected"),
        (gemini.error(404, "NOT_FOUND", "no model"), 502, "upstream_not_found"),
        (gemini.error(503, "UNAVAILABLE", "overloaded"), 503, "upstream_overloaded"),
        (gemini.error(500, "INTERNAL", "oh"), 502, "upstream_error"),
        (Upstream.whole(b"nonsense"), 502, "upstream_broken"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_each_failure_has_its_error(
    gateway: Any, upstream: Upstream, answer: Any, status: int, code: str, is_streamed: bool
) -> None:
    upstream.always(answer)
    reply = await gateway.chat(model="hosted", messages=MESSAGES, stream=is_streamed)
    assert (reply.status, reply.error["code"]) == (status, code)


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_limited_rate_says_when_to_come_back(gateway: Any, upstream: Upstream, is_streamed: bool) -> None:
    upstream.always(gemini.error(429, "RESOURCE_EXHAUSTED", "quota", "retry-after: 9\r\n"))
    reply = await gateway.chat(model="hosted", messages=MESSAGES, stream=is_streamed)
    assert (reply.status, reply.headers["retry-after"]) == (429, "9")


async def test_nothing_is_fetched_for_a_request(gateway: Any, upstream: Upstream) -> None:
    image = {"type": "image_url", "image_url": {"url": f"http://127.0.0.1:{upstream.port}/secret.png"}}
    reply = await gateway.chat(model="hosted", messages=[{"role": "user", "content": [image]}])
    assert (reply.status, reply.error["code"]) == (400, "unsupported_image_url")
    assert upstream.requests == []


async def test_embeddings_come_with_the_usage_unknown_that_nobody_reported(gateway: Any, upstream: Upstream) -> None:
    upstream.always(Upstream.whole({"embeddings": [{"values": [1.0, 2.0]}, {"values": [0.5, 0.25]}]}))
    reply = await gateway.sdk().embeddings.create(model="hosted", input=["a", "b"])
    assert [entry.embedding for entry in reply.data] == [[1.0, 2.0], [0.5, 0.25]]
    assert gateway.requests()[0].count_method == "estimate"
