"""Every parameter of the APIs, on an engine host and on a server over HTTP: honoured, forwarded, or refused by name."""

import json
from collections.abc import Callable
from typing import Any, get_type_hints

import pytest
from openai.types import completion_create_params, embedding_create_params
from openai.types.chat import completion_create_params as chat_create_params

from backends.llm.host_inputs.engine_completion import prompts_of
from backends.llm.host_inputs.engine_inputs import inputs_of
from backends.llm.host_inputs.engine_prompt import Prompt, prompt_of
from backends.llm.http.openai_http import OpenAIHttpTarget
from backends.tokenization.tokenizer import PromptFormat
from contracts.errors import ConfigurationError, InvalidRequest, UnsupportedParameter
from contracts.serving.configuration import TargetSpec
from gateway.apis.reading import read_chat, read_completion, read_embedding
from tests.backends.llm.engine_fake import builtin_hello

HELLO = builtin_hello()
USER: list[dict[str, Any]] = [{"role": "user", "content": "one"}]
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
FORM = PromptFormat(
    HELLO.tokenizer,
    "{% for m in messages %}{{ m.role }}:{{ m.content }}{{ m.reasoning_content }}{% endfor %}{{ tools }}",
    {},
)

HONOURED: dict[str, Any] = {
    "frequency_penalty": 0.5,
    "logit_bias": {"5": 1},
    "logprobs": True,
    "max_completion_tokens": 5,
    "max_tokens": 5,
    "messages": USER,
    "model": "tiny",
    "n": 2,
    "presence_penalty": 0.5,
    "reasoning_effort": "low",
    "response_format": {"type": "json_object"},
    "seed": 3,
    "stop": ["x"],
    "stream": True,
    "temperature": 0.5,
    "tools": [TOOL],
    "top_p": 0.5,
    # vLLM's
    "chat_template_kwargs": {"a": 1},
    "guided_choice": ["a"],
    "guided_grammar": 'start: "a"',
    "guided_json": {"type": "object"},
    "guided_regex": "a",
    "ignore_eos": True,
    "min_p": 0.5,
    "min_tokens": 2,
    "repetition_penalty": 1.5,
    "stop_token_ids": [3],
    "structured_outputs": {"regex": "a"},
    "top_k": 3,
}
WITH: dict[str, dict[str, Any]] = {  # honoured beside another field
    "parallel_tool_calls": {"parallel_tool_calls": True, "tools": [TOOL]},
    "stream_options": {"stream_options": {"include_usage": True, "include_obfuscation": True}, "stream": True},
    "tool_choice": {"tool_choice": "required", "tools": [TOOL]},
    "top_logprobs": {"top_logprobs": 2, "logprobs": True},
}
IDLE: dict[str, Any] = {  # they change no answer
    "metadata": {"a": "b"},
    "prompt_cache_key": "k",
    "prompt_cache_options": {"mode": "explicit"},
    "prompt_cache_retention": "24h",
    "safety_identifier": "s",
    "user": "u",
}
REFUSED: dict[str, Any] = {
    "audio": {"voice": "alloy", "format": "wav"},
    "function_call": {"name": "f"},
    "functions": [{"name": "f"}],
    "modalities": ["text", "audio"],
    "moderation": {"mode": "score"},
    "prediction": {"type": "content", "content": "x"},
    "service_tier": "flex",
    "store": True,
    "verbosity": "low",
    "web_search_options": {},
    # vLLM's
    "add_generation_prompt": False,
    "add_special_tokens": True,
    "allowed_token_ids": [5],
    "bad_words": ["x"],
    "best_of": 2,
    "cache_salt": "x",
    "chat_template": "{{ messages }}",
    "continue_final_message": True,
    "documents": [{"text": "x"}],
    "echo": True,
    "include_reasoning": False,
    "include_stop_str_in_output": True,
    "kv_transfer_params": {"a": 1},
    "length_penalty": 0.5,
    "logits_processors": ["x"],
    "mm_processor_kwargs": {"a": 1},
    "priority": 3,
    "prompt_logprobs": 1,
    "request_id": "x",
    "return_token_ids": True,
    "skip_special_tokens": False,
    "spaces_between_special_tokens": False,
    "thinking_token_budget": 10,
    "truncate_prompt_tokens": 5,
    "use_beam_search": True,
    "vllm_xargs": {"a": 1},
    # nobody's
    "temprature": 0.5,
}
# What a plain chat is given anyway: saying so asks for nothing.
AS_ALWAYS: dict[str, Any] = {
    "audio": None,
    "best_of": 1,
    "echo": False,
    "function_call": "auto",
    "functions": [],
    "modalities": ["text"],
    "parallel_tool_calls": True,
    "service_tier": "auto",
    "skip_special_tokens": True,
    "store": False,
    "temprature": None,
    "tools": [],
    "use_beam_search": False,
    "verbosity": "medium",
}


