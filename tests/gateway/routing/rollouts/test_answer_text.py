"""The text of an answer, which refusals are told by and likeness, out of what a client was sent."""

import json

import pytest

from gateway.routing.rollouts.answer_text import text_of


def chat(message):
    return json.dumps({"choices": [{"index": 0, "message": message}]}).encode()


def events(*found):
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in found) + b"data: [DONE]\n\n"


def call(name="", arguments=""):
    return {"tool_calls": [{"index": 0, "function": {"name": name, "arguments": arguments}}]}


RESPONSES = (
    {"type": "response.output_item.added", "item": {"type": "function_call", "name": "look", "arguments": ""}},
    {"type": "response.function_call_arguments.delta", "delta": '{"at":1}'},
    {"type": "response.output_item.done", "item": {"type": "function_call", "name": "look", "arguments": '{"at":1}'}},
)
MESSAGES = (
    {"type": "content_block_start", "content_block": {"type": "tool_use", "name": "look", "input": {}}},
    {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": '{"at":1}'}},
)


@pytest.mark.parametrize(
    "sent",
    [
        chat({"content": None, **call("look", '{"at":1}')}),
        events({"choices": [{"delta": call("look")}]}, {"choices": [{"delta": call(arguments='{"at":1}')}]}),
        json.dumps({"output": [{"type": "function_call", "name": "look", "arguments": '{"at":1}'}]}).encode(),
        json.dumps({"content": [{"type": "tool_use", "name": "look", "input": {"at": 1}}]}).encode(),
        events(*RESPONSES),
        events(*MESSAGES),
    ],
)
def test_answers_that_call_tools_are_told_apart_by_what_they_call_in_every_apis_words(sent):
    assert text_of(sent) == 'look{"at":1}'


def test_an_answer_is_its_text_and_what_is_none_has_none():
    assert text_of(chat({"content": "It rains."})) == "It rains."
    assert text_of(
        events({"choices": [{"delta": {"content": "It "}}]}, {"choices": [{"delta": {"content": "rains."}}]})
    )
    assert [text_of(sent) for sent in (b"", b"[1]", b"data: nothing\n\n", b"{")] == [None] * 4
