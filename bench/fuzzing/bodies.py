"""Bodies of requests: a good one for each operation, and the same with something in it that nobody should send."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from hypothesis import strategies as st

SECRET: Final = "xyzzy plugh private prompt"
_TOOL: Final = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
_TURNS: Final = [
    {"role": "user", "content": SECRET},
    {"role": "assistant", "content": "Yes?"},
    {"role": "user", "content": [{"type": "text", "text": SECRET}]},
]
# By the API's name: what makes a request of it good, and what it may say besides.
_NEEDED: Final[dict[str, dict[str, Any]]] = {
    "chat.completions": {"messages": [{"role": "user", "content": SECRET}]},
    "completions": {"prompt": SECRET},
    "embeddings": {"input": [SECRET]},
    "messages": {"max_tokens": 9, "messages": [{"role": "user", "content": SECRET}]},
    "messages.count_tokens": {"messages": [{"role": "user", "content": SECRET}]},
    "responses": {"input": SECRET},
    "rerank": {"query": SECRET, "documents": [SECRET]},
    "score": {"text_1": SECRET, "text_2": [SECRET]},
}
_SAMPLED: Final[dict[str, Any]] = {"stream": False, "temperature": 0.5, "top_p": 0.9, "max_tokens": 9, "top_k": 5}
_OPENAI: Final[dict[str, Any]] = _SAMPLED | {
    "n": 1,
    "stop": ["###"],
    "seed": 7,
    "user": "someone",
    "presence_penalty": 0.5,
    "frequency_penalty": 0.5,
    "logit_bias": {"50": 1},
    "min_p": 0.1,
    "min_tokens": 1,
    "stop_token_ids": [5],
    "ignore_eos": False,
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": _TOOL}},
}
_BESIDES: Final[dict[str, dict[str, Any]]] = {
    "chat.completions": _OPENAI
    | {
        "messages": _TURNS,
        "max_completion_tokens": 9,
        "logprobs": True,
        "top_logprobs": 2,
        "tools": [{"type": "function", "function": {"name": "weather", "parameters": _TOOL}}],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "parallel_tool_calls": True,
        "reasoning_effort": "low",
        "metadata": {"a": "b"},
        "chat_template_kwargs": {"think": True},
    },
    "completions": _OPENAI | {"best_of": 1, "echo": False, "suffix": "", "logprobs": 2},
    "embeddings": {"encoding_format": "float", "dimensions": 8, "user": "someone"},
    "messages": _SAMPLED
    | {
        "messages": _TURNS,
        "system": [{"type": "text", "text": SECRET, "cache_control": {"type": "ephemeral"}}],
        "stop_sequences": ["###"],
        "metadata": {"user_id": "someone"},
        "tools": [{"name": "weather", "input_schema": _TOOL}],
        "tool_choice": {"type": "tool", "name": "weather"},
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    },
    "responses": {
        "stream": False,
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": SECRET}]}],
        "instructions": SECRET,
        "temperature": 0.5,
        "top_p": 0.9,
        "max_output_tokens": 20,
        "store": False,
        "metadata": {"a": "b"},
        "user": "someone",
        "parallel_tool_calls": True,
        "previous_response_id": "resp_x",
        "reasoning": {"effort": "low"},
        "tools": [{"type": "function", "name": "weather", "parameters": _TOOL}],
        "tool_choice": {"type": "function", "name": "weather"},
        "text": {"format": {"type": "json_schema", "name": "x", "schema": _TOOL}},
    },
    "rerank": {"top_n": 1, "return_documents": True, "max_tokens_per_doc": 10},
    "score": {},
}
# What an API that is not known here is asked with: whatever it needs is likely to be among these.
_ANY: Final[dict[str, Any]] = {name: value for body in _NEEDED.values() for name, value in body.items()}


def example_of(api: str, model: str) -> dict[str, Any]:
    """Return the plainest good body of an operation."""
    return {"model": model, **_NEEDED.get(api, _ANY)}


def full_example_of(api: str, model: str) -> dict[str, Any]:
    """Return a body with about every field that the operation knows. Not all of them go together."""
    return example_of(api, model) | _BESIDES.get(api, {})


@dataclass(frozen=True, slots=True)
class Raw:
    """A piece of JSON, or of what is none, as it stands."""

    text: bytes


@dataclass(frozen=True, slots=True)
class Mutation:
    """What is done to a body: where (fields and places), and what stands there afterwards."""

    where: tuple[str | int, ...]
    kind: str  # "replace", "delete", "duplicate", "wrap", "add"
    value: Raw


_NASTY: Final = tuple(
    map(
        Raw,
        (
            *(b"null", b"true", b"0", b"-1", b"-0", b"1.5", b"1e400", b"-1e400", b"1e-400", b"2147483648"),
            *(b"9223372036854775808", b"18446744073709551616", b"1" + b"0" * 400, b"0." + b"9" * 400),
            *(b"[]", b"{}", b"[[]]", b"[{}]", b"[null]", b'{"":null}', b'""', b'" "', b'"\\u0000"', b'"a\\u0000b"'),
            *(
                b'"\\ud800"',
                b'"\\udc00\\ud800"',
                b'"\\ud83d\\ude00"',
                b'"\xff"',
                b'"\xed\xa0\x80"',
                b'"\x00"',
                b'"\x7f"',
            ),
            *(b"NaN", b"Infinity", b"+1", b"01", b"0x1", b"'a'", b"//", b"", b",", b'{"a":1,"a":2}'),
            *(b'"' + b"x" * 70_000 + b'"', b"[" * 2_000 + b"]" * 2_000, b'{"a":' * 2_000 + b"1" + b"}" * 2_000),
            b"[" * 100_000,
            b"[" + b"0," * 5_000 + b"0]",
            b'[{"type":"text"}]',
            b'{"type":"object"}',
            b'{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}',
            b'{"type":"function","function":null}',
            b'"system"',
            b'"required"',
            b'{"type":"json_schema","json_schema":{"name":"x","schema":{"$ref":"#"}}}',
        ),
    )
)
_KINDS: Final = ("replace", "replace", "replace", "delete", "duplicate", "wrap", "add")


def places_of(body: object, here: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the way to every value of a body."""
    if here:
        yield here
    if isinstance(body, dict):
        for name, value in body.items():
            yield from places_of(value, (*here, name))
    elif isinstance(body, list):
        for number, value in enumerate(body):
            yield from places_of(value, (*here, number))


