"""Tool calls and reasoning over a real socket, from a model that a grammar makes write them."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from backends.engine.base import ModelOrder
from contracts.engine.wire import Delta, Grammar
from tests.backends.engine.host_client import HostClient, StartHost, make_submit
from tests.backends.engine.torch_engine.tiny_models import build_tokenizer

CITIES = ["Oslo", "Rome", "Bern", "Kyiv"]
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"enum": CITIES}, "days": {"enum": [1, 2]}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS = json.dumps(
    [
        {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}},
        {"type": "function", "function": {"name": "ping"}},
    ]
).encode()
PROMPT = [50, 60, 70]
TOKENIZER = build_tokenizer()


def calls_of(deltas: list[Delta]) -> list[dict[str, Any]]:
    return [call for delta in deltas if delta.tool_calls for call in json.loads(delta.tool_calls)]


async def connected(start_host: StartHost, **settings: object) -> HostClient:
    running = await start_host("tiny", **settings)
    return await (await running.client()).ready()


@pytest.mark.parametrize("kind", ["hermes", "llama3_json"])
async def test_a_forced_call_comes_as_a_call_for_every_choice_alone(start_host: StartHost, kind: str) -> None:
    client = await connected(start_host, engine_tool_parser=kind)
    submit = make_submit(
        1, PROMPT, max_tokens=120, n=4, temperature=8.0, seed=3, tools=TOOLS, tool_choice="function:weather"
    )
    end = await client.run(submit)
    assert (end.finish_reason, end.error_code) == ("tool_calls", "")
    seen = set()
    for index in range(4):
        deltas = client.deltas(submit.request_id, index)
        call = calls_of(deltas)[0]
        arguments = json.loads(call["function"]["arguments"])
        assert len(calls_of(deltas)) == 1 and call["index"] == 0
        assert call["function"]["name"] == "weather" and arguments["city"] in CITIES
        assert deltas[-1].finish_reason == "tool_calls" and client.text(submit.request_id, index) == ""
        assert all(len(delta.token_ids) == len(delta.times_ns) == 1 for delta in deltas)
        seen.add((call["id"], arguments["city"]))
    assert len({name for name, _ in seen}) == 4 and len({city for _, city in seen}) > 1
    tokens = sum(len(client.token_ids(submit.request_id, index)) for index in range(4))
    assert (end.usage.output_text, end.usage.output_reasoning) == (tokens, None)


async def test_a_required_call_is_of_any_tool(start_host: StartHost) -> None:
    client = await connected(start_host, engine_tool_parser="hermes")
    submit = make_submit(1, PROMPT, max_tokens=120, tools=TOOLS, tool_choice="required")
    await client.run(submit)
    (call,) = calls_of(client.deltas(submit.request_id))
    assert call["function"]["name"] in ("weather", "ping")


async def test_a_call_cut_short_is_text(start_host: StartHost) -> None:
    client = await connected(start_host, engine_tool_parser="hermes")
    submit = make_submit(1, PROMPT, max_tokens=12, tools=TOOLS, tool_choice="function:weather")
    end = await client.run(submit)
    ids = client.token_ids(submit.request_id)
    assert (end.finish_reason, end.usage.output_text, len(ids)) == ("length", 12, 12)
    assert client.text(submit.request_id) == TOKENIZER.decode(ids) != ""
    assert calls_of(client.deltas(submit.request_id)) == []


async def test_another_replica_goes_on_within_a_call(start_host: StartHost) -> None:
    client = await connected(start_host, engine_tool_parser="hermes")
    options: dict[str, Any] = {"max_tokens": 120, "tools": TOOLS, "tool_choice": "function:weather"}
    whole = make_submit(1, PROMPT, **options)
    await client.run(whole)
    ids = client.token_ids(whole.request_id)
    expected = [call["function"] for call in calls_of(client.deltas(whole.request_id))]
    for cut in range(1, len(ids) - 1, 5):
        rest = make_submit(1000 + cut, PROMPT, generated_ids=ids[:cut], **options)
        await client.run(rest)
        assert ids[:cut] + client.token_ids(rest.request_id) == ids
        told = calls_of(client.deltas(whole.request_id)[:cut]) + calls_of(client.deltas(rest.request_id))
        assert [call["function"] for call in told] == expected and len(expected) == 1


async def test_without_tools_nothing_is_looked_for(start_host: StartHost) -> None:
    client = await connected(start_host, engine_tool_parser="hermes")
    text = '<tool_call>{"name": "ping"}</tool_call>'
    submit = make_submit(
        1, PROMPT, max_tokens=80, ignore_eos=False, grammar=Grammar(kind="choice", text=json.dumps([text]))
    )
    end = await client.run(submit)
    assert client.text(submit.request_id) == text and end.finish_reason == "stop"


async def test_a_model_of_unknown_form_refuses_to_force_a_call(start_host: StartHost) -> None:
    client = await connected(start_host)
    end = await client.run(make_submit(1, PROMPT, tools=TOOLS, tool_choice="required"))
    assert end.error_code == "invalid_request" and "TOLLKEEPER_ENGINE_TOOL_PARSER" in end.error_message
    assert end.usage.total_tokens == 0


async def test_reasoning_that_the_prompt_opened_is_counted_apart(start_host: StartHost) -> None:
    client = await connected(start_host, engine_reasoning_tags="<think> </think>")
    opened = TOKENIZER.encode("Hello<think>\n").ids
    thinking = make_submit(1, opened, max_tokens=20)
    end = await client.run(thinking)
    deltas = client.deltas(thinking.request_id)
    text = TOKENIZER.decode(client.token_ids(thinking.request_id))
    assert "".join(delta.reasoning for delta in deltas) == text.lstrip() and client.text(thinking.request_id) == ""
    assert (end.usage.output_text, end.usage.output_reasoning, end.usage.output_tokens) == (0, 20, 20)
    plain = make_submit(2, opened, max_tokens=20, parse_reasoning=False)
    end = await client.run(plain)
    assert client.text(plain.request_id) == text
    assert (end.usage.output_text, end.usage.output_reasoning) == (20, None)


async def test_reasoning_of_another_replica_is_not_counted_again(start_host: StartHost) -> None:
    client = await connected(start_host, engine_reasoning_tags="<think> </think>")
    begun = TOKENIZER.encode("<think>The quick brown").ids
    submit = make_submit(1, PROMPT, max_tokens=len(begun) + 10, generated_ids=begun)
    end = await client.run(submit)
    assert (end.usage.output_text, end.usage.output_reasoning) == (0, 10)
    over = TOKENIZER.encode("<think>fox</think>").ids
    submit = make_submit(2, PROMPT, max_tokens=len(over) + 10, generated_ids=over)
    end = await client.run(submit)
    assert (end.usage.output_text, end.usage.output_reasoning) == (10, 0)


async def test_tags_that_are_special_tokens_are_seen_where_they_are_looked_for(
    start_host: StartHost, tiny_path: Path, tmp_path: Path
) -> None:
    path = tmp_path / "special"
    path.mkdir()
    for file in tiny_path.iterdir():
        (path / file.name).symlink_to(file)
    tokenizer = Tokenizer.from_file(str(tiny_path / "tokenizer.json"))
    rare = [token for token in tokenizer.get_vocab() if token.startswith("rare")][:2]
    content = tokenizer.to_str().replace(f'"{rare[0]}"', '"<think>"').replace(f'"{rare[1]}"', '"</think>"')
    facts = json.loads(content)
    for token in facts["added_tokens"]:
        token["special"] = token["special"] or token["content"] in ("<think>", "</think>")
    (path / "tokenizer.json").unlink()
    (path / "tokenizer.json").write_text(json.dumps(facts))
    running = await start_host(engine_reasoning_tags="<think> </think>")
    running.host.models.load(ModelOrder("tiny", str(path)))
    client = await (await running.client()).ready()
    ids = Tokenizer.from_str(json.dumps(facts)).get_vocab()
    opened = [*PROMPT, ids["<think>"]]
    submit = make_submit(1, opened, max_tokens=8, logit_bias={ids["</think>"]: -100.0})  # it thinks on
    end = await client.run(submit)
    assert end.usage.output_reasoning == 8
    submit = make_submit(2, opened, max_tokens=8, logit_bias={ids["</think>"]: 100.0})
    end = await client.run(submit)
    assert end.usage.output_reasoning == 0 and client.text(submit.request_id).count("</think>") == 7
