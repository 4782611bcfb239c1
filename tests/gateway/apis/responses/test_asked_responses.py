"""Bodies of POST /v1/responses: what is wrong with them, or not offered, is said by name."""

import json
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.api.responses import (
    FunctionCallItem,
    FunctionCallOutputItem,
    ItemReference,
    MessageItem,
    ReasoningItem,
    ResponseRequest,
)
from contracts.errors import InvalidRequest, TollkeeperError
from gateway.apis.responses.asked import listed_items
from gateway.apis.responses.reading import item_of, read_asked
from gateway.apis.responses.translation import chat_of, check_items

MESSAGE = {"role": "user", "content": "secret"}
SUM = {"type": "function", "name": "sum", "parameters": {"type": "object"}}


def read(**fields):
    body = {"model": "m", "input": "secret", **fields}
    return read_asked("application/json", json.dumps(body).encode())


def parts(*given):
    return {"input": [{"role": "user", "content": list(given)}]}


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"model": ""}, "model", "model is a string of 0 characters"),
        ({"model": 3}, "model", "model is 3: expected str"),
        ({"input": None}, "input", "input is not given; give a text"),
        ({"input": []}, "input", "input is empty"),
        ({"input": 3}, "input", "input is 3: expected str | array | null"),
        ({"input": ["secret"]}, "input[0]", "input[0] is a string of 6 characters: expected object"),
        ({"input": [MESSAGE] * 4097}, "input", "input is an array of 4097"),
        ({"input": [MESSAGE, {"role": "user"}]}, "input[1]", "missing required field content"),
        ({"input": [{"role": "secret", "content": ""}]}, "input[0].role", "expected one of user, assistant, system"),
        ({"input": [{**MESSAGE, "status": "secret"}]}, "input[0].status", "expected one of in_progress, completed"),
        ({"input": [{"type": "web_search_call"}]}, "input[0].type", "input[0] is of type 'web_search_call'; taken are"),
        ({"input": [{"type": "item_reference"}]}, "input[0]", "missing required field id"),
        ({"input": [{"type": "function_call", "call_id": "c", "name": "f"}]}, "input[0]", "field arguments"),
        (parts({"type": "secret"}), "input[0].content[0].type", "expected one of input_text, input_image"),
        (parts({"text": "x"}), "input[0].content[0]", "missing required field type"),
        (parts({"type": "output_text", "text": "x"}), "input[0].content[0].type", "only an assistant says"),
        (parts({"type": "input_image", "file_id": "f"}), "input[0].content[0].file_id", "send its contents"),
        (parts({"type": "input_image"}), "input[0].content[0].image_url", "image_url is required"),
        (parts({"type": "input_file", "file_url": "u"}), "input[0].content[0].file_url", "is not fetched"),
        (parts({"type": "input_file", "filename": "f"}), "input[0].content[0].file_data", "is required"),
        ({"temperature": 2.1}, "temperature", "temperature is 2.1: expected float <= 2.0"),
        ({"top_p": -1}, "top_p", "expected float >= 0.0"),
        ({"max_output_tokens": 0}, "max_output_tokens", "max_output_tokens is 0: expected int >= 1"),
        ({"top_logprobs": 21}, "top_logprobs", "top_logprobs is 21: expected int <= 20"),
        ({"top_logprobs": 2}, "top_logprobs", "include lacks 'message.output_text.logprobs'"),
        ({"include": ["x"]}, "include[0]", "include[0] is 'x'; it is one of"),
        ({"include": ["file_search_call.results"]}, "include[0]", "the tool it is of is not offered here"),
        ({"truncation": "auto"}, "truncation", "items are not dropped here"),
        ({"truncation": "secret"}, "truncation", "expected one of auto, disabled"),
        ({"background": True}, "background", "background is true"),
        ({"conversation": "conv_1"}, "conversation", "use previous_response_id"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt", "prompt templates are not supported"),
        ({"moderation": {"model": "x"}}, "moderation", "moderation is not supported"),
        (
            {"max_tokens": 5},
            "max_tokens",
            "unknown parameter: 'max_tokens'; in the Responses API it is max_output_tokens",
        ),
        ({"messages": []}, "messages", "in the Responses API it is input"),
        ({"seed": 5}, "seed", "unknown parameter: 'seed'"),
        ({"reasoning": {"effort": "secret"}}, "reasoning.effort", "expected one of none, minimal, low"),
        ({"text": {"verbosity": "secret"}}, "text.verbosity", "expected one of low, medium, high"),
        (
            {"text": {"format": {"type": "secret"}}},
            "text.format.type",
            "expected one of text, json_object, json_schema",
        ),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format.schema", "is required"),
        (
            {"tools": [{"type": "web_search"}]},
            "tools[0].type",
            "tools[0] is of type 'web_search', which is not supported",
        ),
        ({"tools": [SUM, {"type": "function"}]}, "tools[1]", "missing required field name"),
        ({"tools": [SUM, {"name": "f", "parameters": [1]}]}, "tools[1].parameters", "is not an object"),
        (
            {"text": {"format": {"type": "json_schema", "name": "n", "schema": "secret"}}},
            "text.format.schema",
            "text.format.schema is not an object",
        ),
        ({"tools": [{"name": "a b"}]}, "tools[0].name", "expected str matching regex"),
        ({"tool_choice": "secret"}, "tool_choice", "it is one of none, auto, required"),
        ({"tool_choice": 3}, "tool_choice", "tool_choice is 3"),
        ({"tool_choice": "required"}, "tool_choice", "tools is empty"),
        ({"tool_choice": {"type": "function", "name": "x"}}, "tool_choice", "is not among the tools"),
        ({"tool_choice": {"type": "mcp", "server_label": "x"}}, "tool_choice", "only functions are offered"),
        (
            {"tools": [SUM], "tool_choice": {"type": "allowed_tools", "mode": "x", "tools": [{"name": "sum"}]}},
            "tool_choice.mode",
            "expected one of auto, required",
        ),
        ({"metadata": {str(n): "" for n in range(17)}}, "metadata", "metadata has 17 pairs; at most 16 are allowed"),
        ({"metadata": {"k" * 65: ""}}, "metadata", "a key of 65 characters; at most 64"),
        ({"metadata": {"k": "v" * 513}}, "metadata.k", "metadata.k has 513 characters; at most 512"),
        ({"metadata": {"k": 3}}, "metadata[...]", "expected str"),
        ({"stream_options": {"include_obfuscation": False}}, "stream_options", "only allowed when stream is true"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_text", "text": "secret"}] * 5000}] * 2 + [MESSAGE]},
            "input",
            "more than 10000 parts of content in its first 3 items",
        ),
        ({"store": "yes"}, "store", "store is a string of 3 characters: expected bool"),
        ({"safety_identifier": "x" * 129}, "safety_identifier", "a string of 129 characters"),
    ],
)
def test_what_is_wrong_is_said_by_name_and_the_prompt_is_not(fields, param, said):
    with pytest.raises(InvalidRequest) as error:
        read(**fields)
    assert error.value.param == param and said in error.value.message
    assert "secret" not in error.value.message or "tool_choice is 'secret'" in error.value.message


