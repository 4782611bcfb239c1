"""Tools and reasoning of an engine host's model behind the gateway, as OpenAI's SDK meets them."""

import json
from typing import Any

import openai
import pytest

from tests.gateway.host_process import TOOLS_MODEL as MODEL
from tests.gateway.host_process import HostProcess

HELLO: Any = [{"role": "user", "content": "Weather in Oslo?"}]
CITIES = ["Oslo", "Rome"]
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {
                "type": "object",
                "properties": {"city": {"enum": CITIES}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }
]
NAMED: Any = {"type": "function", "function": {"name": "weather"}}


@pytest.fixture
async def tools(start_gateway, kit, eventually, engine_host: HostProcess):
    gateway = await start_gateway(
        kit.configuration((MODEL, [{"name": "e1", "kind": "engine", "url": engine_host.url}]))
    )

    def is_ready() -> bool:
        hosts = gateway.gateway.health()["engines"].values()
        return all(host["state"] == "ready" and MODEL in host["models"] for host in hosts)

    await eventually(is_ready, 60.0)
    return gateway


def create(gateway, **fields):
    given: dict[str, Any] = {"model": MODEL, "messages": HELLO, "temperature": 0, "max_tokens": 120, **fields}
    return gateway.sdk().chat.completions.create(**given)


@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
async def test_a_forced_call_is_one_the_sdk_understands(tools, choice) -> None:
    answer = await create(tools, tools=TOOLS, tool_choice=choice)
    (one,) = answer.choices
    (call,) = one.message.tool_calls
    assert (one.finish_reason, one.message.content) == ("tool_calls", None)
    assert call.id.startswith("call_") and call.function.name == "weather"
    assert json.loads(call.function.arguments)["city"] in CITIES


async def test_a_streamed_call_is_put_together_by_the_sdk(tools) -> None:
    sdk = tools.sdk()
    async with sdk.chat.completions.stream(
        model=MODEL, messages=HELLO, temperature=0, max_tokens=120, n=2, tools=TOOLS, tool_choice="required",
        stream_options={"include_usage": True},
    ) as stream:  # fmt: skip
        answer = await stream.get_final_completion()
    assert len(answer.choices) == 2
    ids = set()
    for one in answer.choices:
        (call,) = one.message.tool_calls
        assert one.finish_reason == "tool_calls" and call.function.name == "weather"
        assert json.loads(call.function.arguments)["city"] in CITIES
        ids.add(call.id)
    assert len(ids) == 2
    whole = await create(tools, n=2, tools=TOOLS, tool_choice="required")
    assert answer.usage.completion_tokens == whole.usage.completion_tokens > 0


async def test_calls_are_counted_on_the_record_streamed_or_not(tools) -> None:
    await create(tools, n=2, tools=TOOLS, tool_choice="required")
    async for _ in await create(tools, n=2, tools=TOOLS, tool_choice="required", stream=True):
        pass
    await create(tools, response_format={"type": "json_object"}, max_tokens=1)
    counts = [(record.tool_calls, record.schema_failed) for record in tools.requests()]
    assert counts == [(2, None), (2, None), (None, True)], "one token is no JSON object"


async def test_reasoning_stands_apart_and_is_counted(tools) -> None:
    answer = await create(
        tools, max_tokens=12, extra_body={"chat_template_kwargs": {"think": True}, "ignore_eos": True}
    )
    (one,) = answer.choices
    assert one.message.content == "" and one.message.reasoning_content
    assert answer.usage.completion_tokens == answer.usage.completion_tokens_details.reasoning_tokens == 12


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"tool_choice": "required"}, "tools is empty"),
        ({"tools": TOOLS, "tool_choice": "often"}, "tool_choice must be"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "jump"}}}, "jump"),
        (
            {"tools": TOOLS, "tool_choice": "required", "response_format": {"type": "json_object"}},
            "another field",
        ),
    ],
)
async def test_a_call_that_cannot_be_forced_is_refused(tools, fields: dict[str, Any], named: str) -> None:
    with pytest.raises(openai.BadRequestError, match=named):
        await create(tools, **fields)


@pytest.mark.parametrize("tool", [[], "weather", 5, None, {"type": 5}, {"function": "weather"}, {"type": "function"}])
async def test_a_tool_of_another_shape_is_refused_or_rendered_but_no_fault(tools, tool: Any) -> None:
    reply = await tools.chat({"model": MODEL, "messages": HELLO, "max_tokens": 3, "tools": [tool]})
    assert reply.status in (200, 400)
    if not isinstance(tool, dict) or tool.get("type", "function") != "function":
        assert reply.status == 400 and reply.json["error"]["param"] == "tools[0]"
