"""What an application may send, at its limits, and which pieces of an answer carry tokens."""

import json
from typing import Any

import msgspec
import pytest

from contracts.api.chat import ChatChunk, ChatReply, ChatRequest, ChunkDelta
from contracts.api.completion import CompletionRequest
from contracts.api.embedding import EmbeddingRequest

HELLO = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
KINDS: dict[Any, dict[str, Any]] = {
    ChatRequest: HELLO,
    CompletionRequest: {"model": "m", "prompt": "hello"},
    EmbeddingRequest: {"model": "m", "input": "hello"},
}
DECODERS = {kind: msgspec.json.Decoder(kind) for kind in (*KINDS, ChatChunk, ChatReply)}


def read(kind, **fields):
    return DECODERS[kind].decode(json.dumps(KINDS[kind] | fields))


def chat(**fields):
    return read(ChatRequest, **fields)


# (kinds, field, inside the limits and at them, just outside)
LIMITS: list[tuple[list[Any], str, list[Any], list[Any]]] = [
    ([ChatRequest, CompletionRequest], "max_tokens", [1, 2, 2**31 - 1], [0, -1, 2**31]),
    ([ChatRequest], "max_completion_tokens", [1, 2**31 - 1], [0, -1, 2**31]),
    ([ChatRequest, CompletionRequest], "n", [1, 127, 128], [0, -1, 129]),
    ([CompletionRequest], "best_of", [1, 128], [0, 129]),
    ([ChatRequest, CompletionRequest], "temperature", [0, 0.0, 1.999, 2, 2.0], [-0.001, 2.001]),
    ([ChatRequest, CompletionRequest], "top_p", [0, 0.5, 1], [-0.001, 1.001]),
    ([ChatRequest, CompletionRequest], "presence_penalty", [-2, 0, 2], [-2.001, 2.001]),
    ([ChatRequest, CompletionRequest], "frequency_penalty", [-2, 0, 2], [-2.001, 2.001]),
    ([ChatRequest], "top_logprobs", [0, 20], [-1, 21]),
    ([CompletionRequest], "logprobs", [0, 20], [-1, 21]),
    ([ChatRequest, CompletionRequest], "seed", [-(2**63), 0, 2**63 - 1], [-(2**63) - 1, 2**63]),
    ([ChatRequest, CompletionRequest], "logit_bias", [{}, {"1": -100, "2": 100}], [{"1": -100.5}, {"1": 101}]),
    ([EmbeddingRequest], "dimensions", [1, 2**31 - 1], [0, 2**31]),
    (list(KINDS), "model", ["m", "m" * 200], ["", "m" * 201]),
    (list(KINDS), "user", ["", "u" * 256], ["u" * 257]),
    ([ChatRequest], "messages", [HELLO["messages"]], [[]]),
]
CASES = [(kind, field, value, True) for kinds, field, good, _ in LIMITS for kind in kinds for value in good]
CASES += [(kind, field, value, False) for kinds, field, _, bad in LIMITS for kind in kinds for value in bad]


