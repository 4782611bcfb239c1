"""Items become a chat's messages: no text is lost, the order is kept, each output of a function follows its call."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.api.chat import TranslatedChat
from contracts.api.responses import InputItem
from contracts.errors import InvalidRequest
from gateway.apis.responses.reading import item_of, read_asked
from gateway.apis.responses.translation import chat_messages, chat_of, check_items

texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=8)
said = st.one_of(texts, st.lists(texts.map(lambda text: {"type": "input_text", "text": text}), max_size=3))
messages = st.builds(
    lambda role, content: {"type": "message", "role": role, "content": content},
    st.sampled_from(["user", "system", "developer", "assistant"]),
    said,
)
reasoning = st.just({"type": "reasoning", "id": "rs_1", "summary": []})
# How many functions are called at once, and whether the model says something before and after.
turns = st.tuples(st.integers(1, 3), st.booleans(), st.booleans(), said)


@st.composite
def conversations(draw) -> list[dict[str, Any]]:
    """Return items as agents send them: messages, thoughts, calls and, after them, what came of them."""
    items: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["message", "reasoning", "turn"]))
        if kind == "message":
            items.append(draw(messages))
        elif kind == "reasoning":
            items.append(draw(reasoning))
        else:
            calls, speaks, adds, output = draw(turns)
            ids = [f"call_{number}_{place}" for place in range(calls)]
            items += [{"type": "message", "role": "assistant", "content": "before"}] if speaks else []
            items += [
                {"type": "function_call", "call_id": one, "name": "f", "arguments": f'{{"n":"{one}"}}'} for one in ids
            ]
            items += [{"type": "message", "role": "assistant", "content": "after"}] if adds else []
            items += [{"type": "function_call_output", "call_id": one, "output": output} for one in ids]
    return items


def spoken(content: Any) -> list[str]:
    """The texts of a content, in order, in whichever form."""
    if content is None or isinstance(content, str):
        return [content] if content else []
    return [part.get("text") or part.get("refusal") for part in content]


def texts_of(items: list[dict[str, Any]]) -> list[str]:
    return [text for item in items for text in spoken(item.get("content", item.get("output")))]


def read_items(items: list[dict[str, Any]]) -> list[InputItem]:
    return [item_of(item) for item in items]


@settings(max_examples=100, deadline=None)
@given(conversations())
def test_no_text_is_lost_and_the_order_is_kept(items):
    chat = chat_messages(None, read_items(items))
    assert texts_of(items) == [text for message in chat for text in spoken(message["content"])]
    called = [call["id"] for message in chat for call in message.get("tool_calls", ())]
    assert called == [item["call_id"] for item in items if item["type"] == "function_call"]


@settings(max_examples=100, deadline=None)
@given(conversations())
def test_each_output_of_a_function_directly_follows_the_message_that_calls_it(items):
    chat = chat_messages("be brief", read_items(items))
    assert chat[0] == {"role": "system", "content": "be brief"}
    open_calls: set[str] = set()
    for message in chat:
        if message["role"] == "tool":
            assert message["tool_call_id"] in open_calls
            open_calls.discard(message["tool_call_id"])
        else:
            assert not open_calls, "a call of a function is not answered by what follows it"
            open_calls = {call["id"] for call in message.get("tool_calls", ())}


@settings(max_examples=100, deadline=None)
@given(conversations())
def test_history_and_input_make_the_chat_that_the_input_alone_would(items):
    asked = read_asked("application/json", json.dumps({"model": "m", "input": items}).encode())
    if not any(item["type"] != "reasoning" for item in items):
        with pytest.raises(InvalidRequest, match="input has no message"):
            check_items(asked)
        return
    check_items(asked)
    whole = chat_of(asked)
    place = len(items) // 2
    later = msgspec.structs.replace(asked, history=read_items(items[:place]), items=asked.items[place:])
    check_items(later)
    assert chat_of(later).chat_body == whole.chat_body


def translated(**fields: Any) -> tuple[TranslatedChat, dict[str, Any]]:
    asked = read_asked("application/json", json.dumps({"model": "m", "input": "hi", **fields}).encode())
    chat = chat_of(asked)
    return chat, json.loads(chat.chat_body)


def test_only_what_is_stated_is_passed_on():
    assert translated()[1] == {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def test_every_field_has_its_place_in_the_chat():
    schema = {"type": "object"}
    tool = {"type": "function", "name": "f", "description": "d", "parameters": schema, "strict": True}
    chat, body = translated(
        stream=True,
        max_output_tokens=5,
        temperature=0.5,
        top_p=0.25,
        include=["message.output_text.logprobs"],
        top_logprobs=2,
        tools=[tool],
        tool_choice={"type": "function", "name": "f"},
        parallel_tool_calls=False,
        text={"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": True}, "verbosity": "low"},
        reasoning={"effort": "low", "summary": "auto"},
        user="u",
        safety_identifier="s",
        prompt_cache_key="k",
        service_tier="flex",
        metadata={"a": "b"},
        instructions="be brief",
    )
    assert body == {
        "model": "m",
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}],
        "stream": True,
        "max_tokens": 5,
        "temperature": 0.5,
        "top_p": 0.25,
        "logprobs": True,
        "top_logprobs": 2,
        "tools": [{"type": "function", "function": {key: tool[key] for key in tool if key != "type"}}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "parallel_tool_calls": False,
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}},
        "verbosity": "low",
        "reasoning_effort": "low",
        "user": "u",
        "safety_identifier": "s",
        "prompt_cache_key": "k",
        "service_tier": "flex",
    }
    assert chat.is_streamed and chat.output_limit == 5 and chat.user == "u" and not chat.wants_usage


def test_a_safety_identifier_stands_for_the_user_where_none_is_named():
    assert translated(safety_identifier="s")[0].user == "s"


def test_images_files_and_sound_are_carried_as_a_chat_has_them():
    content = [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "low"},
        {"type": "input_file", "file_data": "data:application/pdf;base64,AA==", "filename": "a.pdf"},
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
    ]
    [message] = translated(input=[{"role": "user", "content": content}])[1]["messages"]
    assert message["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,AA==", "filename": "a.pdf"}},
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
    ]


def test_images_that_functions_give_follow_the_last_of_the_outputs():
    image = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}
    calls = [{"type": "function_call", "call_id": one, "name": "f", "arguments": "{}"} for one in ("a", "b")]
    outputs = [
        {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "seen"}, image]},
        {"type": "function_call_output", "call_id": "b", "output": "3"},
    ]
    messages = translated(input=[*calls, *outputs, {"role": "user", "content": "and?"}])[1]["messages"]
    assert [message["role"] for message in messages] == ["assistant", "tool", "tool", "user", "user"]
    assert messages[1]["content"] == "seen" and messages[2]["content"] == "3"
    shown = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    assert messages[3]["content"] == [{"type": "text", "text": "[images and documents of a]"}, shown]


def test_an_output_without_its_call_is_refused_in_openais_words():
    items = [{"role": "user", "content": "x"}, {"type": "function_call_output", "call_id": "call_9", "output": "3"}]
    asked = read_asked("application/json", json.dumps({"model": "m", "input": items}).encode())
    with pytest.raises(InvalidRequest, match="No tool call found for function call output with call_id call_9."):
        check_items(asked)
