"""Tool calls told apart from text, wherever the text is cut; what is not a call is text, and nothing is lost."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.engine.parsers.answer import AnswerParser
from backends.engine.parsers.hermes import HermesParser
from backends.engine.parsers.llama3_json import Llama3JsonParser
from backends.engine.parsers.reasoning import ReasoningParser, ReasoningTags
from backends.engine.parsers.tool_call import ToolCallParser

CALL = '{"name": "look", "arguments": {"at": "a } \\" </tool_call> {"}}'
LLAMA = CALL.replace("arguments", "parameters")
ARGUMENTS = '{"at": "a } \\" </tool_call> {"}'
HERMES_WORDS = [
    "<tool_call>", "</tool_call>", "<", "tool", "_call>", "{", "}", '"', "[", "]", ":", "\\", "\n", " ", "a", "é",
    '{"name": "look", "arguments": {}}', '{"name": "look"', ', "arguments": {"a": [1, "x"]}}',
]  # fmt: skip
LLAMA_WORDS = [
    "<|python_tag|>", "<|", "python", ";", ",", "{", "}", '"', '"name"', "\n", " ", "a", "é",
    '{"name": "look", "parameters": {}}', '{"name": "look"', '{"name": "other"', ', "parameters": {"a": [1]}}',
]  # fmt: skip


def make(kind: str) -> ToolCallParser:
    return HermesParser() if kind == "hermes" else Llama3JsonParser(["look"])


def heard(kind: str, pieces: list[str], *, end: bool = True) -> tuple[str, list[tuple[str, str]]]:
    parser = make(kind)
    told = [parser.push(piece) for piece in pieces] + ([parser.finish()] if end else [])
    calls = [(call.name, call.arguments) for one in told for call in one.calls]
    return "".join(one.content for one in told), calls


LOOK = ("look", ARGUMENTS)
CASES = [
    ("hermes", f"<tool_call>\n{CALL}\n</tool_call>", "", [LOOK]),
    ("hermes", f"\n<tool_call>{CALL}</tool_call>\n<tool_call>{CALL}</tool_call>\n", "", [LOOK, LOOK]),
    ("hermes", f"I look.\n<tool_call>{CALL}</tool_call> So.", "I look.\n So.", [LOOK]),
    ("hermes", f"<tool_call>{CALL}", "", [LOOK]),
    ("hermes", f"<tool_call>{CALL}\n<tool_call>{CALL}</tool_call>", "", [LOOK, LOOK]),
    ("hermes", '<tool_call>{"name": "ping"}</tool_call>', "", [("ping", "{}")]),
    ("hermes", '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1.0}"}</tool_call>', "", [("f", '{"a": 1.0}')]),
    ("hermes", f"<tool_call>{CALL[:-1]}", f"<tool_call>{CALL[:-1]}", []),
    ("hermes", "<tool_call>{]</tool_call>x", "<tool_call>{]</tool_call>x", []),
    ("hermes", "<tool_call>go</tool_call>", "<tool_call>go</tool_call>", []),
    ("hermes", '<tool_call>{"name": "f", "arguments": [1]}</tool_call>', '<tool_call>{"name": "f", "arguments": [1]}</tool_call>', []),  # noqa: E501  # the same twice
    ("hermes", f'<tool_call>{{"name": "x}}\n</tool_call><tool_call>{CALL}</tool_call>', '<tool_call>{"name": "x}\n</tool_call>', [LOOK]),  # noqa: E501  # the same twice
    ("hermes", "a < b, <tool", "a < b, <tool", []),
    ("hermes", " \n", " \n", []),
    ("llama3_json", LLAMA, "", [LOOK]),
    ("llama3_json", f"\n{LLAMA}; {LLAMA}\n", "", [LOOK, LOOK]),
    ("llama3_json", f"<|python_tag|>{LLAMA}", "", [LOOK]),
    ("llama3_json", f"I look. <|python_tag|>{LLAMA}", "I look. ", [LOOK]),
    ("llama3_json", '{"type": "function", "name": "look", "parameters": {}}', "", [("look", "{}")]),
    ("llama3_json", '{"name": "Ada", "parameters": {}}', '{"name": "Ada", "parameters": {}}', []),
    ("llama3_json", '{"answer": 42}', '{"answer": 42}', []),
    ("llama3_json", LLAMA[:-1], LLAMA[:-1], []),
    ("llama3_json", "<|python_tag|>print(1)", "<|python_tag|>print(1)", []),
    ("llama3_json", f"Look: {LLAMA}", f"Look: {LLAMA}", []),
    ("llama3_json", f"{LLAMA} done", " done", [LOOK]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text", "content", "calls"), CASES)
def test_every_cut_gives_the_same(kind: str, text: str, content: str, calls: list[tuple[str, str]]) -> None:
    for place in range(len(text) + 1):
        assert heard(kind, [text[:place], text[place:]]) == (content, calls)
    assert heard(kind, list(text)) == (content, calls)


@given(st.sampled_from(["hermes", "llama3_json"]), st.data())
def test_what_is_out_depends_on_the_text_so_far_alone(kind: str, data: st.DataObject) -> None:
    words = HERMES_WORDS if kind == "hermes" else LLAMA_WORDS
    text = "".join(data.draw(st.lists(st.sampled_from(words), max_size=14)))
    place = data.draw(st.integers(0, len(text)))
    for end in (False, True):
        whole = heard(kind, [text], end=end)
        assert whole == heard(kind, list(text), end=end) == heard(kind, [text[:place], text[place:]], end=end)


@given(st.sampled_from(["hermes", "llama3_json"]), st.data())
def test_an_answer_without_calls_is_given_as_it_was_written(kind: str, data: st.DataObject) -> None:
    words = HERMES_WORDS if kind == "hermes" else LLAMA_WORDS
    text = "".join(data.draw(st.lists(st.sampled_from(words), max_size=14)))
    content, calls = heard(kind, list(text))
    if not calls:
        assert content == text
    else:
        left = content + "".join(arguments for _, arguments in calls)
        assert {"é", "[", "\\"} & set(text) <= set(left)
        assert all(isinstance(json.loads(arguments), dict) for _, arguments in calls)


def test_text_is_held_back_only_while_it_may_be_a_tag() -> None:
    parser = HermesParser()
    assert parser.push("Let me see. <tool_").content == "Let me see. "
    assert parser.push("box").content == "<tool_box"
    assert Llama3JsonParser(["look"]).push('{"x').content == '{"x'
    assert Llama3JsonParser(["look"]).push('{"name": "Ada"').content == '{"name": "Ada"'


def answers(pieces: list[str], choice: int = 0) -> tuple[str, str, list[dict[str, object]]]:
    reasoning = ReasoningParser(ReasoningTags("<think>", "</think>"), is_open=False)
    parser = AnswerParser(b"\1" * 16, choice, reasoning, HermesParser())
    told = [parser.push(piece, (len(piece),)) for piece in pieces]
    told.append(parser.finish())
    calls = [call for one in told if one.tool_calls for call in json.loads(one.tool_calls)]
    assert parser.calls == len(calls)
    return "".join(one.reasoning for one in told), "".join(one.content for one in told), calls


def test_calls_have_the_shape_of_the_api_and_names_that_another_replica_gives_too() -> None:
    text = f"<think>hm</think>\n\n<tool_call>{CALL}</tool_call><tool_call>{CALL}</tool_call>"
    reasoning, content, calls = answers(list(text))
    assert (reasoning, content) == ("hm", "")
    assert [call["index"] for call in calls] == [0, 1]
    assert all(call["type"] == "function" and str(call["id"]).startswith("call_") for call in calls)
    assert calls[0]["function"] == {"name": "look", "arguments": ARGUMENTS}
    assert answers([text]) == (reasoning, content, calls)
    others = answers([text], choice=1)[2]
    assert len({call["id"] for call in calls + others}) == 4


def test_a_call_spoken_of_while_reasoning_is_none() -> None:
    text = f"<think>maybe <tool_call>{CALL}</tool_call></think>No."
    assert answers(list(text)) == (f"maybe <tool_call>{CALL}</tool_call>", "No.", [])