@pytest.mark.parametrize(
    ("content_type", "body", "code"),
    [
        ("text/plain", b"{}", "unsupported_media_type"),
        ("application/json", b"", "malformed_json"),
        ("application/json", b'{"model":"m","input":"x"', "malformed_json"),
        ("application/json", b'{"model":"m","input":"\xff"}', "malformed_json"),
        ("application/json", b'{"model":"m","input":' + b"[" * 100_000, "malformed_json"),
        ("application/json", b'{"model":"m","input":[' + b"[" * 900 + b"]" * 900 + b"]}", "invalid_request"),
    ],
)
def test_what_is_no_json_is_refused(content_type, body, code):
    with pytest.raises(TollkeeperError) as error:
        read_asked(content_type, body)
    assert error.value.error_code == code


@pytest.mark.parametrize(
    ("fields", "at_the_limit"),
    [
        ({"metadata": {str(n): "v" * 512 for n in range(16)}}, True),
        ({"metadata": {"k" * 64: ""}}, True),
        ({"input": [MESSAGE] * 4096}, True),
        ({"input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}] * 2500}] * 4}, True),
        ({"temperature": 2, "top_p": 1, "max_output_tokens": 1, "top_logprobs": 0}, True),
        ({"conversation": None, "prompt": None, "background": False, "tool_choice": None}, False),
        ({"include": ["reasoning.encrypted_content"], "reasoning": {"summary": "auto"}}, False),
        ({"prompt_cache_retention": "24h", "service_tier": "auto", "max_tool_calls": 3}, False),
        ({"stream": True, "stream_options": {"include_obfuscation": False}}, False),
        ({"input": None, "previous_response_id": "resp_1"}, False),
    ],
)
def test_what_is_within_its_limits_is_taken(fields, at_the_limit):
    assert read(**fields).request.model == "m"


def test_items_are_told_apart_with_and_without_their_type():
    asked = read(
        input=[
            MESSAGE,
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "x", "annotations": []}],
            },
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": None, "encrypted_content": None},
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "c",
                "name": "f",
                "arguments": "{}",
                "status": "completed",
            },
            {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "x"}]},
            {"id": "msg_1"},
            {"type": "item_reference", "id": "msg_1"},
        ]
    )
    kinds = [type(one.item) for one in asked.items]
    assert kinds == [
        MessageItem,
        MessageItem,
        ReasoningItem,
        FunctionCallItem,
        FunctionCallOutputItem,
        ItemReference,
        ItemReference,
    ]


def test_allowed_tools_narrow_what_the_model_is_given():
    other = {**SUM, "name": "other"}
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "sum"}]}
    asked = read(tools=[SUM, other], tool_choice=allowed)
    assert [tool.chat_name for tool in asked.tools] == ["sum"] and asked.tool_choice == "required"
    assert [tool.chat_name for tool in asked.offered] == ["sum", "other"]


SPACE = {"type": "namespace", "name": "agents", "description": "d", "tools": [SUM, {**SUM, "name": "stop"}]}


