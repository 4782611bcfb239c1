"""Tools of the built-in model, as clients of three APIs meet them: a call that must be made is one, and is valid."""

import json
from typing import Any

import openai
import pytest

from tests.gateway.apis.messages.conftest import sdk
from tests.gateway.host_process import MODEL, HostProcess

__all__ = ["sdk"]  # a fixture

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"path": {"enum": ["a.py", "b.py"]}, "lines": {"type": "integer", "minimum": 1, "maximum": 99}},
    "required": ["path", "lines"],
    "additionalProperties": False,
}
NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
TOOLS: Any = [
    {"type": "function", "function": {"name": "read", "description": "Read a file", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "list", "parameters": NO_ARGUMENTS}},
]
READ: Any = {"type": "function", "function": {"name": "read"}}
USER: Any = {"role": "user", "content": "Which file is it?"}


@pytest.fixture
async def gateway(start_gateway, kit, eventually, engine_host: HostProcess):
    gateway = await start_gateway(
        kit.configuration((MODEL, [{"name": "e1", "kind": "engine", "url": engine_host.url}]))
    )

    def is_ready() -> bool:
        hosts = gateway.gateway.health()["engines"].values()
        return all(host["state"] == "ready" and MODEL in host["models"] for host in hosts)

    await eventually(is_ready, 60.0)
    return gateway


def check(name: str, arguments: Any) -> None:
    """Hold a call to its tool's schema."""
    if name == "list":
        assert arguments == {}
        return
    assert name == "read" and set(arguments) == {"path", "lines"}
    assert arguments["path"] in ("a.py", "b.py") and type(arguments["lines"]) is int and 1 <= arguments["lines"] <= 99


def create(gateway: Any, **fields: Any) -> Any:
    given: dict[str, Any] = {"model": MODEL, "messages": [USER], "max_tokens": 100, "tools": TOOLS, **fields}
    return gateway.sdk().chat.completions.create(**given)


@pytest.mark.parametrize("choice", ["required", READ], ids=["required", "named"])
@pytest.mark.parametrize("temperature", [0, 1.5])
async def test_a_chat_gets_a_valid_call_whole_and_streamed(gateway, choice, temperature):
    answer = await create(gateway, tool_choice=choice, temperature=temperature, seed=1)
    [one] = answer.choices
    [call] = one.message.tool_calls
    assert one.finish_reason == "tool_calls" and not one.message.content
    check(call.function.name, json.loads(call.function.arguments))
    assert choice == "required" or call.function.name == "read"
    fields: Any = {"messages": [USER], "max_tokens": 100, "tools": TOOLS, "tool_choice": choice, "seed": 1}
    async with gateway.sdk().chat.completions.stream(model=MODEL, temperature=temperature, **fields) as stream:
        streamed = await stream.get_final_completion()
    [same] = streamed.choices[0].message.tool_calls or []
    assert same.function.arguments == call.function.arguments
    assert [record.tool_calls for record in gateway.requests()] == [1, 1]


async def test_one_call_alone_is_a_promise_that_a_forced_call_keeps(gateway):
    answer = await create(gateway, tool_choice="required", parallel_tool_calls=False)
    assert len(answer.choices[0].message.tool_calls) == 1
    with pytest.raises(openai.BadRequestError, match="parallel_tool_calls"):
        await create(gateway, parallel_tool_calls=False)


async def test_left_to_itself_the_model_answers_and_calls_nothing_that_is_invalid(gateway):
    for choice in ("auto", "none"):
        answer = await create(gateway, tool_choice=choice, max_tokens=20, temperature=0)
        message = answer.choices[0].message
        for call in message.tool_calls or []:
            check(call.function.name, json.loads(call.function.arguments))
        assert message.content or message.tool_calls
        assert choice == "auto" or not message.tool_calls


async def test_a_result_goes_back_and_the_model_answers(gateway):
    first = await create(gateway, tool_choice=READ)
    message = first.choices[0].message
    [call] = message.tool_calls
    turn: Any = {"role": "tool", "tool_call_id": call.id, "content": "print(1)"}
    after = await create(gateway, messages=[USER, message.model_dump(exclude_none=True), turn], max_tokens=8)
    assert after.choices[0].message.content
    assert after.usage.prompt_tokens > first.usage.prompt_tokens


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "read"}], ids=["any", "named"])
async def test_anthropics_sdk_gets_a_tool_use(gateway, sdk, choice):
    tools: Any = [{"name": "read", "input_schema": SCHEMA}, {"name": "list", "input_schema": NO_ARGUMENTS}]
    given: Any = {"model": MODEL, "max_tokens": 100, "messages": [USER], "tools": tools, "tool_choice": choice}
    given["extra_body"] = {"temperature": 0}
    whole = await sdk(gateway).messages.create(**given)
    [block] = whole.content
    assert (block.type, whole.stop_reason) == ("tool_use", "tool_use")
    check(block.name, block.input)
    async with sdk(gateway).messages.stream(**given) as stream:
        streamed = await stream.get_final_message()
    assert streamed.content[0].input == block.input and streamed.usage.output_tokens == whole.usage.output_tokens


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "read"}], ids=["required", "named"])
async def test_the_responses_api_gets_a_function_call(gateway, choice):
    tools: Any = [
        {"type": "function", "name": "read", "parameters": SCHEMA},
        {"type": "function", "name": "list", "parameters": NO_ARGUMENTS},
    ]
    given: Any = {"model": MODEL, "input": "Which file?", "tools": tools, "tool_choice": choice, "temperature": 0}
    whole = await gateway.sdk().responses.create(**given)
    [call] = whole.output
    assert call.type == "function_call"
    check(call.name, json.loads(call.arguments))
    async with gateway.sdk().responses.stream(**given) as stream:
        streamed = await stream.get_final_response()
    assert streamed.output[0].arguments == call.arguments