def chat_body(**fields: Any) -> bytes:
    return json.dumps({"model": "tiny", "messages": USER, **fields}).encode()


async def engine_prompt(**fields: Any) -> Prompt:
    body = chat_body(**fields)
    return await prompt_of(read_chat("application/json", body), body, HELLO, FORM)


def test_the_table_has_every_parameter_of_the_sdk():
    known = get_type_hints(chat_create_params.CompletionCreateParamsBase).keys() | {"stream"}
    assert known <= HONOURED.keys() | WITH.keys() | IDLE.keys() | REFUSED.keys()


CHANGES = {name: {name: value} for name, value in HONOURED.items()} | WITH
OF_OTHERS = frozenset({"model", "messages", "stream", "stream_options", "parallel_tool_calls", "chat_template_kwargs"})


@pytest.mark.parametrize("name", CHANGES)
async def test_an_engine_host_honours(name):
    plain, changed = await engine_prompt(), await engine_prompt(**CHANGES[name])
    # The model, how the answer comes and what only a template may read show elsewhere than in what is submitted.
    assert (plain == changed) == (name in OF_OTHERS - {"parallel_tool_calls"} or name == "reasoning_effort")


@pytest.mark.parametrize("name", IDLE | AS_ALWAYS)
async def test_what_changes_nothing_is_taken(name):
    assert await engine_prompt(**{name: (IDLE | AS_ALWAYS)[name]}) == await engine_prompt()


@pytest.mark.parametrize("name", REFUSED)
async def test_an_engine_host_refuses_by_name(name):
    with pytest.raises(UnsupportedParameter) as refused:
        await engine_prompt(**{name: REFUSED[name]})
    assert refused.value.param == name and refused.value.error_code == "unsupported_parameter"
    assert name in refused.value.message and "'tiny'" in refused.value.message


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [TOOL], "parallel_tool_calls": False}, "parallel_tool_calls"),
        ({"tools": [TOOL, {"type": "custom", "custom": {"name": "c"}}]}, "tools[1].type"),
        ({"stream": True, "stream_options": {"continuous_usage_stats": True}}, "stream_options.continuous_usage_stats"),
        (
            {"structured_outputs": {"regex": "a", "whitespace_pattern": " "}},
            "structured_outputs.whitespace_pattern",
        ),
        ({"messages": [{"role": "assistant", "function_call": {"name": "f"}}]}, "messages[0].function_call"),
        ({"messages": [*USER, {"role": "assistant", "audio": {"id": "a"}}]}, "messages[1].audio"),
        ({"messages": [*USER, {"role": "user", "content": "x", "shade": 1}]}, "messages[1].shade"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "1", "type": "custom", "custom": {}}]}]},
            "messages[0].tool_calls[0].type",
        ),
        *(
            (
                {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": kind}]}]},
                "messages[0].content[1].type",
            )
            for kind in ("image_url", "input_audio", "file", "video_url")
        ),
    ],
)
async def test_an_engine_host_refuses_what_stands_within_a_field_by_its_place(fields, param):
    with pytest.raises(UnsupportedParameter) as refused:
        await engine_prompt(**fields)
    assert refused.value.param == param and "'tiny'" in refused.value.message


async def test_an_answer_can_be_sent_back_as_it_came():
    answer: dict[str, Any] = {
        "role": "assistant",
        "content": "two",
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
        "tool_calls": None,
        "reasoning_content": " thought",
    }
    prompt = await engine_prompt(messages=[*USER, answer])
    assert prompt.token_ids == FORM.encode("user:oneassistant:two thought")


async def test_a_refusal_says_what_to_use_in_its_place():
    with pytest.raises(UnsupportedParameter, match="use tools"):
        await engine_prompt(functions=[{"name": "f"}])
    with pytest.raises(UnsupportedParameter, match="/v1/responses"):
        await engine_prompt(store=True)


# completions and embeddings


async def engine_completion(**fields: Any) -> Prompt:
    body = json.dumps({"model": "tiny", "prompt": "one", **fields}).encode()
    [prompt] = await prompts_of(read_completion("application/json", body), body, HELLO, FORM)
    return prompt


COMPLETION_REFUSED = {"best_of": 2, "echo": True, "suffix": "x", "prompt_embeds": "x", "add_special_tokens": False}


