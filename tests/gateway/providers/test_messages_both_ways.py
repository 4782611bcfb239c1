"""A message of Anthropic's API to Anthropic's API, through a chat: what was cached, called and signed on both sides."""

from collections.abc import AsyncIterator
from typing import Any

import anthropic as sdk
import pytest

from contracts.metering.usage import Usage
from tests.gateway.model_server import Upstream
from tests.gateway.providers import anthropic_words as words
from tests.gateway.providers.host_process import litellm_target

KEEP: Any = {"type": "ephemeral"}
HOUR: Any = {"type": "ephemeral", "ttl": "1h"}
WEATHER: Any = {
    "name": "get_weather",
    "description": "Tells the weather.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
    "cache_control": KEEP,
}
SYSTEM: Any = [{"type": "text", "text": "Be brief.", "cache_control": HOUR}]
ASK: dict[str, Any] = {"model": "hosted", "max_tokens": 2000, "system": SYSTEM, "tools": [WEATHER]}
THINK: Any = {"type": "enabled", "budget_tokens": 1024}
USER: Any = {"role": "user", "content": [{"type": "text", "text": "Rome?", "cache_control": KEEP}]}


@pytest.fixture
async def gateway(start_provider_gateway: Any, upstream: Upstream) -> Any:
    return await start_provider_gateway(
        litellm_target("anthropic/claude-sonnet-4-5", f"http://127.0.0.1:{upstream.port}")
    )


@pytest.fixture
async def client(gateway: Any, kit: Any) -> AsyncIterator[sdk.AsyncAnthropic]:
    base_url = gateway.base_url.removesuffix("/v1")
    async with sdk.AsyncAnthropic(base_url=base_url, api_key=kit.KEY, max_retries=0) as made:
        yield made


async def test_what_is_to_be_cached_is_said_and_what_was_cached_is_counted(gateway, client, upstream) -> None:
    upstream.always(words.message())
    message = await client.messages.create(**ASK, messages=[USER])
    assert (message.content[0].text, message.stop_reason) == ("Hello there", "end_turn")
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.cache_creation_input_tokens) == (10, 7, 5)
    assert usage.cache_creation.ephemeral_1h_input_tokens == 3
    (record,) = gateway.requests()
    assert (record.api, record.count_method) == ("messages", "reported")
    assert record.usage == Usage(input_text=10, cache_read_text=7, cache_write_5m=2, cache_write_1h=3, output_text=15)
    sent = upstream.requests[0].json
    assert sent["system"] == SYSTEM
    assert sent["messages"] == [USER]
    assert sent["tools"][0]["cache_control"] == KEEP and sent["tools"][0]["name"] == "get_weather"


async def test_signed_thoughts_and_calls_go_there_and_back(gateway, client, upstream) -> None:
    upstream.then(
        Upstream.streamed(
            words.started(),
            *words.thoughts(0, "let me see"),
            *words.tool(1, "get_weather", '{"city":', '"Rome"}'),
            *words.ended("tool_use"),
        )
    )
    upstream.then(words.message())
    async with client.messages.stream(**ASK, messages=[USER], thinking=THINK) as stream:
        first = await stream.get_final_message()
    thought, use = first.content
    assert (thought.thinking, thought.signature) == ("let me see", "signed==")
    assert (use.name, use.input, first.stop_reason) == ("get_weather", {"city": "Rome"}, "tool_use")
    result: Any = {"type": "tool_result", "tool_use_id": use.id, "content": "sun"}
    turns = [USER, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    await client.messages.create(**ASK, messages=turns, thinking=THINK)
    sent = upstream.requests[1].json["messages"]
    assert sent[1]["content"][0] == {"type": "thinking", "thinking": "let me see", "signature": "signed=="}
    called = sent[1]["content"][-1]
    assert (called["type"], called["id"], called["input"]) == ("tool_use", use.id, {"city": "Rome"})
    assert (sent[2]["content"][0]["type"], sent[2]["content"][0]["tool_use_id"]) == ("tool_result", use.id)
    assert [record.tool_calls for record in gateway.requests()] == [1, 0]
