"""Answers as servers send them by a stream, each with the same answer as the server sends it whole.

The shapes are those that OpenAI, Azure, vLLM, DeepSeek, OpenRouter, Mistral, Perplexity, Gemini's compatible endpoint
and LiteLLM document.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

Json = dict[str, Any]


@dataclass(frozen=True)
class AnswerShape:
    """One answer. `request` are the fields that ask for it."""

    name: str
    chunks: list[Json]
    whole: Json
    request: Mapping[str, Any]
    path: str = "/v1/chat/completions"


_USAGE: Final[Json] = {
    "prompt_tokens": 9,
    "completion_tokens": 7,
    "total_tokens": 16,
    "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 2, "audio_tokens": 0},
}


def _shape(
    name: str,
    deltas: list[tuple[Json, Json]],
    messages: list[Json],
    *,
    request: Mapping[str, Any] | None = None,
    usage: Json | None = _USAGE,
    top: Json | None = None,
    streamed_top: Json | None = None,
    last_top: Json | None = None,
    path: str = "/v1/chat/completions",
    kind: str = "chat.completion",
) -> AnswerShape:
    """Build a shape: `deltas` are (choice, fields of the chunk beside it), `messages` are the whole choices."""
    chunk_kind = f"{kind}.chunk" if kind == "chat.completion" else kind
    head: Json = {"id": f"{name}-1", "created": 1_760_000_000, "model": "served-1", **(top or {})}
    chunks = [
        {**head, "object": chunk_kind, "choices": [choice], **(streamed_top or {}), **beside}
        for choice, beside in deltas
    ]
    if usage is not None:
        chunks.append({**head, "object": chunk_kind, "choices": [], "usage": usage, **(last_top or {})})
    whole: Json = {**head, "object": kind, "choices": messages, **(last_top or {})}
    if usage is not None:
        whole["usage"] = usage
    return AnswerShape(name, chunks, whole, request or {}, path)


def _delta(delta: Json, *, index: int = 0, finish: str | None = None, **more: Any) -> tuple[Json, Json]:
    return {"index": index, "delta": delta, "finish_reason": finish, **more}, {}


def _token(text: str, logprob: float) -> Json:
    top = [
        {"token": text, "logprob": logprob, "bytes": list(text.encode())},
        {"token": "?", "logprob": -9.25, "bytes": [63]},
    ]
    return {"token": text, "logprob": logprob, "bytes": list(text.encode()), "top_logprobs": top}


def _whole(message: Json, *, index: int = 0, finish: str = "stop", **more: Any) -> Json:
    return {"index": index, "message": {"role": "assistant", **message}, "finish_reason": finish, **more}


def _call(name: str, arguments: str, call_id: str) -> Json:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


SHAPES: Final = (
    _shape(
        "openai_text",
        [
            _delta({"role": "assistant", "content": "", "refusal": None}, logprobs=None),
            *[_delta({"content": piece}, logprobs=None) for piece in ("Grüße", ", ", "Welt 🌍", '"\n')],
            _delta({}, finish="stop", logprobs=None),
        ],
        [_whole({"content": 'Grüße, Welt 🌍"\n', "refusal": None}, logprobs=None)],
        top={"system_fingerprint": "fp_1", "service_tier": "default"},
        streamed_top={"obfuscation": "x7Gh", "usage": None},
    ),
    _shape(
        "openai_logprobs",
        [
            _delta({"role": "assistant", "content": "", "refusal": None}, logprobs={"content": [], "refusal": None}),
            _delta({"content": "Yes"}, logprobs={"content": [_token("Yes", -0.25)], "refusal": None}),
            _delta({"content": "!"}, logprobs={"content": [_token("!", -1e-06)], "refusal": None}),
            _delta({}, finish="length", logprobs=None),
        ],
        [
            _whole(
                {"content": "Yes!", "refusal": None},
                finish="length",
                logprobs={"content": [_token("Yes", -0.25), _token("!", -1e-06)], "refusal": None},
            )
        ],
        request={"logprobs": True, "top_logprobs": 2},
    ),
    _shape(
        "openai_tool_calls",
        [
            _delta(
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"index": 0, **_call("weather", "", "call_a")}],
                    "refusal": None,
                }
            ),
            _delta({"tool_calls": [{"index": 0, "function": {"arguments": '{"city":'}}]}),
            _delta({"tool_calls": [{"index": 0, "function": {"arguments": ' "Rome"}'}}]}),
            _delta({"tool_calls": [{"index": 1, **_call("time", "", "call_b")}]}),
            _delta({"tool_calls": [{"index": 1, "function": {"arguments": "{}"}}]}),
            _delta({}, finish="tool_calls"),
        ],
        [
            _whole(
                {
                    "content": None,
                    "tool_calls": [_call("weather", '{"city": "Rome"}', "call_a"), _call("time", "{}", "call_b")],
                    "refusal": None,
                },
                finish="tool_calls",
            )
        ],
    ),
    _shape(
        "openai_refusal",
        [
            _delta({"role": "assistant", "content": None, "refusal": ""}),
            _delta({"refusal": "I can't "}),
            _delta({"refusal": "help."}),
            _delta({}, finish="stop"),
        ],
        [_whole({"content": None, "refusal": "I can't help."})],
    ),
    _shape(
        "openai_annotations",
        [
            _delta({"role": "assistant", "content": ""}),
            _delta({"content": "See it."}),
            _delta(
                {
                    "annotations": [
                        {"type": "url_citation", "url_citation": {"url": "https://a.example", "start_index": 0}}
                    ]
                }
            ),
            _delta(
                {
                    "annotations": [
                        {"type": "url_citation", "url_citation": {"url": "https://b.example", "start_index": 3}}
                    ]
                }
            ),
            _delta({}, finish="stop"),
        ],
        [
            _whole(
                {
                    "content": "See it.",
                    "annotations": [
                        {"type": "url_citation", "url_citation": {"url": "https://a.example", "start_index": 0}},
                        {"type": "url_citation", "url_citation": {"url": "https://b.example", "start_index": 3}},
                    ],
                }
            )
        ],
    ),
    _shape(
        "openai_choices",
        [
            _delta({"role": "assistant", "content": ""}, index=1),
            _delta({"role": "assistant", "content": ""}, index=0),
            _delta({"content": "one"}, index=0),
            _delta({"content": "two"}, index=1),
            _delta({"content": " two"}, index=1),
            _delta({}, index=1, finish="length"),
            _delta({}, index=0, finish="stop"),
        ],
        [_whole({"content": "one"}, index=0), _whole({"content": "two two"}, index=1, finish="length")],
        request={"n": 2},
    ),
    _shape(
        "openai_function_call",
        [
            _delta({"role": "assistant", "content": None, "function_call": {"name": "weather", "arguments": ""}}),
            _delta({"function_call": {"arguments": '{"a"'}}),
            _delta({"function_call": {"arguments": ":1}"}}),
            _delta({}, finish="function_call"),
        ],
        [
            _whole(
                {"content": None, "function_call": {"name": "weather", "arguments": '{"a":1}'}}, finish="function_call"
            )
        ],
    ),
    _shape(
        "azure_filters",
        [
            (
                {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None},
                {
                    "prompt_filter_results": [
                        {"prompt_index": 0, "content_filter_results": {"hate": {"filtered": False}}}
                    ]
                },
            ),
            _delta({"content": "Hi"}, content_filter_results={"hate": {"filtered": False, "severity": "safe"}}),
            _delta({"content": " you"}, content_filter_results={"hate": {"filtered": False, "severity": "safe"}}),
            _delta({}, finish="stop", content_filter_results={"hate": {"filtered": False, "severity": "safe"}}),
        ],
        [_whole({"content": "Hi you"}, content_filter_results={"hate": {"filtered": False, "severity": "safe"}})],
        last_top={
            "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": {"hate": {"filtered": False}}}]
        },
    ),
    _shape(
        "vllm_reasoning",
        [
            _delta({"role": "assistant", "content": "", "reasoning_content": None}, logprobs=None),
            _delta({"reasoning_content": "Let me "}, logprobs=None),
            _delta({"reasoning_content": "think."}, logprobs=None),
            _delta({"content": "42"}, logprobs=None, finish="stop", stop_reason="END"),
        ],
        [_whole({"content": "42", "reasoning_content": "Let me think."}, logprobs=None, stop_reason="END")],
    ),
    _shape(
        "vllm_tools_after_empty_text",
        [
            _delta({"role": "assistant", "content": ""}),
            _delta({"tool_calls": [{"index": 0, **_call("f", "{", "chatcmpl-tool-1")}]}),
            _delta(
                {"tool_calls": [{"index": 0, "function": {"arguments": "}"}}]}, finish="tool_calls", stop_reason=None
            ),
        ],
        [
            _whole(
                {"content": None, "tool_calls": [_call("f", "{}", "chatcmpl-tool-1")]},
                finish="tool_calls",
                stop_reason=None,
            )
        ],
    ),
    _shape(
        "server_that_repeats_names",
        [
            _delta({"role": "assistant", "tool_calls": [{"index": 0, **_call("f", '{"a', "c1")}]}),
            _delta({"role": "assistant", "tool_calls": [{"index": 0, **_call("f", '":1}', "c1")}]}),
            _delta({"role": "assistant"}, finish="tool_calls"),
        ],
        [_whole({"content": None, "tool_calls": [_call("f", '{"a":1}', "c1")]}, finish="tool_calls")],
    ),
    _shape(
        "gemini_calls_of_one_number",
        [
            _delta({"role": "assistant", "tool_calls": [{"index": 0, **_call("f", "{}", "c1")}]}),
            _delta({"role": "assistant", "tool_calls": [{"index": 0, **_call("g", "{}", "c2")}]}, finish="tool_calls"),
        ],
        [
            _whole(
                {"content": None, "tool_calls": [_call("f", "{}", "c1"), _call("g", "{}", "c2")]}, finish="tool_calls"
            )
        ],
    ),
    _shape(
        "openrouter_reasoning_details",
        [
            _delta(
                {
                    "role": "assistant",
                    "content": "",
                    "reasoning": "So ",
                    "reasoning_details": [{"type": "reasoning.text", "text": "So ", "format": "a-v1", "index": 0}],
                },
                native_finish_reason=None,
            ),
            _delta(
                {
                    "role": "assistant",
                    "content": "",
                    "reasoning": "be it.",
                    "reasoning_details": [{"type": "reasoning.text", "text": "be it.", "format": "a-v1", "index": 0}],
                },
                native_finish_reason=None,
            ),
            _delta(
                {"reasoning_details": [{"type": "reasoning.text", "signature": "c2ln", "format": "a-v1", "index": 0}]}
            ),
            _delta({"role": "assistant", "content": "Yes"}, finish="stop", native_finish_reason="end_turn"),
        ],
        [
            _whole(
                {
                    "content": "Yes",
                    "reasoning": "So be it.",
                    "reasoning_details": [
                        {
                            "type": "reasoning.text",
                            "text": "So be it.",
                            "format": "a-v1",
                            "index": 0,
                            "signature": "c2ln",
                        }
                    ],
                },
                native_finish_reason="end_turn",
            )
        ],
        top={"provider": "Anthropic"},
    ),
    _shape(
        "mistral_parts",
        [
            _delta({"role": "assistant", "content": ""}),
            _delta({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}]}),
            _delta({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": ", so"}]}]}),
            _delta({"content": [{"type": "text", "text": "Four"}]}),
            _delta({"content": "!"}, finish="stop"),
        ],
        [
            _whole(
                {
                    "content": [
                        {"type": "thinking", "thinking": [{"type": "text", "text": "Hm, so"}]},
                        {"type": "text", "text": "Four!"},
                    ]
                }
            )
        ],
    ),
    _shape(
        "perplexity_citations",
        [
            (
                {"index": 0, "delta": {"role": "assistant", "content": "A"}, "finish_reason": None},
                {"citations": ["https://a.example"], "usage": {**_USAGE, "completion_tokens": 1}},
            ),
            (
                {"index": 0, "delta": {"role": "assistant", "content": " b"}, "finish_reason": "stop"},
                {"citations": ["https://a.example", "https://b.example"], "usage": _USAGE},
            ),
        ],
        [_whole({"content": "A b"})],
        last_top={"citations": ["https://a.example", "https://b.example"]},
    ),
    _shape(
        "litellm_thinking_blocks",
        [
            _delta(
                {
                    "role": "assistant",
                    "content": "",
                    "reasoning_content": "a",
                    "thinking_blocks": [{"type": "thinking", "thinking": "a", "signature": None}],
                }
            ),
            _delta({"content": "b", "unknown_to_us": "x"}),
            _delta({"content": "c", "unknown_to_us": "y"}, finish="stop"),
        ],
        [
            _whole(
                {
                    "content": "bc",
                    "reasoning_content": "a",
                    "thinking_blocks": [{"type": "thinking", "thinking": "a", "signature": None}],
                    "unknown_to_us": "xy",
                }
            )
        ],
    ),
    _shape(
        "filtered_without_text",
        [_delta({"role": "assistant", "content": ""}, finish="content_filter")],
        [_whole({"content": ""}, finish="content_filter")],
    ),
    _shape(
        "completion_logprobs",
        [
            (
                {
                    "index": 0,
                    "text": " a",
                    "logprobs": {
                        "tokens": [" a"],
                        "token_logprobs": [-0.5],
                        "top_logprobs": [{" a": -0.5, "index": -2.0}],
                        "text_offset": [0],
                    },
                    "finish_reason": None,
                },
                {},
            ),
            (
                {
                    "index": 0,
                    "text": " b",
                    "logprobs": {
                        "tokens": [" b"],
                        "token_logprobs": [None],
                        "top_logprobs": [{"function": -1.5, " b": -2.5}],
                        "text_offset": [2],
                    },
                    "finish_reason": "length",
                },
                {},
            ),
        ],
        [
            {
                "index": 0,
                "text": " a b",
                "logprobs": {
                    "tokens": [" a", " b"],
                    "token_logprobs": [-0.5, None],
                    "top_logprobs": [{" a": -0.5, "index": -2.0}, {"function": -1.5, " b": -2.5}],
                    "text_offset": [0, 2],
                },
                "finish_reason": "length",
            }
        ],
        request={"logprobs": 2},
        path="/v1/completions",
        kind="text_completion",
    ),
)
