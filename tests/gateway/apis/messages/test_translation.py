"""A request of the Messages API as a chat: by examples, and by what holds of every conversation."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.api.chat import ChatRequest
from gateway.apis.messages.translation import read_messages_as_chat, read_prompt_as_chat

PNG = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
IMAGE = {"type": "image", "source": PNG}
IMAGE_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
KEEP = {"cache_control": {"type": "ephemeral"}}
TOOL = {"name": "weather", "description": "Tells it.", "input_schema": {"type": "object"}}


def text(words: str, **more: object) -> dict[str, object]:
    return {"type": "text", "text": words, **more}


def read(*messages: dict[str, Any], **fields: Any):
    given = list(messages) or [{"role": "user", "content": "hello"}]
    body = {"model": "m", "max_tokens": 9999, "messages": given, **fields}
    return read_messages_as_chat("application/json", json.dumps(body).encode())


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": blocks[0] if len(blocks) == 1 and isinstance(blocks[0], str) else list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {**user(*blocks), "role": "assistant"}


def chat(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    found = json.loads(read(*messages, **fields).chat_body)
    assert isinstance(found, dict)
    return found


def use(name: str, **arguments: object) -> dict[str, Any]:
    return {"type": "tool_use", "id": name, "name": "weather", "input": arguments}


def result(name: str, content: object = None, **more: object) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": name, **({} if content is None else {"content": content}), **more}


def test_a_plain_conversation_is_the_chat_that_anybody_would_write():
    messages = [user("hello"), assistant("hi"), user(text("and now?"))]
    assert chat(*messages, system="be brief", temperature=0.5, stream=True) == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": "hi"},
            {"role": "user", "content": "and now?"},
        ],
        "max_tokens": 9999,
        "stream": True,
        "temperature": 0.5,
    }


def test_neighbours_of_one_role_become_one_turn():
    messages = chat(user("a"), user(text("b"), IMAGE), assistant("c"), assistant("d"), user("e"))["messages"]
    assert messages == [
        {"role": "user", "content": [text("a"), text("b"), IMAGE_PART]},
        {"role": "assistant", "content": [text("c"), text("d")]},
        {"role": "user", "content": "e"},
    ]


def test_results_of_tools_follow_the_calls_in_their_order_before_anything_else_of_the_turn():
    turns = [
        user("Oslo and Rome?"),
        assistant(text("I ask."), use("a", city="Oslo"), use("b", city="Rome")),
        user(text("quick!"), result("b", "rain"), result("a", [text("sun"), text("wind")])),
    ]
    calls = [
        {"id": name, "type": "function", "function": {"name": "weather", "arguments": arguments}}
        for name, arguments in (("a", '{"city": "Oslo"}'), ("b", '{"city": "Rome"}'))
    ]
    assert chat(*turns)["messages"][1:] == [
        {"role": "assistant", "content": "I ask.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "b", "content": "rain"},
        {"role": "tool", "tool_call_id": "a", "content": [text("sun"), text("wind")]},
        {"role": "user", "content": "quick!"},
    ]


@pytest.mark.parametrize(
    ("block", "content"),
    [
        (result("a"), ""),
        (result("a", []), ""),
        (result("a", is_error=True), "Error"),
        (result("a", "no such city", is_error=True), "Error: no such city"),
        (result("a", [text("no"), text("city")], is_error=True), [text("Error: no"), text("city")]),
        (result("a", "fine", is_error=False), "fine"),
    ],
)
def test_a_result_says_whether_it_is_an_error(block, content):
    messages = chat(user("x"), assistant(use("a")), user(block))["messages"]
    assert messages[1]["content"] is None, "a call without words"
    assert messages[2:] == [{"role": "tool", "tool_call_id": "a", "content": content}]


def test_an_image_in_a_result_stands_in_the_next_message_as_tool_messages_are_text():
    messages = chat(user("x"), assistant(use("a")), user(result("a", [text("see"), IMAGE]), text("what is it?")))
    assert messages["messages"][2:] == [
        {"role": "tool", "tool_call_id": "a", "content": [text("see"), text("[images and documents follow]")]},
        {"role": "user", "content": [text("[images and documents of a]"), IMAGE_PART, text("what is it?")]},
    ]


def test_an_image_by_address_keeps_it():
    image = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    part = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    assert chat(user(image))["messages"] == [{"role": "user", "content": [part]}]


@pytest.mark.parametrize(
    ("document", "content"),
    [
        ({"source": {"type": "text", "media_type": "text/plain", "data": "body"}}, "body"),
        (
            {"source": {"type": "text", "media_type": "text/plain", "data": "body"}, "title": "T", "context": "C"},
            "T\n\nC\n\nbody",
        ),
        ({"source": {"type": "content", "content": "body"}, "title": "T"}, [text("T"), text("body")]),
        ({"source": {"type": "content", "content": [text("a"), IMAGE]}}, [text("a"), IMAGE_PART]),
        (
            {"source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}, "context": "C"},
            [
                text("C"),
                {
                    "type": "file",
                    "file": {"filename": "document.pdf", "file_data": "data:application/pdf;base64,AAAA"},
                },
            ],
        ),
    ],
)
def test_a_document_comes_with_what_is_said_of_it(document, content):
    assert chat(user({"type": "document", **document}))["messages"] == [{"role": "user", "content": content}]


def test_a_system_message_within_the_conversation_stays_where_it_is():
    messages = chat(user("a"), {"role": "system", "content": "be brief"}, user("b"))["messages"]
    assert [message["role"] for message in messages] == ["user", "system", "user"]


def test_thoughts_go_back_to_who_signed_them_and_to_nobody_else():
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    secret = {"type": "redacted_thinking", "data": "x"}
    unsigned = {"type": "thinking", "thinking": "by another model", "signature": ""}
    request = read(user("a"), assistant(thought, secret, unsigned, text("b")), user("c"))
    plain, marked = json.loads(request.chat_body), json.loads(request.marked_body)
    assert plain["messages"][1] == {"role": "assistant", "content": "b"}
    assert marked["messages"][1] == {"role": "assistant", "content": [text("b")], "thinking_blocks": [thought, secret]}
    assert read(user("a"), assistant(unsigned, text("b")), user("c")).marked_body == b""


def test_marks_of_the_cache_are_for_the_servers_that_understand_them():
    hour = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    request = read(
        user(text("a", **KEEP), {**IMAGE, **KEEP}),
        assistant({**use("a"), **KEEP}),
        user(result("a", "b", **KEEP)),
        system=[text("s"), text("t", **hour)],
        tools=[{**TOOL, **KEEP}],
    )
    plain, marked = json.loads(request.chat_body), json.loads(request.marked_body)
    assert "cache_control" not in request.chat_body.decode()
    assert marked["messages"][0]["content"] == [text("s"), text("t", **hour)]
    assert [part["cache_control"] for part in marked["messages"][1]["content"]] == [KEEP["cache_control"]] * 2
    assert [thing["cache_control"] for thing in marked["messages"][2]["tool_calls"]] == [KEEP["cache_control"]]
    assert marked["messages"][3]["cache_control"] == marked["tools"][0]["cache_control"] == KEEP["cache_control"]
    assert stripped(marked) == stripped(plain), "the marks are all the difference"


def stripped(value: Any) -> Any:
    """Remove the marks from a body, by hand."""
    if isinstance(value, dict):
        return {name: stripped(one) for name, one in value.items() if name not in ("cache_control", "thinking_blocks")}
    if isinstance(value, list):
        parts = [stripped(one) for one in value]
        is_text = len(parts) == 1 and isinstance(parts[0], dict) and parts[0].get("type") == "text"
        return parts[0]["text"] if is_text else parts
    return value


@pytest.mark.parametrize(
    ("turns", "place"),
    [
        ([user("a"), assistant("b"), user("c")], ("content", 0)),
        ([user("a"), assistant(use("a")), user(result("a", "b"))], ()),
        ([user("a"), assistant(use("a")), user(result("a", "b"), text("c"), text("d"))], ("content", 1)),
    ],
)
def test_a_mark_on_the_request_is_one_on_its_last_block(turns, place):
    marked = json.loads(read(*turns, **KEEP).marked_body)
    found = marked["messages"][-1]
    for step in place:
        found = found[step]
    assert found["cache_control"] == {"type": "ephemeral"}
    assert json.dumps(marked).count("cache_control") == 1


def test_tools_are_functions():
    fields = chat(tools=[TOOL, {**TOOL, "name": "news", "type": "custom", "strict": True}])
    function = {"name": "weather", "description": "Tells it.", "parameters": {"type": "object"}}
    assert fields["tools"] == [
        {"type": "function", "function": function},
        {"type": "function", "function": {**function, "name": "news", "strict": True}},
    ]


@pytest.mark.parametrize(
    ("choice", "fields"),
    [
        ({"type": "auto"}, {"tool_choice": "auto"}),
        ({"type": "any"}, {"tool_choice": "required"}),
        ({"type": "none"}, {"tool_choice": "none"}),
        (
            {"type": "tool", "name": "weather"},
            {"tool_choice": {"type": "function", "function": {"name": "weather"}}},
        ),
        (
            {"type": "any", "disable_parallel_tool_use": True},
            {"tool_choice": "required", "parallel_tool_calls": False},
        ),
        ({"type": "auto", "disable_parallel_tool_use": False}, {"tool_choice": "auto"}),
    ],
)
def test_a_choice_of_tools_is_put_in_the_chats_words(choice, fields):
    found = chat(tools=[TOOL], tool_choice=choice)
    assert {name: found[name] for name in ("tool_choice", "parallel_tool_calls") if name in found} == fields
    assert "tool_choice" not in chat(tool_choice={"type": "auto"}), "which chats refuse without tools"


@pytest.mark.parametrize(
    ("fields", "effort"),
    [
        ({}, None),
        ({"thinking": {"type": "disabled"}}, "none"),
        ({"thinking": {"type": "adaptive"}}, None),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "low"),
        ({"thinking": {"type": "enabled", "budget_tokens": 4095}}, "low"),
        ({"thinking": {"type": "enabled", "budget_tokens": 4096}}, "medium"),
        ({"thinking": {"type": "enabled", "budget_tokens": 16383}, "max_tokens": 20000}, "medium"),
        ({"thinking": {"type": "enabled", "budget_tokens": 16384}, "max_tokens": 20000}, "high"),
        ({"output_config": {"effort": "xhigh"}}, "xhigh"),
        ({"output_config": {"effort": "max"}}, "max"),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}, "low"),
        ({"thinking": {"type": "enabled", "budget_tokens": 8000}, "output_config": {"effort": "high"}}, "high"),
        ({"thinking": {"type": "disabled"}, "output_config": {"effort": "high"}}, "none"),
    ],
)
def test_how_much_to_think_becomes_an_effort(fields, effort):
    request = read(**fields)
    assert request.reasoning_effort == json.loads(request.chat_body).get("reasoning_effort") == effort


def test_the_rest_is_called_what_chats_call_it():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    found = chat(
        top_p=0.9,
        top_k=5,
        stop_sequences=["END"],
        metadata={"user_id": "u" * 300},
        service_tier="standard_only",
        output_config={"format": {"type": "json_schema", "schema": schema}},
        betas=["x"],
    )
    del found["messages"]
    assert found == {
        "model": "m",
        "max_tokens": 9999,
        "top_p": 0.9,
        "top_k": 5,
        "stop": ["END"],
        "user": "u" * 256,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": schema, "strict": True},
        },
    }
    assert chat(output_format={"type": "json_schema", "schema": schema})["response_format"] == found["response_format"]


def test_the_typed_chat_and_its_body_are_one():
    request = read(user("a"), stream=True, top_k=3, tools=[TOOL], stop_sequences=["x"])
    same = msgspec.json.decode(request.chat_body, type=ChatRequest)
    assert all(getattr(request, name) == getattr(same, name) for name in ChatRequest.__struct_fields__)
    assert (request.is_streamed, request.output_limit, request.wants_usage) == (True, 9999, False)


def test_a_prompt_to_be_counted_needs_no_limit_and_may_end_with_an_answer():
    body = {"model": "m", "messages": [user("a"), assistant("b")], "tools": [TOOL]}
    request = read_prompt_as_chat("application/json", json.dumps(body).encode())
    assert request.output_limit is None and len(request.messages) == 2 and len(request.tools or []) == 1


# What holds of every conversation.

WORDS = st.text(max_size=12)
TEXTS = st.builds(text, WORDS, cache_control=st.none() | st.just({"type": "ephemeral"}))
IDS = st.text("abc", min_size=1, max_size=3)
RESULTS = st.builds(
    result, IDS, st.none() | WORDS | st.lists(TEXTS | st.just(IMAGE), max_size=3), is_error=st.booleans()
)
USES = st.builds(use, IDS, city=WORDS)
THOUGHTS = st.builds(lambda words: {"type": "thinking", "thinking": words, "signature": "s"}, WORDS)
USERS = st.builds(lambda content: {"role": "user", "content": content}, WORDS | st.lists(TEXTS | RESULTS, max_size=4))
ASSISTANTS = st.builds(
    lambda content: {"role": "assistant", "content": content}, WORDS | st.lists(TEXTS | USES | THOUGHTS, max_size=4)
)
CONVERSATIONS = st.lists(USERS | ASSISTANTS, max_size=6).map(lambda turns: [*turns, user("end")])


def words_of(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in content or () if part["type"] == "text"]


def expected_words(messages: list[dict[str, Any]], role: str) -> list[str]:
    return [word for message in messages if message["role"] == role for word in words_of(message["content"])]


@settings(max_examples=120, deadline=None)
@given(CONVERSATIONS)
def test_no_text_is_lost_its_order_is_kept_and_its_role_is_right(messages):
    request = read(*messages)
    for body in (request.chat_body, request.marked_body or request.chat_body):
        found = json.loads(body)["messages"]
        for role in ("user", "assistant"):
            said = [word for word in expected_words(found, role) if not word.startswith("[images and documents")]
            assert list(filter(None, said)) == list(filter(None, expected_words(messages, role)))
        assert all(
            one["role"] != two["role"] or one["role"] == "tool" for one, two in zip(found, found[1:], strict=False)
        )


@settings(max_examples=120, deadline=None)
@given(CONVERSATIONS)
def test_every_call_and_every_result_is_handed_on_once_in_order(messages):
    blocks = [block for message in messages if isinstance(message["content"], list) for block in message["content"]]
    found = json.loads(read(*messages).chat_body)["messages"]
    calls = [
        (call["id"], json.loads(call["function"]["arguments"])) for one in found for call in one.get("tool_calls", ())
    ]
    assert calls == [(block["id"], block["input"]) for block in blocks if block["type"] == "tool_use"]
    results = [(one["tool_call_id"], "".join(words_of(one["content"]))) for one in found if one["role"] == "tool"]
    wanted = [block for block in blocks if block["type"] == "tool_result"]
    assert [name for name, _ in results] == [block["tool_use_id"] for block in wanted]
    for (_, said), block in zip(results, wanted, strict=True):
        assert "".join(words_of(block.get("content"))) in said
        assert said.startswith("Error") or not block["is_error"]
    images = sum(IMAGE in block["content"] for block in wanted if isinstance(block.get("content"), list))
    assert sum(IMAGE_PART in one["content"] for one in found if isinstance(one["content"], list)) <= images


@settings(max_examples=60, deadline=None)
@given(CONVERSATIONS)
def test_marks_change_nothing_else(messages):
    request = read(*messages)
    if request.marked_body:
        assert stripped(json.loads(request.marked_body)) == stripped(json.loads(request.chat_body))
    assert b"cache_control" not in request.chat_body
