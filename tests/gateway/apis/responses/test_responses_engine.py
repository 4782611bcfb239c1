"""The Responses API on models that really run, in an engine host of their own process, as OpenAI's SDK meets it."""

import asyncio
import json
from typing import Any, Literal

import openai
import pytest
from pydantic import BaseModel

from tests.gateway.host_process import MODEL
from tests.gateway.host_process import TOOLS_MODEL as CALLER  # which a grammar makes call

TOOL: Any = {
    "type": "function",
    "name": "weather",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"city": {"enum": ["Oslo", "Rome"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
QUESTION = "What is a bridge?"


class Bridge(BaseModel):
    """What the model is to fill in."""

    kind: Literal["arch", "beam"]


@pytest.fixture
async def engine(start_gateway, kit, eventually, engine_host):
    pools = [(name, [{"name": "e1", "kind": "engine", "url": engine_host.url}]) for name in (MODEL, CALLER)]
    gateway = await start_gateway(kit.configuration(*pools))
    await eventually(lambda: engine_host.serves(gateway, MODEL, CALLER), 60.0)
    return gateway


def ask(gateway, **fields):
    given: dict[str, Any] = {"model": MODEL, "input": QUESTION, "temperature": 0, "max_output_tokens": 30, **fields}
    return gateway.sdk().responses.create(**given)


async def test_a_response_says_and_costs_what_the_equal_chat_does(engine):
    chat = await engine.sdk().chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": QUESTION}], temperature=0, max_tokens=30
    )
    whole = await ask(engine)
    async with engine.sdk().responses.stream(
        model=MODEL, input=QUESTION, temperature=0, max_output_tokens=30
    ) as stream:
        deltas = [event.delta async for event in stream if event.type == "response.output_text.delta"]
        streamed = await stream.get_final_response()
    text = chat.choices[0].message.content
    assert text == whole.output_text == streamed.output_text == "".join(deltas) and len(text) > 20
    of_chat, of_whole, of_stream = engine.requests()
    assert of_chat.usage == of_whole.usage == of_stream.usage and of_whole.count_method == "exact"
    assert of_chat.cost_pico_usd == of_whole.cost_pico_usd == of_stream.cost_pico_usd
    assert whole.usage.input_tokens == chat.usage.prompt_tokens
    assert whole.usage.output_tokens == chat.usage.completion_tokens
    assert of_stream.gap_clock == "engine" and of_stream.gpu is not None


async def test_a_conversation_goes_on_with_exact_counts(engine):
    first = await ask(engine)
    second = await ask(engine, input="And a dome?", previous_response_id=first.id)
    by_hand = await engine.sdk().chat.completions.create(
        model=MODEL,
        temperature=0,
        max_tokens=30,
        messages=[
            {"role": "user", "content": QUESTION},
            {"role": "assistant", "content": first.output_text},
            {"role": "user", "content": "And a dome?"},
        ],
    )
    assert second.output_text == by_hand.choices[0].message.content
    assert second.usage.input_tokens == by_hand.usage.prompt_tokens > first.usage.input_tokens


async def test_structured_output_is_parsed_by_both_sdks(engine):
    response = await engine.sdk().responses.parse(model=MODEL, input="Which?", text_format=Bridge)
    assert response.output_parsed is not None and response.output_parsed.kind in ("arch", "beam")

    def ask_sync() -> str:
        with openai.OpenAI(base_url=engine.base_url, api_key=engine.sdk().api_key, max_retries=0) as client:
            parsed = client.responses.parse(model=MODEL, input="Which?", text_format=Bridge).output_parsed
            assert parsed is not None
            return parsed.kind

    assert await asyncio.to_thread(ask_sync) in ("arch", "beam")


async def test_log_probabilities_stand_beside_the_text(engine):
    response = await ask(
        engine, max_output_tokens=5, include=["message.output_text.logprobs"], top_logprobs=2, store=False
    )
    [part] = response.output[0].content
    assert len(part.logprobs) == 5 and "".join(token.token for token in part.logprobs) == part.text
    assert all(len(token.top_logprobs) == 2 and token.logprob <= 0 for token in part.logprobs)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "weather"}], ids=["required", "named"])
async def test_a_call_is_made_streamed_and_answered(engine, choice):
    given = {"model": CALLER, "input": "Weather?", "temperature": 0, "tools": [TOOL], "tool_choice": choice}
    async with engine.sdk().responses.stream(**given) as stream:
        pieces = [event.delta async for event in stream if event.type == "response.function_call_arguments.delta"]
        streamed = await stream.get_final_response()
    [call] = streamed.output
    assert call.type == "function_call" and call.name == "weather" and call.call_id.startswith("call_")
    assert json.loads(call.arguments)["city"] in ("Oslo", "Rome") and "".join(pieces) == call.arguments
    whole = await engine.sdk().responses.create(**given)
    assert whole.output[0].arguments == call.arguments
    assert whole.usage.total_tokens == streamed.usage.total_tokens
    output = [{"type": "function_call_output", "call_id": whole.output[0].call_id, "output": "rain"}]
    after = await ask(engine, model=CALLER, input=output, previous_response_id=whole.id, max_output_tokens=3)
    assert after.status in ("completed", "incomplete") and after.usage.output_tokens <= 3


async def test_what_the_model_cannot_take_is_refused_by_name(engine):
    for fields, named in (
        ({"max_output_tokens": 100_000}, "max_output_tokens is 100000"),
        (
            {
                "input": [
                    {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AA=="}]}
                ]
            },
            "takes text only",
        ),
    ):
        with pytest.raises(openai.BadRequestError, match=named):
            await ask(engine, **fields)
