"""What is found in answers: tool calls where tools were offered, JSON where JSON was asked for; else nothing."""

import asyncio
import json
from typing import Any

import msgspec
import pytest

from contracts.api.chat import ChatRequest
from contracts.api.completion import CompletionRequest
from contracts.api.generation import Delta
from gateway.replies.answer_facts import AnswerFacts, facts_wanted

TOOLS: Any = [{"type": "function", "function": {"name": "f"}}]
JSON_OBJECT = {"type": "json_object"}
JSON_SCHEMA = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}}


def wanted(**fields) -> AnswerFacts | None:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], **fields}
    return facts_wanted(msgspec.json.decode(msgspec.json.encode(body), type=ChatRequest))


def calls(*pieces: dict[str, Any], index: int = 0) -> Delta:
    return Delta(tokens=1, index=index, tool_calls=json.dumps(pieces).encode())


@pytest.mark.parametrize(
    "fields",
    [{}, {"tools": []}, {"response_format": None}, {"response_format": {"type": "text"}}, {"response_format": 5}],
)
def test_a_request_without_tools_or_json_has_nothing_looked_at(fields):
    assert wanted(**fields) is None


def test_a_completion_may_ask_for_json_too():
    body = msgspec.json.encode({"model": "m", "prompt": "x", "response_format": JSON_OBJECT})
    facts = facts_wanted(msgspec.json.decode(body, type=CompletionRequest))
    assert facts is not None
    assert facts.read_whole(b'{"choices": [{"index": 0, "text": "{}"}]}') is False
    assert facts.read_whole(b'{"choices": [{"index": 0, "text": "{"}]}') is True


@pytest.mark.parametrize(
    ("text", "failed_as_object", "failed_as_schema"),
    [
        ('{"a": 1}', False, False),
        (' {"a": "\\u00e9\\ud83d\\ude00"}\n', False, False),
        ("[1, 2]", True, False),
        ('"text"', True, False),
        ("null", True, False),
        ("", True, True),
        ('{"a": 1', True, True),
        ('{"a": 1} trailing', True, True),
        ('```json\n{"a": 1}\n```', True, True),
        ("{'a': 1}", True, True),
        ('{"a": 01}', True, True),
        ('{"a": NaN}', True, True),
        ('{"a": "line\nbreak"}', True, True),
        ("[" * 100_000, True, True),
    ],
)
def test_text_is_judged_by_whether_it_is_json(text, failed_as_object, failed_as_schema):
    for response_format, failed in ((JSON_OBJECT, failed_as_object), (JSON_SCHEMA, failed_as_schema)):
        facts = wanted(response_format=response_format)
        assert facts is not None
        assert facts.judge([text]) is failed


def test_one_bad_choice_is_a_failure_and_a_choice_without_text_is_not_judged():
    facts = wanted(response_format=JSON_OBJECT)
    assert facts is not None
    assert facts.judge(["{}", "no"]) is True
    assert facts.judge(["{}", None]) is False
    assert facts.judge([None]) is None
    assert facts.judge([]) is None


def test_a_call_in_many_pieces_is_one_call():
    facts = wanted(tools=TOOLS)
    assert facts is not None
    facts.take(calls({"index": 0, "id": "c1", "function": {"name": "f", "arguments": ""}}))
    for piece in ('{"a"', ": 1", "}"):
        facts.take(calls({"index": 0, "function": {"arguments": piece}}))
    facts.take(calls({"index": 0, "id": "c1"}, {"index": 1, "id": "c2"}))
    facts.take(calls({"index": 0, "id": "c3"}, index=1))
    assert facts.tool_calls(is_complete=True) == 3


def test_servers_that_number_every_call_alike_are_counted_by_id():
    facts = wanted(tools=TOOLS)
    assert facts is not None
    facts.take(calls({"index": 0, "id": "c1"}))
    facts.take(calls({"id": "c2"}))
    facts.take(calls({"index": None, "id": "c3"}))
    assert facts.tool_calls(is_complete=True) == 3


def test_an_id_that_comes_late_makes_no_second_call():
    facts = wanted(tools=TOOLS)
    assert facts is not None
    facts.take(calls({"index": 0, "function": {"name": "f"}}))
    facts.take(calls({"index": 0, "id": "c1"}))
    assert facts.tool_calls(is_complete=True) == 1


def test_what_a_failed_attempt_called_is_forgotten():
    facts = wanted(tools=TOOLS)
    assert facts is not None
    facts.take(calls({"index": 0, "id": "c1"}))
    facts.begin()
    assert facts.tool_calls(is_complete=True) == 0


def test_none_seen_in_a_broken_answer_is_not_known_to_be_none():
    facts = wanted(tools=TOOLS)
    assert facts is not None
    assert facts.tool_calls(is_complete=False) is None
    facts.take(calls({"index": 0, "id": "c1"}))
    assert facts.tool_calls(is_complete=False) == 1