def chat_body(asked):
    return json.loads(chat_of(asked).chat_body)


def test_functions_of_a_namespace_are_named_by_both_in_the_chat():
    call = {"type": "function_call", "call_id": "c", "name": "stop", "namespace": "agents", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "x"}
    asked = read(tools=[SUM, SPACE], input=[MESSAGE, call, output])
    body = chat_body(asked)
    assert [tool["function"]["name"] for tool in body["tools"]] == ["sum", "agents__sum", "agents__stop"]
    assert body["messages"][1]["tool_calls"][0]["function"]["name"] == "agents__stop"
    assert [json.loads(bytes(shown))["type"] for shown in asked.shown_tools] == ["function", "namespace"]


@pytest.mark.parametrize(
    ("choice", "chosen"),
    [
        ({"type": "function", "name": "sum"}, "sum"),
        ({"type": "function", "name": "sum", "namespace": "agents"}, "agents__sum"),
    ],
)
def test_a_choice_names_the_namespace_too(choice, chosen):
    asked = read(tools=[SUM, SPACE], tool_choice=choice)
    assert asked.tool_choice == {"type": "function", "function": {"name": chosen}}
    with pytest.raises(InvalidRequest, match="'stop', which is not among the tools"):
        read(tools=[SUM, SPACE], tool_choice={"type": "function", "name": "stop"})


@pytest.mark.parametrize(
    ("space", "param", "said"),
    [
        ({"tools": []}, "tools[0].tools", "length >= 1"),
        ({"name": "a b"}, "tools[0].name", "name"),
        (
            {"tools": [{"type": "custom", "name": "x"}]},
            "tools[0].tools[0].type",
            "of type 'custom', which is not supported",
        ),
        ({"tools": [{"type": "function"}]}, "tools[0].tools[0]", "missing required field name"),
        ({"tools": [{**SUM, "name": "n" * 57}]}, "tools[0].tools[0].name", "has 57 characters, with its namespace 65"),
        ({"tools": [SUM] * 129}, "tools[0].tools", "128"),
    ],
)
def test_a_namespace_that_cannot_be_is_refused_by_name(space, param, said):
    with pytest.raises(InvalidRequest) as refused:
        read(tools=[{**SPACE, **space}])
    assert refused.value.param == param and said in refused.value.message


def test_functions_are_counted_with_those_of_namespaces():
    space = {**SPACE, "tools": [{**SUM, "name": f"f{number}"} for number in range(127)]}
    assert len(read(tools=[SUM, space]).offered) == 128
    with pytest.raises(InvalidRequest, match="tools has 129 functions"):
        read(tools=[SUM, {**SUM, "name": "g"}, space])
    assert chat_body(read(tools=[{**SPACE, "tools": [{**SUM, "name": "n" * 56}]}]))["tools"]


def test_a_search_of_a_cached_index_is_left_out_and_one_of_the_live_web_refused():
    assert chat_body(read(tools=[SUM, {"type": "web_search", "external_web_access": False}])) == chat_body(
        read(tools=[SUM])
    )
    for live in ({}, {"external_web_access": True}, {"external_web_access": None}):
        with pytest.raises(InvalidRequest, match="'web_search', which is not supported"):
            read(tools=[{"type": "web_search", **live}])


@pytest.mark.parametrize("given", [{}, {"session_id": "s"}, None, "text"])
def test_client_metadata_changes_nothing(given):
    assert chat_body(read(client_metadata=given)) == chat_body(read())


def test_a_field_that_nobody_knows_is_refused_beside_one_that_is_ignored():
    with pytest.raises(InvalidRequest, match="unknown parameter: 'temprature'"):
        read(client_metadata={}, temprature=1)


words = st.sampled_from(
    ["message", "function_call", "function_call_output", "reasoning", "item_reference", "function", "allowed_tools"]
    + ["input_text", "input_image", "input_file", "input_audio", "output_text", "refusal", "json_schema", "auto"]
    + ["user", "assistant", "required", "a"]
)
names = st.sampled_from(
    ["type", "role", "content", "text", "id", "call_id", "name", "arguments", "output", "image_url", "file_data"]
    + ["input_audio", "data", "format", "tools", "mode", "schema", "status", "effort", "parameters", "refusal"]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | words | st.text(max_size=4)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=5), max_leaves=12
)
fields = st.sampled_from([name for name in ResponseRequest.__struct_fields__ if name != "model"])
bodies = st.dictionaries(fields, anything, max_size=4)
items = st.dictionaries(names, anything, max_size=6)


@settings(max_examples=150, deadline=None)
@given(bodies | st.fixed_dictionaries({"input": st.lists(items, max_size=4)}))
def test_any_body_is_taken_as_a_whole_or_refused_with_a_reason(body):
    try:
        asked = read_asked("application/json", json.dumps({"model": "m", **body}).encode())
        check_items(asked)
        chat = chat_of(asked)
    except TollkeeperError as error:
        assert error.status == 400 and error.message
        return
    assert json.loads(chat.chat_body)["messages"]
    for item in listed_items(UUID(int=0), [one.json for one in asked.items]):
        assert item["id"] and item_of(item)
