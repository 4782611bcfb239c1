"""The scripted model plays an agent's task, and agents' sessions are conversations."""

import json
from typing import Any

import pytest

READ: Any = {"name": "Read", "input_schema": {"type": "object"}}
TASK = 'Go [[call Read {"path": "a"}]] and [[call Read {"path": "b"}]] and [[call Delete {"path": "c"}]]'


async def test_the_scripted_model_calls_tools_one_by_one_and_answers(gateway, sdk):
    client = sdk(gateway)
    turns: list[Any] = [{"role": "user", "content": TASK}]
    for path in ("a", "b"):
        message = await client.messages.create(model="scripted-1", max_tokens=50, tools=[READ], messages=turns)
        [call] = message.content
        assert (message.stop_reason, call.name, call.input) == ("tool_use", "Read", {"path": path})
        result = {"type": "tool_result", "tool_use_id": call.id, "content": f"text of {path}"}
        turns += [{"role": "assistant", "content": message.content}, {"role": "user", "content": [result]}]
    last = await client.messages.create(model="scripted-1", max_tokens=50, tools=[READ], messages=turns)
    assert (last.stop_reason, last.content[0].text) == ("end_turn", "The tool says: text of b")


async def test_without_tools_the_task_is_a_prompt_like_any_other(gateway, sdk):
    message = await sdk(gateway).messages.create(
        model="scripted-1", max_tokens=50, messages=[{"role": "user", "content": TASK}]
    )
    assert message.content[0].text.startswith("Hello!")


@pytest.mark.parametrize(
    ("headers", "conversation"),
    [
        ({"X-Claude-Code-Session-Id": "s1"}, "s1"),
        ({"Session-Id": "s2"}, "s2"),
        ({"Session-Id": "s3", "X-Tollkeeper-Conversation-Id": "mine"}, "mine"),
        ({}, ""),
    ],
)
async def test_sessions_of_agents_are_conversations(gateway, kit, headers, conversation):
    body = json.dumps({"model": "scripted-1", "max_tokens": 5, "messages": [{"role": "user", "content": "a"}]}).encode()
    for path in ("/v1/messages", "/v1/chat/completions"):
        assert (await gateway.ask(kit.request(body, headers, path=path))).status == 200
    assert [record.conversation_id for record in gateway.requests()] == [conversation] * 2