def mutations(body: dict[str, Any]) -> st.SearchStrategy[list[Mutation]]:
    """Return what one to three places of a body may be made of."""
    text = st.text(max_size=8).map(lambda found: Raw(json.dumps(found).encode()))
    number = st.one_of(st.integers(), st.floats()).map(lambda found: Raw(json.dumps(found).encode()))
    values = st.one_of(st.sampled_from(_NASTY), st.sampled_from(_NASTY), text, number)
    one = st.builds(Mutation, st.sampled_from(list(places_of(body))), st.sampled_from(_KINDS), values)
    return st.lists(one, min_size=1, max_size=3)


def mutated(body: dict[str, Any], changes: Sequence[Mutation]) -> bytes:
    """Write a body with these changes, each where its place still is."""
    tree = json.loads(json.dumps(body))
    for change in changes:
        _change(tree, change)
    return dump(tree)


def _change(tree: Any, change: Mutation) -> None:
    *way, last = change.where
    holder, field = tree, cast(Any, last)  # a name in an object, a place in a list
    try:
        for step in way:
            holder = holder[step]
        value = holder[field]
    except (LookupError, TypeError):
        return  # another change has taken it away
    if change.kind == "delete":
        del holder[field]
    elif change.kind == "duplicate" and isinstance(holder, dict):
        holder[field] = Raw(dump(value) + b"," + json.dumps(field).encode() + b":" + change.value.text)
    elif change.kind == "wrap":
        holder[field] = [value]
    elif change.kind == "add" and isinstance(holder, dict):
        holder["unheard_of"] = change.value
    else:
        holder[field] = change.value


def dump(tree: object) -> bytes:
    """Write JSON, raw pieces as they stand."""
    if isinstance(tree, Raw):
        return tree.text
    if isinstance(tree, dict):
        return b"{" + b",".join(json.dumps(name).encode() + b":" + dump(value) for name, value in tree.items()) + b"}"
    if isinstance(tree, list):
        return b"[" + b",".join(map(dump, tree)) + b"]"
    return json.dumps(tree).encode()