@pytest.mark.parametrize(
    ("kind", "field", "value", "is_accepted"),
    CASES,
    ids=[f"{kind.__name__}.{field}={str(value)[:24]}" for kind, field, value, _ in CASES],
)
def test_a_value_is_accepted_up_to_its_limit_and_refused_beyond_naming_the_field(kind, field, value, is_accepted):
    if is_accepted:
        read(kind, **{field: value})
    else:
        with pytest.raises(msgspec.ValidationError, match=rf"`\$\.{field}"):
            read(kind, **{field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", "5"),
        ("max_tokens", 1.5),
        ("max_tokens", True),
        ("temperature", "hot"),
        ("stream", "true"),
        ("stream", 1),
        ("messages", "hello"),
        ("messages", {}),
        ("model", None),
        ("model", 7),
        ("n", [1]),
        ("stop", 7),
        ("metadata", {"k": 1}),
        ("tools", {}),
        ("reasoning_effort", "maximal"),
        ("stream_options", True),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_naming_the_field(field, value):
    with pytest.raises(msgspec.ValidationError, match=rf"`\$\.{field}"):
        chat(**{field: value})


@pytest.mark.parametrize("missing", ["model", "messages"])
def test_a_required_field_is_asked_for_by_name(missing):
    with pytest.raises(msgspec.ValidationError, match=f"missing required field `{missing}`"):
        DECODERS[ChatRequest].decode(json.dumps({name: HELLO[name] for name in HELLO if name != missing}))


@pytest.mark.parametrize("field", [name for name in ChatRequest.__struct_fields__ if name not in HELLO])
def test_null_means_absent_for_every_optional_field(field):
    explicit, absent = chat(**{field: None}), chat()
    if field in ("tool_choice", "response_format"):
        assert bytes(getattr(explicit, field)) == b"null"
    else:
        assert explicit == absent


def test_fields_from_the_future_do_not_hinder_a_request():
    request = chat(verbosity="low", messages=[{"role": "user", "content": "hi", "mood": {"happy": [1]}}])
    assert request.messages[0].content == "hi"


def test_a_message_may_be_text_parts_or_a_tools_answer():
    messages = [
        {"role": "developer", "content": "be brief"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "what?"}, {"type": "image_url", "image_url": {"url": "x"}}],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
    ]
    assert [message.role for message in chat(messages=messages).messages] == ["developer", "user", "assistant", "tool"]
    with pytest.raises(msgspec.ValidationError, match=r"`\$\.messages\[0\]\.role"):
        chat(messages=[{"role": "robot", "content": "beep"}])


def test_the_newer_output_limit_goes_before_the_older():
    assert chat().output_limit is None
    assert chat(max_tokens=5).output_limit == 5
    assert chat(max_completion_tokens=7).output_limit == 7
    assert chat(max_tokens=5, max_completion_tokens=7).output_limit == 7
    assert chat(max_tokens=7, max_completion_tokens=5).output_limit == 5


def test_a_stream_and_its_usage_are_given_only_when_asked_for():
    assert [chat(stream=value).is_streamed for value in (None, False, True)] == [False, False, True]
    options: tuple[dict[str, bool | None] | None, ...] = (
        None,
        {},
        {"include_usage": None},
        {"include_usage": False},
        {"include_usage": True},
    )
    assert [chat(stream_options=value).wants_usage for value in options] == [False] * 4 + [True]
    assert [chat(n=value).choice_count for value in (None, 1, 3)] == [1, 1, 3]


@pytest.mark.parametrize(
    ("delta", "bears_tokens"),
    [
        ("{}", False),
        ('{"role":"assistant"}', False),
        ('{"role":"assistant","content":""}', False),
        ('{"content":null}', False),
        ('{"content":"a"}', True),
        ('{"content":" "}', True),
        ('{"reasoning_content":""}', False),
        ('{"reasoning_content":"hm"}', True),
        ('{"reasoning":"hm"}', True),
        ('{"reasoning":null,"content":""}', False),
        ('{"refusal":"no"}', True),
        ('{"refusal":null}', False),
        ('{"tool_calls":null}', False),
        ('{"tool_calls":[]}', False),
        ('{"tool_calls": [ ]}', False),
        ('{"tool_calls":[\n]}', False),
        ('{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}', True),
        ('{"content":"","tool_calls":[{"index":0}]}', True),
        ('{"content":[]}', False),
        ('{"content":[{"type":"text","text":""}]}', False),
        ('{"content":[{"type":"thinking","thinking":[]}]}', False),
        ('{"content":[{"type":"text","text":"a"}]}', True),
        ('{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]}', True),
        ('{"content":[{"type":"thinking","thinking":"hm"}]}', True),
        ('{"content":[{"type":"reference","reference_ids":[1]}]}', True),
        ('{"function_call":null}', False),
        ('{"function_call":{}}', False),
        ('{"function_call":{"name":"f","arguments":""}}', True),
        ('{"audio":null}', False),
        ('{"audio":{"id":"a","data":"UklGRg=="}}', True),
    ],
)
def test_a_delta_bears_tokens_when_it_says_something(delta, bears_tokens):
    body = '{"choices":[{"index":0,"delta":' + delta + "}]}"
    chunk = DECODERS[ChatChunk].decode(body)
    assert chunk.choices[0].delta.bears_tokens is bears_tokens


def test_an_empty_delta_bears_none():
    assert ChunkDelta().bears_tokens is False


@pytest.mark.parametrize("body", [b"{}", b'{"choices":null,"usage":null}', b'{"choices":[],"x":{"y":[1]}}'])
@pytest.mark.parametrize("kind", [ChatChunk, ChatReply])
def test_an_upstreams_answer_may_leave_out_what_it_likes(kind, body):
    answer = DECODERS[kind].decode(body)
    assert not answer.choices
    assert answer.usage is None


@pytest.mark.parametrize(
    ("texts", "count"),
    [("one", 1), ("", 1), (["one"], 1), (["one", "two"], 2), ([1, 2, 3], 1), ([[1, 2], [3]], 2), ([], 0)],
)
def test_an_embedding_request_counts_its_vectors(texts, count):
    assert read(EmbeddingRequest, input=texts).input_count == count
