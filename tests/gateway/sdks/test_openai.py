"""The openai SDK, blocking and not, on the torch engine: chats, tools, structured answers, embeddings, completions."""

import json
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from tests.gateway.sdks.conftest import CHAT, EMBEDDER, TOOLS

HELLO: Any = [{"role": "user", "content": "What is a bridge?"}]
CITIES = ["Oslo", "Rome"]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": CITIES}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER: Any = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]


class Bridge(BaseModel):
    """What a structured answer is read as."""

    model_config = ConfigDict(extra="forbid")
    size: int = Field(ge=0, le=99)
    kind: Literal["arch", "beam"]


def check_records(engine, count: int, operation: str = "chat") -> None:
    """Hold the records to one an answer, counted by the engine."""
    records = engine.requests()
    assert [record.operation for record in records] == [operation] * count
    for record in records:
        assert (record.outcome, record.count_method, record.provider) == ("ok", "exact", "engine")
        assert record.cost_pico_usd is not None


async def test_a_chat_is_answered_and_a_stream_says_the_same(openai_sdk, engine) -> None:
    asked = {"model": CHAT, "messages": HELLO, "temperature": 0, "max_tokens": 20}
    whole = await openai_sdk.do(lambda client: client.chat.completions.create(**asked))
    chunks = await openai_sdk.all(
        lambda client: client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content and len(text) > 20
    assert chunks[-1].usage == whole.usage and whole.usage.completion_tokens > 5
    check_records(engine, 2)


async def test_a_forced_tool_is_called_whole_and_streamed(openai_sdk, engine) -> None:
    asked = {"model": TOOLS, "messages": HELLO, "temperature": 0, "max_tokens": 120, "tools": WEATHER}
    whole = await openai_sdk.do(lambda client: client.chat.completions.create(**asked, tool_choice="required"))
    streamed = await openai_sdk.final(
        lambda client: client.chat.completions.stream(**asked, tool_choice="required"), "get_final_completion"
    )
    for answer in (whole, streamed):
        [choice] = answer.choices
        [call] = choice.message.tool_calls
        assert choice.finish_reason == "tool_calls" and call.function.name == "weather"
        assert json.loads(call.function.arguments)["city"] in CITIES
    check_records(engine, 2)
    assert [record.tool_calls for record in engine.requests()] == [1, 1]


async def test_a_tool_is_left_to_the_model_where_nothing_forces_it(openai_sdk, engine) -> None:
    asked = {"model": TOOLS, "messages": HELLO, "temperature": 0, "max_tokens": 16, "tools": WEATHER}
    answer = await openai_sdk.do(lambda client: client.chat.completions.create(**asked, tool_choice="auto"))
    [choice] = answer.choices
    assert choice.finish_reason in ("stop", "length", "tool_calls")
    assert choice.message.content is not None or choice.message.tool_calls
    assert answer.usage.completion_tokens > 0
    check_records(engine, 1)


async def test_an_answer_is_what_its_schema_says(openai_sdk, engine) -> None:
    asked = {"model": CHAT, "messages": HELLO, "temperature": 0, "max_tokens": 60}
    schema = {"name": "bridge", "schema": Bridge.model_json_schema(), "strict": True}
    stated = {"type": "json_schema", "json_schema": schema}
    answer = await openai_sdk.do(lambda client: client.chat.completions.create(**asked, response_format=stated))
    Bridge.model_validate_json(answer.choices[0].message.content)
    parsed = await openai_sdk.do(lambda client: client.chat.completions.parse(**asked, response_format=Bridge))
    assert isinstance(parsed.choices[0].message.parsed, Bridge)
    check_records(engine, 2)
    assert [record.schema_failed for record in engine.requests()] == [False, False]


async def test_texts_are_embedded(openai_sdk, engine) -> None:
    texts = ["A bridge spans a river.", "A span over water."]
    found = await openai_sdk.do(lambda client: client.embeddings.create(model=EMBEDDER, input=texts))
    assert [len(one.embedding) for one in found.data] == [384, 384] and found.usage.prompt_tokens > 8
    check_records(engine, 1, "embeddings")


async def test_a_text_is_completed_and_a_stream_says_the_same(openai_sdk, engine) -> None:
    asked = {"model": CHAT, "prompt": "A bridge is", "temperature": 0, "max_tokens": 12}
    whole = await openai_sdk.do(lambda client: client.completions.create(**asked))
    chunks = await openai_sdk.all(lambda client: client.completions.create(**asked, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == whole.choices[0].text != ""
    check_records(engine, 2, "text_completion")


async def test_models_are_listed(openai_sdk) -> None:
    assert {model.id for model in await openai_sdk.all(lambda client: client.models.list())} == {CHAT, TOOLS, EMBEDDER}


async def test_a_response_is_made_kept_continued_and_deleted(openai_sdk, engine) -> None:
    asked = {"model": CHAT, "temperature": 0, "max_output_tokens": 20}
    first = await openai_sdk.do(lambda client: client.responses.create(**asked, input="What is a bridge?"))
    assert first.status in ("completed", "incomplete") and first.output_text and first.usage.output_tokens > 0
    again = await openai_sdk.do(lambda client: client.responses.retrieve(first.id))
    assert again.output_text == first.output_text
    second = await openai_sdk.do(
        lambda client: client.responses.create(**asked, input="And a road?", previous_response_id=first.id)
    )
    assert second.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens
    items = await openai_sdk.all(lambda client: client.responses.input_items.list(second.id))
    assert len(items) >= 1
    await openai_sdk.do(lambda client: client.responses.delete(first.id))
    check_records(engine, 2)


async def test_a_response_is_streamed_in_events(openai_sdk, engine) -> None:
    asked = {"model": CHAT, "temperature": 0, "max_output_tokens": 20, "input": "What is a bridge?"}
    whole = await openai_sdk.do(lambda client: client.responses.create(**asked))
    events = await openai_sdk.all(lambda client: client.responses.create(**asked, stream=True))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == whole.output_text == events[-1].response.output_text
    assert events[0].type == "response.created" and events[-1].response.usage == whole.usage
    assert [event.sequence_number for event in events] == list(range(len(events)))
    check_records(engine, 2)


async def test_a_response_calls_tools_and_follows_a_schema(openai_sdk, engine) -> None:
    tool = {"type": "function", "name": "weather", "parameters": SCHEMA, "strict": True}
    called = await openai_sdk.do(
        lambda client: client.responses.create(
            model=TOOLS, input="Weather?", tools=[tool], tool_choice="required", temperature=0, max_output_tokens=120
        )
    )
    [call] = [item for item in called.output if item.type == "function_call"]
    assert call.name == "weather" and json.loads(call.arguments)["city"] in CITIES
    parsed = await openai_sdk.do(
        lambda client: client.responses.parse(
            model=CHAT, input="A bridge", text_format=Bridge, temperature=0, max_output_tokens=60
        )
    )
    assert isinstance(parsed.output_parsed, Bridge)
    check_records(engine, 2)


@pytest.mark.parametrize("endpoint", ["/v1/chat/completions", "/v1/embeddings"])
async def test_a_batch_is_worked_off(openai_sdk, engine, eventually, endpoint) -> None:
    body: dict[str, Any] = {"model": EMBEDDER, "input": "a bridge"}
    if endpoint == "/v1/chat/completions":
        body = {"model": CHAT, "messages": HELLO, "max_tokens": 4, "temperature": 0}
    lines = [{"custom_id": f"n{number}", "method": "POST", "url": endpoint, "body": body} for number in range(3)]
    data = b"\n".join(json.dumps(line).encode() for line in lines)
    file = await openai_sdk.do(lambda client: client.files.create(file=("a.jsonl", data), purpose="batch"))
    batch = await openai_sdk.do(
        lambda client: client.batches.create(input_file_id=file.id, endpoint=endpoint, completion_window="24h")
    )
    await eventually(lambda: len(engine.requests()) == 3, 20.0)
    while batch.status not in ("completed", "failed", "expired", "cancelled"):
        batch = await openai_sdk.do(lambda client, id=batch.id: client.batches.retrieve(id))
    assert batch.status == "completed" and batch.request_counts.completed == 3, batch
    content = await openai_sdk.do(lambda client: client.files.content(batch.output_file_id))
    found = [json.loads(line) for line in content.text.splitlines()]
    assert {line["custom_id"] for line in found} == {"n0", "n1", "n2"}
    assert all(line["response"]["status_code"] == 200 for line in found)
    assert all(record.priority == "batch" for record in engine.requests())
    check_records(engine, 3, "chat" if endpoint == "/v1/chat/completions" else "embeddings")
