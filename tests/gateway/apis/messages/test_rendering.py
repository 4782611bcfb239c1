"""Deltas become a message or its events: blocks in their order, each opened and closed once, ended for a reason."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.api.generation import Delta
from contracts.errors import LimitExceeded, UpstreamBroken
from contracts.metering.usage import Usage
from gateway.apis.messages.blocks import UNPARSED
from gateway.apis.messages.rendering import MessageRenderer

USED = Usage(input_text=3, output_text=2)


def renderer(*, shows_thinking: bool = True) -> MessageRenderer:
    return MessageRenderer("msg_1", "m", shows_thinking=shows_thinking)


def call(
    place: int | None = 0, name: str | None = None, arguments: str | None = None, call_id: str | None = None
) -> bytes:
    return json.dumps([{"index": place, "id": call_id, "function": {"name": name, "arguments": arguments}}]).encode()


def says(text: str = "", **fields: Any) -> Delta:
    return Delta(tokens=1, text=text, **fields)


def events_of(rendered: bytes) -> list[dict[str, Any]]:
    found = []
    for event in rendered.decode().split("\n\n")[:-1]:
        name, data = event.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}", "the SDKs go by this line"
    return found


def streamed(*deltas: Delta, shows_thinking: bool = True) -> list[dict[str, Any]]:
    made = renderer(shows_thinking=shows_thinking)
    rendered = made.opening(0) + b"".join(made.delta(delta) for delta in deltas)
    return events_of(rendered + made.closing(USED, wants_usage=True))


def put_together(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Accumulate a stream as a client does, and hold it to the protocol's order."""
    assert [events[0]["type"], *(event["type"] for event in events[-2:])] == [
        "message_start",
        "message_delta",
        "message_stop",
    ]
    message: dict[str, Any] = events[0]["message"]
    is_open: int | None = None
    texts: dict[int, str] = {}
    for event in events[1:-2]:
        index = event["index"]
        if event["type"] == "content_block_start":
            assert is_open is None and index == len(message["content"])
            is_open, texts[index] = index, ""
            message["content"].append(event["content_block"])
        elif event["type"] == "content_block_stop":
            assert is_open == index
            is_open = None
        elif event["delta"]["type"] == "signature_delta":
            message["content"][index]["signature"] = event["delta"]["signature"]
        else:
            texts[index] += next(value for name, value in event["delta"].items() if name != "type")
    assert is_open is None
    for index, block in enumerate(message["content"]):
        if block["type"] == "tool_use":
            block["input"] = json.loads(texts[index] or "{}")
        elif block["type"] != "redacted_thinking":
            block[block["type"]] = texts[index]
    message |= events[-2]["delta"]
    message["usage"] |= events[-2]["usage"]
    return message


def whole(*deltas: Delta, shows_thinking: bool = True) -> dict[str, Any]:
    made = renderer(shows_thinking=shows_thinking)
    choice = made.new_choice()
    for delta in deltas:
        choice.take(delta)
    found = json.loads(made.whole([choice], USED))
    assert isinstance(found, dict)
    return found


END = says(finish_reason="stop")


