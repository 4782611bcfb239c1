"""What a Messages request may not say: each refused by the field's name, with the value and the limit."""

import json
from typing import Any

import pytest

from contracts.api.messages import MAX_BLOCKS
from contracts.errors import InvalidRequest, MalformedBody, UnsupportedMediaType
from gateway.apis.messages.errors import error_body
from gateway.apis.messages.reading import read_messages, read_prompt
from gateway.apis.messages.translation import translated

BODY: dict[str, Any] = {"model": "m", "max_tokens": 2000, "messages": [{"role": "user", "content": "a"}]}
TOOL = {"name": "f", "input_schema": {"type": "object"}}


def read(**fields: Any):
    body = {name: value for name, value in (BODY | fields).items() if value is not ...}
    return read_messages("application/json", json.dumps(body).encode())


def says(*blocks: Any, role: str = "user") -> list[dict[str, Any]]:
    return [{"role": role, "content": list(blocks)}, {"role": "user", "content": "b"}]


AT = "messages[0].content[0]"
PDF = {"type": "base64", "media_type": "application/pdf", "data": "AA"}
REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "no limit": ({"max_tokens": ...}, "max_tokens", "max_tokens is required"),
    "a limit of nothing": ({"max_tokens": 0}, "max_tokens", "max_tokens is 0: expected int >= 1"),
    "a limit beyond any": ({"max_tokens": 2**31}, "max_tokens", "expected int <= 2147483647"),
    "no messages": ({"messages": []}, "messages", "at least|length >= 1"),
    "an unknown role": (
        {"messages": [{"role": "tool", "content": "a"}]},
        "messages[0].role",
        "user, assistant, system",
    ),
    "a number for content": ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content", "is 3: expected"),
    "a block without a type": ({"messages": says({"text": "a"})}, AT, "required field type"),
    "a block of the server's": (
        {"messages": says({"type": "server_tool_use", "id": "x"})},
        f"{AT}.type",
        "is 'server_tool_use', which is not supported; supported are text, image, document",
    ),
    "prompt text for a type": ({"messages": says({"type": "My secret!"})}, f"{AT}.type", "is of another kind"),
    "a type that is a number": ({"messages": says({"type": 3})}, f"{AT}.type", "is of another kind|expected str"),
    "text without text": ({"messages": says({"type": "text"})}, AT, "required field text"),
    "an image of another kind": (
        {"messages": says({"type": "image", "source": {"type": "base64", "media_type": "image/bmp", "data": ""}})},
        f"{AT}.source.media_type",
        "expected one of image/jpeg",
    ),
    "a file of Anthropic's": (
        {"messages": says({"type": "image", "source": {"type": "file", "file_id": "f"}})},
        f"{AT}.source.type",
        "is 'file', which is not supported",
    ),
    "a document by address": (
        {"messages": says({"type": "document", "source": {"type": "url", "url": "https://example.org"}})},
        f"{AT}.source.type",
        "send its bytes",
    ),
    "citations": (
        {"messages": says({"type": "document", "source": PDF, "citations": {"enabled": True}})},
        f"{AT}.citations",
        "citations are not offered",
    ),
    "citations in a result": (
        {
            "messages": says(
                {
                    "type": "tool_result",
                    "tool_use_id": "a",
                    "content": [{"type": "document", "source": PDF, "citations": {"enabled": True}}],
                }
            )
        },
        f"{AT}.content[0].citations",
        "citations are not offered",
    ),
    "a tool's reference": (
        {"messages": says({"type": "tool_result", "tool_use_id": "a", "content": [{"type": "tool_reference"}]})},
        f"{AT}.content[0]",
        "missing required field tool_name",
    ),
    "a search's result": (
        {"messages": says({"type": "tool_result", "tool_use_id": "a", "content": [{"type": "search_result"}]})},
        f"{AT}.content[0].type",
        "is 'search_result', which is not supported; supported are text, image, document, tool_reference",
    ),
    "a user that calls": (
        {"messages": says({"type": "tool_use", "id": "a", "name": "f", "input": {}})},
        f"{AT}.type",
        "'tool_use', which has no place in a message of the role 'user'",
    ),
    "a user that thinks": (
        {"messages": says({"type": "thinking", "thinking": "a"})},
        f"{AT}.type",
        "no place in a message of the role 'user'",
    ),
    "an assistant with results": (
        {"messages": says({"type": "tool_result", "tool_use_id": "a"}, role="assistant")},
        f"{AT}.type",
        "no place in a message of the role 'assistant'",
    ),
    "a call with a list": (
        {"messages": says({"type": "tool_use", "id": "a", "name": "f", "input": []}, role="assistant")},
        f"{AT}.input",
        "is not an object",
    ),
    "a call without input": (
        {"messages": says({"type": "tool_use", "id": "a", "name": "f"}, role="assistant")},
        AT,
        "required field input",
    ),
    "an answer to go on with": (
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
        "messages",
        "prefill",
    ),
    "a mark of another kind": ({"cache_control": {"type": "forever"}}, "cache_control.type", "supported are ephemeral"),
    "a mark for a day": ({"cache_control": {"type": "ephemeral", "ttl": "1d"}}, "cache_control.ttl", "one of 5m, 1h"),
    "an image for the system": ({"system": [{"type": "image"}]}, "system[0].type", "supported are text"),
    "a tool of the server's": (
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
        "tools[0].type",
        "is 'web_search_20250305': tools that bring their own definition are not offered",
    ),
    "a tool without a schema": ({"tools": [TOOL, {"name": "g"}]}, "tools[1].input_schema", "is required"),
    "a schema that is none": (
        {"tools": [{"name": "g", "input_schema": "x"}]},
        "tools[0].input_schema",
        "not an object",
    ),
    "a tool without a name": ({"tools": [TOOL | {"name": ""}]}, "tools[0].name", "length >= 1"),
    "a choice of no tool": ({"tool_choice": {"type": "any"}}, "tool_choice", "tools is empty"),
    "a choice of another tool": (
        {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "g"}},
        "tool_choice.name",
        "'g', and no tool has it",
    ),
    "a choice of another kind": ({"tool_choice": {"type": "some"}}, "tool_choice.type", "auto, any, tool, none"),
    "too hot": ({"temperature": 1.01}, "temperature", "is 1.01: expected float <= 1"),
    "too cold": ({"temperature": -0.01}, "temperature", "expected float >= 0"),
    "a share above one": ({"top_p": 1.5}, "top_p", "expected float <= 1"),
    "a negative top_k": ({"top_k": -1}, "top_k", "expected int >= 0"),
    "thoughts too short": (
        {"thinking": {"type": "enabled", "budget_tokens": 1023}},
        "thinking.budget_tokens",
        "is 1023: expected int >= 1024",
    ),
    "thoughts as long as the answer": (
        {"thinking": {"type": "enabled", "budget_tokens": 2000}},
        "thinking.budget_tokens",
        "is 2000; it must be less than max_tokens, 2000",
    ),
    "thoughts between tools": ({"thinking": {"type": "between_tools"}}, "thinking.type", "enabled, adaptive, disabled"),
    "an unknown effort": ({"output_config": {"effort": "huge"}}, "output_config.effort", "one of low, medium, high"),
    "another format": ({"output_config": {"format": {"type": "text"}}}, "output_config.format.type", "json_schema"),
    "a format without a schema": (
        {"output_config": {"format": {"type": "json_schema"}}},
        "output_config.format",
        "schema",
    ),
    "a schema of text": (
        {"output_config": {"format": {"type": "json_schema", "schema": "x"}}},
        "output_config.format.schema",
        "is not an object",
    ),
    "an empty stop": ({"stop_sequences": ["a", ""]}, "stop_sequences[1]", "is empty"),
    "a container": ({"container": "c"}, "container", "not offered"),
    "edits of the context": (
        {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}},
        "context_management",
        "not offered",
    ),
    "thinking that is cleared": (
        {"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": {"type": "all"}}]}},
        "context_management",
        "not offered",
    ),
    "edits and more": (
        {"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}], "more": 1}},
        "context_management",
        "not offered",
    ),
    "deferred tools alone": (
        {"tools": [{"name": "a", "input_schema": {}, "defer_loading": True}]},
        "tools",
        "at least one must be loaded",
    ),
    "a choice of a deferred tool": (
        {
            "tools": [
                {"name": "a", "input_schema": {}, "defer_loading": True},
                {"name": "b", "input_schema": {}},
            ],
            "tool_choice": {"type": "tool", "name": "a"},
        },
        "tool_choice.name",
        "no tool has it",
    ),
    "a compaction": ({"compaction": {"enabled": True}}, "compaction", "not offered"),
    "other models": ({"fallbacks": [{"model": "m"}]}, "fallbacks", "not offered"),
    "a thread": ({"thread": {"id": "t"}}, "thread", "not offered"),
    "servers of tools": ({"mcp_servers": [{"url": "https://example.org"}]}, "mcp_servers", "not offered"),
    "a place to run": ({"inference_geo": "us"}, "inference_geo", "not offered"),
    "a speed": ({"speed": "slow"}, "speed", "'standard'"),
    "an unknown tier": ({"service_tier": "gold"}, "service_tier", "one of auto, standard_only"),
    "a user of no end": ({"metadata": {"user_id": "u" * 1025}}, "metadata.user_id", "length <= 1024"),
    "a stream of text": ({"stream": "yes"}, "stream", "expected bool"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_by_name(case):
    fields, param, message = REFUSED[case]
    with pytest.raises(InvalidRequest, match=message.replace("(", r"\(")) as refused:
        read(**fields)
    assert refused.value.param == param
    assert "My secret" not in refused.value.message


def test_what_is_at_its_limit_is_taken():
    request = read(
        max_tokens=1025,
        thinking={"type": "enabled", "budget_tokens": 1024},
        temperature=1,
        top_p=0,
        top_k=0,
        metadata={"user_id": "u" * 1024},
        inference_geo=None,
        container=None,
        mcp_servers=[],
        speed="standard",
    )
    assert request.max_tokens == 1025


@pytest.mark.parametrize("name", ["temprature", "a_field_of_tomorrow", "x" * 100])
def test_a_field_that_nobody_knows_is_refused_by_its_name(name):
    with pytest.raises(InvalidRequest, match=f"unknown parameter: '{name[:60]}'") as refused:
        read(**{name: {"x": 1}})
    assert refused.value.error_code == "unknown_parameter" and refused.value.param == name[:60]


@pytest.mark.parametrize("name", ["context_management", "compaction", "fallbacks", "thread", "container"])
def test_what_is_not_offered_is_refused_unless_it_says_nothing(name):
    assert read(**{name: None}).max_tokens
    with pytest.raises(InvalidRequest, match=f"{name} is not offered"):
        read(**{name: {"x": 1}})


KEEPS_ALL = {"type": "clear_thinking_20251015", "keep": "all"}


@pytest.mark.parametrize("edits", [[], None, [KEEPS_ALL], [KEEPS_ALL] * 2])
def test_context_management_that_keeps_all_changes_nothing(edits):
    assert read(context_management={"edits": edits}) == read()
    assert read(context_management={}) == read()


def test_a_thread_is_refused_as_anthropics_sdks_expect_it():
    with pytest.raises(InvalidRequest) as refused:
        read(thread={"type": "create"})
    told = json.loads(error_body(refused.value))["error"]["details"]
    assert told == {"error_code": "thread_unsupported_request", "param": "thread", "unsupported": ["thread"]}


@pytest.mark.parametrize(
    ("referred", "loaded"), [((), ["find"]), (("b",), ["find", "b"]), (("a", "b"), ["find", "a", "b"])]
)
def test_a_deferred_tool_is_offered_once_it_was_referred_to(referred, loaded):
    references = [{"type": "tool_reference", "tool_name": name} for name in referred]
    schema = {"input_schema": {"type": "object"}}
    chat = translated(
        read(
            tools=[{"name": "find", **schema}, *({"name": name, "defer_loading": True, **schema} for name in "ab")],
            messages=[
                {"role": "user", "content": "x"},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "find", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": references}]},
            ],
        )
    )
    body = json.loads(chat.chat_body)
    assert [tool["function"]["name"] for tool in body["tools"]] == loaded
    said = json.dumps(body["messages"][-1]["content"])
    assert all(f"the tool {name} can be called now" in said for name in referred)


@pytest.mark.parametrize("inner", [1, 500])
def test_blocks_are_taken_up_to_their_number_wherever_they_stand(inner):
    text = {"type": "text", "text": "a"}
    result = {"type": "tool_result", "tool_use_id": "a", "content": [text] * inner}
    most = MAX_BLOCKS // (inner + 1)
    fits = [{"role": "user", "content": [result] * most}]
    assert len(read(messages=fits).messages) == 1
    room = MAX_BLOCKS - most * (inner + 1)
    read(messages=[{"role": "user", "content": [result] * most + [text] * room}])
    with pytest.raises(InvalidRequest, match=f"messages has {MAX_BLOCKS + 1} blocks together; at most {MAX_BLOCKS}"):
        read(messages=[{"role": "user", "content": [result] * most + [text] * (room + 1)}])


def test_a_prompt_that_is_only_counted_may_end_with_an_answer_and_needs_no_limit():
    body = {"model": "m", "messages": [{"role": "assistant", "content": "b"}]}
    assert read_prompt("application/json", json.dumps(body).encode()).messages[0].role == "assistant"
    with pytest.raises(InvalidRequest, match="container"):
        read_prompt("application/json", json.dumps({**body, "container": "x"}).encode())


@pytest.mark.parametrize(
    ("content_type", "body", "kind", "message"),
    [
        ("text/plain", b"{}", UnsupportedMediaType, "send application/json"),
        ("application/json", b'{"model": "m",', MalformedBody, "ends too early"),
        ("application/json", b'{"model": "\xff"}', MalformedBody, "not UTF-8"),
        ("application/json", b'{"x":' + b"[" * 20_000, MalformedBody, "nested too deeply"),
        (
            "application/json",
            b'{"model":"m","max_tokens":1,"thinking":{"type":"odd"},"x":' + b"[" * 20_000,
            InvalidRequest,
            "thinking.type",
        ),
        ("application/json", b"[]", InvalidRequest, "expected object|not a request"),
        (
            "application/json",
            b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"odd"}]}],"x":}',
            InvalidRequest,
            "content",
        ),
    ],
)
def test_what_is_no_request_at_all_is_refused(content_type, body, kind, message):
    with pytest.raises(kind, match=message):
        read_messages(content_type, body)
