"""The anthropic SDK, blocking and not, on the torch engine: messages, streams, tools, counted tokens."""

from typing import Any

import anthropic
import pytest

from tests.gateway.sdks.conftest import CHAT, TOOLS
from tests.gateway.sdks.test_openai import CITIES, SCHEMA, check_records

HELLO: Any = [{"role": "user", "content": "What is a bridge?"}]
GREEDY = {"temperature": 0}  # a field that the API has and the SDK no longer names
WEATHER: Any = [{"name": "weather", "input_schema": SCHEMA}]


async def test_a_message_is_answered_and_a_stream_says_the_same(anthropic_sdk, engine) -> None:
    asked: dict[str, Any] = {"model": CHAT, "messages": HELLO, "max_tokens": 20, "extra_body": GREEDY}
    whole = await anthropic_sdk.do(lambda client: client.messages.create(**asked))
    streamed = await anthropic_sdk.final(lambda client: client.messages.stream(**asked), "get_final_message")
    [block] = whole.content
    assert block.type == "text" and len(block.text) > 20 and whole.stop_reason in ("end_turn", "max_tokens")
    assert streamed.content[0].text == block.text and streamed.stop_reason == whole.stop_reason
    assert streamed.usage.output_tokens == whole.usage.output_tokens > 5
    check_records(engine, 2)


async def test_a_streams_events_come_in_their_order(anthropic_sdk) -> None:
    asked: dict[str, Any] = {"model": CHAT, "messages": HELLO, "max_tokens": 8, "extra_body": GREEDY}
    events = await anthropic_sdk.all(lambda client: client.messages.create(**asked, stream=True))
    types = [event.type for event in events if event.type != "ping"]
    assert types[:2] == ["message_start", "content_block_start"]
    assert types[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(types[2:-3]) == {"content_block_delta"}


async def test_a_forced_tool_is_used_whole_and_streamed(anthropic_sdk, engine) -> None:
    asked: dict[str, Any] = {
        "model": TOOLS,
        "messages": HELLO,
        "max_tokens": 120,
        "extra_body": GREEDY,
        "tools": WEATHER,
    }
    asked["tool_choice"] = {"type": "tool", "name": "weather"}
    whole = await anthropic_sdk.do(lambda client: client.messages.create(**asked))
    streamed = await anthropic_sdk.final(lambda client: client.messages.stream(**asked), "get_final_message")
    for message in (whole, streamed):
        [block] = [block for block in message.content if block.type == "tool_use"]
        assert message.stop_reason == "tool_use"
        assert block.name == "weather" and block.input["city"] in CITIES
    check_records(engine, 2)


async def test_tokens_are_counted_as_they_are_charged(anthropic_sdk, engine) -> None:
    asked: dict[str, Any] = {"model": CHAT, "messages": HELLO}
    counted = await anthropic_sdk.do(lambda client: client.messages.count_tokens(**asked))
    answered = await anthropic_sdk.do(lambda client: client.messages.create(**asked, max_tokens=1))
    usage = answered.usage
    charged = usage.input_tokens + (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
    assert counted.input_tokens == charged > 3
    check_records(engine, 1)


async def test_a_refusal_is_the_sdks_own_error(anthropic_sdk) -> None:
    asked: dict[str, Any] = {"model": "claude-nope", "messages": HELLO, "max_tokens": 5}
    with pytest.raises(anthropic.NotFoundError, match="claude-nope"):
        await anthropic_sdk.do(lambda client: client.messages.create(**asked))
    with pytest.raises(anthropic.BadRequestError, match="temperature"):
        await anthropic_sdk.do(
            lambda client: client.messages.create(**asked | {"model": CHAT, "extra_body": {"temperature": 9}})
        )