def test_a_stream_tells_what_a_whole_message_says():
    deltas = [
        says(reasoning="let me "),
        says(reasoning="see"),
        says("I "),
        says("ask."),
        says(tool_calls=call(0, "weather", "", "a")),
        says(tool_calls=call(0, None, '{"city":')),
        says(tool_calls=call(0, None, '"Oslo"}')),
        says(tool_calls=call(1, "news", "{}", "b")),
        says(finish_reason="tool_calls"),
    ]
    events = streamed(*deltas)
    assert [event["type"] for event in events].count("content_block_start") == 4
    message = put_together(events)
    assert message == whole(*deltas)
    assert message["content"] == [
        {"type": "thinking", "thinking": "let me see", "signature": ""},
        {"type": "text", "text": "I ask."},
        {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Oslo"}},
        {"type": "tool_use", "id": "b", "name": "news", "input": {}},
    ]
    assert (message["id"], message["type"], message["role"], message["model"]) == ("msg_1", "message", "assistant", "m")
    assert (message["stop_reason"], message["stop_sequence"]) == ("tool_use", None)
    assert message["usage"] == {"input_tokens": 3, "output_tokens": 2, "service_tier": "standard"}


def test_thoughts_that_were_not_asked_for_are_not_shown():
    deltas = [says(reasoning="hm"), says("a"), END]
    for message in (put_together(streamed(*deltas, shows_thinking=False)), whole(*deltas, shows_thinking=False)):
        assert message["content"] == [{"type": "text", "text": "a"}]


def thoughts(*blocks: dict[str, Any], reasoning: str = "") -> Delta:
    return says(reasoning=reasoning, thinking_blocks=json.dumps(blocks).encode())


def test_thoughts_are_signed_where_their_maker_signs_them():
    deltas = [
        thoughts({"type": "thinking", "thinking": "let "}, reasoning="let "),
        thoughts({"type": "thinking", "thinking": "me", "signature": ""}, reasoning="me"),
        thoughts({"type": "thinking", "thinking": "", "signature": "s1"}),
        thoughts({"type": "redacted_thinking", "data": "secret"}),
        thoughts({"type": "thinking", "thinking": "so", "signature": "s2"}, reasoning="so"),
        says("Yes."),
        END,
    ]
    for message in (put_together(streamed(*deltas)), whole(*deltas)):
        assert message["content"] == [
            {"type": "thinking", "thinking": "let me", "signature": "s1"},
            {"type": "redacted_thinking", "data": "secret"},
            {"type": "thinking", "thinking": "so", "signature": "s2"},
            {"type": "text", "text": "Yes."},
        ]
    assert [block["type"] for block in whole(*deltas, shows_thinking=False)["content"]] == ["text"]


@pytest.mark.parametrize("broken", [b"null", b"3", b'[{"type": 3}]', b"[]", b'[{"type": "thinking"}]'])
def test_thoughts_whose_signatures_cannot_be_read_are_thoughts_all_the_same(broken):
    message = whole(says(reasoning="hm", thinking_blocks=broken), says("a"), END)
    assert message["content"][0] == {"type": "thinking", "thinking": "hm", "signature": ""}


@pytest.mark.parametrize(
    ("last", "reason", "sequence"),
    [
        ({"finish_reason": "stop"}, "end_turn", None),
        ({"finish_reason": "stop", "stop": "END"}, "stop_sequence", "END"),
        ({"finish_reason": "length"}, "max_tokens", None),
        ({"finish_reason": "content_filter"}, "refusal", None),
        ({"finish_reason": "tool_calls"}, "tool_use", None),
        ({"finish_reason": "something new"}, "end_turn", None),
        ({"finish_reason": "stop", "tool_calls": call(0, "f", "{}", "a")}, "tool_use", None),
        ({"finish_reason": "length", "tool_calls": call(0, "f", "{}", "a")}, "max_tokens", None),
    ],
)
def test_an_answer_ends_for_a_reason(last, reason, sequence):
    for message in (put_together(streamed(says("a"), says(**last))), whole(says("a"), says(**last))):
        assert (message["stop_reason"], message["stop_sequence"]) == (reason, sequence)
        assert ("stop_details" in message) is (reason == "refusal")


def test_an_answer_without_an_end_or_without_anything_is_a_message_all_the_same():
    assert put_together(streamed(says("a")))["stop_reason"] == "end_turn"
    empty = renderer().closing(USED, wants_usage=True)
    assert put_together(events_of(empty))["content"] == []
    assert json.loads(renderer().whole([], USED))["content"] == []


def test_what_the_target_reports_first_opens_the_stream():
    made = renderer()
    made.usage_at_start = Usage(input_text=4, cache_read_text=60)
    [start] = events_of(made.opening(0))
    assert start["message"]["usage"] == {
        "input_tokens": 4,
        "cache_read_input_tokens": 60,
        "output_tokens": 0,
        "service_tier": "standard",
    }
    assert (start["message"]["stop_reason"], start["message"]["stop_sequence"]) == (None, None)
    assert made.opening(0) == b"", "a stream opens once"


def test_an_answer_that_the_gateway_cuts_ends_as_one_of_its_length_and_says_why():
    made = renderer()
    rendered = made.opening(0) + made.delta(says("a")) + made.ending(0, LimitExceeded("no more", code="spent"))
    events = events_of(rendered + made.closing(USED, wants_usage=True))
    assert put_together(events)["stop_reason"] == "max_tokens"
    assert events[-2]["tollkeeper"] == {"ended_by": {"code": "spent", "message": "no more"}}
    nothing_yet = renderer()
    rendered = nothing_yet.ending(0, LimitExceeded("no more")) + nothing_yet.closing(USED, wants_usage=True)
    assert put_together(events_of(rendered))["stop_reason"] == "max_tokens"


@pytest.mark.parametrize("arguments", ["{", '{"city": "Os', "[1]", '"x"', "null", "nonsense"])
def test_arguments_that_are_no_object_are_kept_as_their_text(arguments):
    message = whole(says(tool_calls=call(0, "f", arguments, "a")), END)
    assert message["content"][0]["input"] == {UNPARSED: arguments}


def test_calls_are_told_apart_by_id_where_a_server_counts_no_places():
    deltas = [says(tool_calls=call(0, "f", '{"a":1}', "a")), says(tool_calls=call(0, "g", '{"b":2}', "b")), END]
    for message in (put_together(streamed(*deltas)), whole(*deltas)):
        found = [(block["id"], block["name"], block["input"]) for block in message["content"]]
        assert found == [("a", "f", {"a": 1}), ("b", "g", {"b": 2})]


def test_a_call_begins_with_its_name_and_has_an_id_whatever_the_server_sends():
    deltas = [says(tool_calls=call(0, None, '{"a"', "x")), says(tool_calls=call(None, "f", ":1}")), END]
    assert whole(*deltas)["content"] == [{"type": "tool_use", "id": "x", "name": "f", "input": {"a": 1}}]
    assert put_together(streamed(*deltas))["content"] == whole(*deltas)["content"]
    [unnamed] = whole(says(tool_calls=call(0, "f", "{}")), END)["content"]
    assert unnamed["id"] == "toolu_1_0"


def test_a_late_piece_of_a_call_goes_to_that_call():
    deltas = [
        says(tool_calls=call(0, "f", '{"a":', "a")),
        says(tool_calls=call(1, "g", "{}", "b")),
        says(tool_calls=call(0, None, "1}")),
        END,
    ]
    assert [block["input"] for block in whole(*deltas)["content"]] == [{"a": 1}, {}]
    late = [event for event in streamed(*deltas) if event.get("delta", {}).get("partial_json") == "1}"]
    assert [event["index"] for event in late] == [0]


def test_calls_that_cannot_be_read_are_the_targets_fault():
    with pytest.raises(UpstreamBroken, match="tool calls"):
        renderer().delta(says(tool_calls=b'{"not": "a list"}'))


def test_other_choices_are_left_out():
    assert renderer().delta(says("a", index=1)) == b""
    assert renderer().ending(1, LimitExceeded("x")) == b""


PIECES = st.one_of(
    st.builds(says, st.text(min_size=1, max_size=5)),
    st.builds(lambda words: says(reasoning=words), st.text(min_size=1, max_size=5)),
    st.builds(lambda place: says(tool_calls=call(place, "f", '{"x":1}', f"id{place}")), st.integers(0, 50)),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(PIECES, max_size=12), st.booleans())
def test_whatever_comes_a_stream_and_a_whole_message_agree(deltas, shows_thinking):
    unique = {}
    for delta in deltas:
        unique[delta.tool_calls or id(delta)] = delta
    deltas = [*unique.values(), END]
    message = put_together(streamed(*deltas, shows_thinking=shows_thinking))
    assert message == whole(*deltas, shows_thinking=shows_thinking)
    said = "".join(block["text"] for block in message["content"] if block["type"] == "text")
    assert said == "".join(delta.text for delta in deltas)
    thought = "".join(block["thinking"] for block in message["content"] if block["type"] == "thinking")
    assert thought == ("".join(delta.reasoning for delta in deltas) if shows_thinking else "")
