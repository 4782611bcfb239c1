"""Other providers and other endpoints: embeddings, reranking, Bedrock's signatures, Anthropic's own API in front."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import anthropic as anthropic_sdk
import pytest

from contracts.metering.usage import Usage
from tests.gateway.model_server import Upstream
from tests.gateway.providers import anthropic_words as anthropic
from tests.gateway.providers.host_process import KEY, KEY_REF, litellm_target

pytestmark = pytest.mark.service

Start = Callable[..., Awaitable[Any]]


def url(upstream: Upstream) -> str:
    return f"http://127.0.0.1:{upstream.port}"


async def test_embeddings_come_as_the_sdk_asks_for_them(start_provider_gateway: Start, upstream: Upstream) -> None:
    gateway = await start_provider_gateway(litellm_target("mistral/mistral-embed", f"{url(upstream)}/v1"))
    data = [{"object": "embedding", "index": 0, "embedding": [1.0, -2.5]}]
    usage = {"prompt_tokens": 4, "total_tokens": 4}
    upstream.always(Upstream.whole({"object": "list", "data": data, "model": "embed-served", "usage": usage}))
    reply = await gateway.sdk().embeddings.create(model="hosted", input=["a"])
    assert (reply.data[0].embedding, reply.model) == ([1.0, -2.5], "embed-served")
    (record,) = gateway.requests()
    assert (record.usage.input_text, record.count_method) == (4, "reported")


async def test_documents_are_reranked(start_provider_gateway: Start, upstream: Upstream) -> None:
    gateway = await start_provider_gateway(litellm_target("jina_ai/jina-reranker-v2", url(upstream)))
    results = [{"index": 1, "relevance_score": 0.9}]
    upstream.always(Upstream.whole({"id": "r", "results": results, "usage": {"total_tokens": 15}}))
    body = {"model": "hosted", "query": "q", "documents": ["a", "b"], "top_n": 1}
    reply = await gateway.ask(gateway.request(body, path="/v1/rerank"))
    assert reply.status == 200, reply.body
    assert [(one["index"], one["relevance_score"]) for one in reply.json["results"]] == [(1, 0.9)]
    assert upstream.requests[0].json["query"] == "q"
    (record,) = gateway.requests()
    assert (record.usage, record.count_method) == (Usage(input_text=15), "reported")


async def test_what_a_provider_has_nothing_for_is_refused(start_provider_gateway: Start, upstream: Upstream) -> None:
    gateway = await start_provider_gateway(litellm_target("anthropic/claude-sonnet-4-5", url(upstream)))
    for path, body in (
        ("/v1/embeddings", {"model": "hosted", "input": "a"}),
        ("/v1/rerank", {"model": "hosted", "query": "q", "documents": ["a"]}),
    ):
        reply = await gateway.ask(gateway.request(body, path=path))
        assert (reply.status, reply.error["code"]) == (400, "unsupported_operation")


async def test_bedrock_is_signed_with_credentials_by_reference(
    start_provider_gateway: Start, upstream: Upstream
) -> None:
    target = litellm_target("bedrock/anthropic.claude-3-5-sonnet-20240620-v1:0", url(upstream))
    settings = {
        "params": {"aws_region_name": "eu-central-1"},
        "credentials": {"aws_access_key_id": KEY_REF, "aws_secret_access_key": KEY_REF},
    }
    gateway = await start_provider_gateway({**target, "key": "", "settings": settings})
    message = {"role": "assistant", "content": [{"text": "Hi"}]}
    usage = {"inputTokens": 10, "outputTokens": 3, "totalTokens": 13}
    upstream.always(Upstream.whole({"output": {"message": message}, "stopReason": "end_turn", "usage": usage}))
    reply = await gateway.chat(model="hosted", messages=[{"role": "user", "content": "Hello"}])
    assert (reply.status, reply.json["choices"][0]["message"]["content"]) == (200, "Hi")
    signature = upstream.requests[0].headers["authorization"]
    assert f"credential={KEY}" in signature and "eu-central-1/bedrock" in signature
    assert gateway.requests()[0].usage == Usage(input_text=10, output_text=3)


async def test_a_mistral_stream_without_usage_is_an_estimate(start_provider_gateway: Start, upstream: Upstream) -> None:
    gateway = await start_provider_gateway(litellm_target("mistral/mistral-large", f"{url(upstream)}/v1"))
    answer = (Upstream.chunk("Hel"), Upstream.chunk("lo"), Upstream.chunk(finish="stop"), b"data: [DONE]\n\n")
    upstream.always(Upstream.streamed(*answer))
    messages = [{"role": "user", "content": "Hello"}]
    reply = await gateway.chat(model="hosted", messages=messages, stream=True)
    assert reply.events[-1] == b"data: [DONE]"
    upstream.always(Upstream.streamed(*answer[:3], Upstream.usage(9, 2), answer[3]))
    await gateway.chat(model="hosted", messages=messages, stream=True)
    first, second = gateway.requests()
    assert first.count_method == "estimate"
    assert (second.usage, second.count_method) == (Usage(input_text=9, output_text=2), "reported")


async def test_anthropic_s_own_api_reaches_anthropic_with_its_cache_marks(
    start_provider_gateway: Start, upstream: Upstream
) -> None:
    gateway = await start_provider_gateway(litellm_target("anthropic/claude-sonnet-4-5", url(upstream)))
    upstream.always(anthropic.message())
    async with anthropic_sdk.AsyncAnthropic(
        base_url=gateway.base_url.removesuffix("/v1"), api_key=gateway.sdk().api_key, max_retries=0
    ) as client:
        text: Any = {"type": "text", "text": "Hello", "cache_control": {"type": "ephemeral"}}
        reply = await client.messages.create(
            model="hosted", max_tokens=20, messages=[{"role": "user", "content": [text]}]
        )
    assert [block.text for block in reply.content if block.type == "text"] == ["Hello there"]
    assert (reply.usage.input_tokens, reply.usage.cache_read_input_tokens, reply.usage.output_tokens) == (10, 7, 15)
    assert reply.usage.cache_creation_input_tokens == 5
    assert json.dumps({"cache_control": {"type": "ephemeral"}})[1:-1] in json.dumps(upstream.requests[0].json)