def test_the_tables_have_every_parameter_of_a_completion():
    known = get_type_hints(completion_create_params.CompletionCreateParamsBase).keys() | {"stream"}
    assert known <= HONOURED.keys() | WITH.keys() | IDLE.keys() | COMPLETION_REFUSED.keys() | {"prompt"}


@pytest.mark.parametrize("name", COMPLETION_REFUSED)
async def test_a_completion_is_refused_by_name(name):
    with pytest.raises(UnsupportedParameter) as refused:
        await engine_completion(**{name: COMPLETION_REFUSED[name]})
    assert refused.value.param == name


async def test_a_completion_that_asks_for_nothing_more_is_taken():
    assert await engine_completion(best_of=1, echo=False, suffix="", user="u") == await engine_completion()


def test_the_tables_have_every_parameter_of_an_embedding():
    known = get_type_hints(embedding_create_params.EmbeddingCreateParams).keys()
    assert known == {"input", "model", "dimensions", "encoding_format", "user"}


@pytest.mark.parametrize("name", ["truncate_prompt_tokens", "normalize", "messages"])
async def test_an_embedding_is_refused_by_name(name):
    hello = builtin_hello(kind="embed")
    body = json.dumps({"model": "tiny", "input": "one", "encoding_format": "float", "user": "u", name: 1}).encode()
    with pytest.raises(UnsupportedParameter) as refused:
        await inputs_of(read_embedding("application/json", body), body, hello, FORM)
    assert refused.value.param == name


# over HTTP


@pytest.fixture
async def http_target(upstream):
    made: list[OpenAIHttpTarget] = []
    upstream.always(upstream.whole(upstream.completion()))

    def make(**settings: Any) -> OpenAIHttpTarget:
        made.append(OpenAIHttpTarget(TargetSpec("t", "p", "openai_http", upstream.url, settings=settings), str))
        return made[-1]

    yield make
    for target in made:
        await target.close()


EVERYTHING = HONOURED | {name: fields[name] for name, fields in WITH.items()} | IDLE | REFUSED
EVERYTHING["parallel_tool_calls"] = False


@pytest.mark.parametrize("name", sorted(EVERYTHING.keys() - {"model", "messages", "stream", "stream_options"}))
async def test_a_server_over_http_is_told_or_the_caller_refused_by_name(
    name: str, http_target: Callable, upstream, call_of, sink
):
    body = chat_body(**{name: EVERYTHING[name]})
    await http_target().call(call_of(body), sink)
    assert upstream.requests[-1].body == body
    asked = len(upstream.requests)
    with pytest.raises(UnsupportedParameter) as refused:
        await http_target(refuses=[name]).call(call_of(body), sink)
    assert refused.value.param == name and len(upstream.requests) == asked


@pytest.mark.parametrize(
    "said", [{"n": 1}, {"n": None}, {}, {"logit_bias": {}}, {"temperature": 1}, {"parallel_tool_calls": True}]
)
async def test_what_asks_for_nothing_is_not_refused_over_http(said, http_target, call_of, sink):
    target = http_target(refuses=["n", "logit_bias", "temperature", "parallel_tool_calls"])
    assert (await target.call(call_of(chat_body(**said)), sink)).finish_reason == "stop"


@pytest.mark.parametrize(("kind", "part"), [("images", "image_url"), ("audio", "input_audio"), ("files", "file")])
async def test_a_server_that_takes_none_of_a_kind_is_sent_none(kind, part, http_target, upstream, call_of, sink):
    body = chat_body(messages=[*USER, {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": part}]}])
    await http_target().call(call_of(body), sink)
    await http_target(takes={other: False for other in {"images", "audio", "files"} - {kind}}).call(call_of(body), sink)
    with pytest.raises(UnsupportedParameter, match=f"takes no {kind}") as refused:
        await http_target(takes={kind: False}).call(call_of(body), sink)
    assert refused.value.param == "messages[1].content[1].type" and len(upstream.requests) == 2


@pytest.mark.parametrize(
    "settings",
    [{"refuses": "n"}, {"takes": {"images": "no"}}, {"takes": {"video": False}}, {"paths": {"rerank": "rerank"}}],
)
def test_abilities_that_cannot_be_meant_are_refused(settings):
    with pytest.raises(ConfigurationError, match="'t'"):
        OpenAIHttpTarget(TargetSpec("t", "p", "openai_http", "http://127.0.0.1:1/v1", settings=settings), str)


def test_what_is_refused_is_the_callers_fault():
    assert issubclass(UnsupportedParameter, InvalidRequest) and not UnsupportedParameter.retryable