@pytest.mark.parametrize("broken", [b"null", b"{}", b"[", b'["x"]', b'[{"index": "one"}]', b"\xff"])
def test_calls_that_cannot_be_read_are_no_calls(broken):
    facts = wanted(tools=TOOLS)
    assert facts is not None
    facts.take(Delta(tokens=1, tool_calls=broken))
    assert facts.tool_calls(is_complete=True) == 0


# over real sockets


@pytest.fixture
async def behind(start_gateway, upstream, kit):
    """A gateway in front of the model server."""
    return await start_gateway(kit.configuration(("m", [kit.http_target(upstream.url)])))


def streamed(upstream, *deltas: dict[str, Any]) -> tuple[bytes, ...]:
    chunks: list[Any] = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    events = b"".join(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks) + b"data: [DONE]\n\n"
    return upstream.stream_head(), upstream.piece(events), upstream.END


async def test_calls_in_an_upstreams_stream_are_counted_and_pass_through_unchanged(behind, upstream):
    first = {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "f", "arguments": ""}}]}
    more = {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}
    second = {"tool_calls": [{"index": 1, "id": "c2", "function": {"name": "f", "arguments": "{}"}}]}
    upstream.always(*streamed(upstream, first, more, second))
    answer = await behind.chat(model="m", stream=True, tools=TOOLS, response_format=JSON_OBJECT)
    deltas = [json.loads(event[6:])["choices"][0]["delta"] for event in answer.events[:-1]]
    assert deltas == [first, more, second, {}]
    [record] = behind.requests()
    assert (record.tool_calls, record.schema_failed) == (2, None), "a stream's text is not kept, so not judged"


async def test_a_request_without_tools_records_no_count(behind, upstream):
    upstream.always(*streamed(upstream, {"content": "hi", "tool_calls": [{"index": 0, "id": "c1"}]}))
    await behind.chat(model="m", stream=True)
    [record] = behind.requests()
    assert (record.tool_calls, record.schema_failed) == (None, None)


async def test_a_request_that_no_model_answered_records_no_count(behind, upstream):
    upstream.always(upstream.whole({"error": {"message": "no"}}, status=500))
    assert (await behind.chat(model="m", tools=TOOLS, response_format=JSON_OBJECT)).status == 502
    assert (await behind.chat(model="none", tools=TOOLS)).status == 404
    assert [(record.tool_calls, record.schema_failed) for record in behind.requests()] == [(None, None)] * 2


async def test_calls_seen_before_the_client_left_are_recorded(behind, upstream, kit):
    first = upstream.piece(b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1"}]}}]}\n\n')
    upstream.always(upstream.stream_head(), first, upstream.STALL)
    client = await behind.connect()
    await client.send(kit.request(model="m", stream=True, tools=TOOLS))
    await client.reader.readuntil(b'"c1"')
    client.close()
    for _ in range(300):
        if behind.requests():
            break
        await asyncio.sleep(0.01)
    [record] = behind.requests()
    assert (record.outcome, record.tool_calls) == ("cancelled", 1)


async def test_an_answer_that_the_gateway_puts_together_is_judged_like_any_other(gateway):
    await gateway.chat(response_format=JSON_OBJECT, tools=TOOLS)
    [record] = gateway.requests()
    assert (record.tool_calls, record.schema_failed) == (0, True), "the scripted model speaks no JSON"


def test_called_tools_are_named_and_equal_calls_have_equal_marks_streamed_or_whole():
    streamed = wanted(tools=TOOLS)
    whole = wanted(tools=TOOLS)
    assert streamed is not None and whole is not None
    begun = {"index": 0, "id": "a", "function": {"name": "Bash", "arguments": ""}}
    streamed.take(calls(begun))
    for piece in ('{"c":', "1}"):
        streamed.take(calls({"index": 0, "function": {"arguments": piece}}))
    again = {"index": 1, "id": "b", "function": {"name": "Bash", "arguments": '{"c":1}'}}
    other = {"index": 2, "id": "c", "function": {"name": "Read", "arguments": '{"c":1}'}}
    streamed.take(calls(again, other))
    assert streamed.tool_calls(is_complete=True) == 3
    first, second, third = streamed.called()
    assert first == second and (first.name, third.name) == ("Bash", "Read") and first.mark != third.mark
    message = {"tool_calls": [{**begun, "function": {"name": "Bash", "arguments": '{"c":1}'}}, {"id": "x"}]}
    whole.read_whole(json.dumps({"choices": [{"message": message}]}).encode())
    assert [call.name for call in whole.called()] == ["Bash", ""] and whole.called()[0] == first


@pytest.mark.parametrize("count", [63, 64, 65])
def test_at_most_64_calls_are_named_and_all_are_counted(count):
    facts = wanted(tools=TOOLS)
    assert facts is not None
    for number in range(count):
        facts.take(calls({"index": number, "id": str(number), "function": {"name": "f", "arguments": "{}"}}))
    assert (len(facts.called()), facts.tool_calls(is_complete=True)) == (min(count, 64), count)
