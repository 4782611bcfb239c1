"""Messages answered by an engine host of ours: exact counts from the first event on, tools, thoughts, stops."""

import json
from typing import Any

import anthropic
import pytest

from tests.gateway.host_process import TOOLS_MODEL as MODEL

CITIES = ["Oslo", "Rome"]
WEATHER: Any = {
    "name": "weather",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"enum": CITIES}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
ASK: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 120,
    "messages": [{"role": "user", "content": "Weather in Oslo?"}],
    "extra_body": {"temperature": 0},
}


@pytest.fixture
async def engine(start_gateway, kit, eventually, engine_host):
    target = {"name": "e1", "kind": "engine", "url": engine_host.url}
    gateway = await start_gateway(kit.configuration((MODEL, [target])))
    await eventually(lambda: engine_host.serves(gateway, MODEL), 60.0)
    return gateway


async def test_a_stream_says_what_a_whole_message_says_and_both_are_counted_exactly(engine, sdk):
    client = sdk(engine)
    counted = await client.messages.with_raw_response.count_tokens(model=MODEL, messages=ASK["messages"])
    whole = await client.messages.create(**ASK | {"max_tokens": 12})
    async with client.messages.stream(**ASK | {"max_tokens": 12}) as stream:
        events = [event async for event in stream]
        streamed = await stream.get_final_message()
    assert streamed.content[0].text == whole.content[0].text
    assert counted.headers["x-tollkeeper-count-method"] == "exact"
    prompt = (await counted.parse()).input_tokens
    start = events[0].message.usage
    for usage in (start, whole.usage, streamed.usage):
        assert usage.input_tokens + (usage.cache_read_input_tokens or 0) == prompt
    assert start.cache_read_input_tokens is not None, "known when the first token comes"
    assert whole.usage.output_tokens == streamed.usage.output_tokens > 0
    for record in engine.requests():
        assert (record.api, record.count_method, record.gap_clock) == ("messages", "exact", "engine")
        assert record.usage.input_tokens == prompt and record.gpu is not None


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "weather"}])
async def test_a_forced_call_is_one_the_sdk_understands_streamed_or_not(engine, sdk, choice):
    fields = ASK | {"tools": [WEATHER], "tool_choice": choice}
    whole = await sdk(engine).messages.create(**fields)
    async with sdk(engine).messages.stream(**fields) as stream:
        streamed = await stream.get_final_message()
    for message in (whole, streamed):
        [use] = message.content
        assert use.type == "tool_use" and use.name == "weather" and use.input["city"] in CITIES
        assert use.id.startswith("call_") and message.stop_reason == "tool_use"
    assert [record.tool_calls for record in engine.requests()] == [1, 1]


async def test_thoughts_stand_apart_where_they_were_asked_for(engine, sdk):
    ask: Any = ASK | {"max_tokens": 12, "output_config": {"effort": "high"}}
    whole = await sdk(engine).messages.create(**ask, thinking={"type": "adaptive"})
    async with sdk(engine).messages.stream(**ask, thinking={"type": "adaptive"}) as stream:
        streamed = await stream.get_final_message()
    for message in (whole, streamed):
        [thought] = message.content
        assert thought.type == "thinking" and thought.thinking
        assert message.usage.output_tokens_details.thinking_tokens == message.usage.output_tokens == 12
        assert message.stop_reason == "max_tokens"
    plain = await sdk(engine).messages.create(**ask, thinking={"type": "disabled"})
    assert [block.type for block in plain.content] == ["text"]


async def test_the_stop_sequence_that_was_met_is_named(engine, sdk):
    free = await sdk(engine).messages.create(**ASK)
    text = free.content[0].text
    end = text[len(text) // 2 :][:4]
    fields = ASK | {"stop_sequences": ["never said, surely", end]}
    whole = await sdk(engine).messages.create(**fields)
    async with sdk(engine).messages.stream(**fields) as stream:
        streamed = await stream.get_final_message()
    for message in (whole, streamed):
        assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", end)
        assert "".join(getattr(block, "text", "") for block in message.content) == text[: text.index(end)]


async def test_structured_output_matches_its_schema(engine, sdk):
    schema: Any = {"type": "json_schema", "schema": WEATHER["input_schema"]}
    message = await sdk(engine).messages.create(**ASK, output_config={"format": schema})
    assert json.loads(message.content[0].text)["city"] in CITIES
    assert engine.requests()[0].schema_failed is False


async def test_results_of_tools_are_part_of_the_prompt(engine, sdk):
    turns: Any = [
        {"role": "user", "content": "Oslo?"},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Oslo"}}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "rain and more rain"}]},
    ]
    client = sdk(engine)
    long = await client.messages.count_tokens(model=MODEL, messages=turns)
    turns[2]["content"][0]["content"] = "rain"
    short = await client.messages.count_tokens(model=MODEL, messages=turns)
    assert long.input_tokens > short.input_tokens


async def test_what_the_host_cannot_do_is_refused_by_this_apis_name(engine, sdk):
    image: Any = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    with pytest.raises(anthropic.BadRequestError, match="takes text only"):
        await sdk(engine).messages.create(**ASK | {"messages": [{"role": "user", "content": [image]}]})
    choice: Any = {"type": "auto", "disable_parallel_tool_use": True}  # a call that must be made is one alone
    with pytest.raises(anthropic.BadRequestError, match="disable_parallel_tool_use") as refused:
        await sdk(engine).messages.create(**ASK, tools=[WEATHER], tool_choice=choice)
    body: Any = refused.value.body
    assert body["error"]["details"]["param"] == "tool_choice.disable_parallel_tool_use"
