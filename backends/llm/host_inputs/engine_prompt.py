"""Converts a chat to an engine host's input. Unsupported fields are refused by name."""

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from backends.llm.cache_marks import kept_prefixes, marks_of
from backends.llm.host_inputs.engine_inputs import LONG_CHARACTERS
from backends.llm.host_inputs.engine_messages import messages_of
from backends.llm.host_inputs.engine_sampling import (
    grammar_of,
    no_room,
    refuse_unhonoured,
    room_for,
    sampling_of,
    stops_of,
)
from backends.llm.parameters import IDLE, fields_of
from contracts.api.chat import ChatRequest, ReasoningEffort
from contracts.engine.kept_prefix import KeptPrefix
from contracts.engine.wire import Grammar, Image, ModelHello, Sampling
from contracts.errors import InvalidRequest, UnsupportedParameter

if TYPE_CHECKING:
    from backends.tokenization.tokenizer import (
        PromptFormat,  # loads libraries that only gateways with engine hosts need
    )

_FREE_TOOL_CHOICES: Final = (b"", b"null", b'"auto"', b'"none"')


class Prompt(msgspec.Struct, frozen=True):
    """A prompt as token ids, with everything else that its generation needs."""

    token_ids: list[int]
    sampling: Sampling
    stop: list[str]
    grammar: Grammar | None
    tools: bytes
    tool_choice: str = ""  # as in contracts.engine.wire.Submit
    is_raw: bool = False  # a text completion: the output is not parsed for reasoning or tool calls
    images: tuple[Image, ...] = ()
    kept_prefixes: tuple[KeptPrefix, ...] = ()


class _Tool(msgspec.Struct, frozen=True):
    type: str = "function"


class _NamedFunction(msgspec.Struct, frozen=True):
    name: str


class _NamedTool(msgspec.Struct, frozen=True, tag_field="type", tag="function"):
    function: _NamedFunction


_tool_decoder: Final = msgspec.json.Decoder(_Tool)
_HONOURED: Final = IDLE.union(ChatRequest.__struct_fields__) - {"service_tier", "speed"}


async def prompt_of(
    request: ChatRequest,
    body: bytes,
    model: ModelHello,
    form: "PromptFormat",
    effort: ReasoningEffort | None = None,
    *,
    is_limit_asked: bool = True,
) -> Prompt:
    """Render, encode and check a chat. Raises InvalidRequest with the field and the limit.

    `body` is the application's bytes, searched for unsupported fields. `effort` replaces the request's reasoning
    effort. For `is_limit_asked` see `room_for`.
    """
    if len(body) <= LONG_CHARACTERS:
        return _built(request, body, model, form, effort, is_limit_asked)
    return await asyncio.to_thread(_built, request, body, model, form, effort, is_limit_asked)


def _built(
    request: ChatRequest,
    body: bytes,
    model: ModelHello,
    form: "PromptFormat",
    effort: ReasoningEffort | None,
    is_limit_asked: bool,
) -> Prompt:
    fields = fields_of(body)
    refuse_unhonoured(request, fields, _HONOURED)
    if model.kind != "generate":
        raise InvalidRequest(f"the model {request.model!r} embeds; it does not chat", param="model")
    tools = _tools(request, form)
    grammar = grammar_of(request)
    tool_choice = _forced_call(request, tools, grammar)
    images: list[Image] | None = [] if model.accepts_images else None
    messages = messages_of(request, fields["messages"], images)
    more = _template_variables(request, tools, effort)
    token_ids = form.encode_within(form.render(messages, **more), model.context_tokens)
    if token_ids is None:
        raise no_room(request, model)
    marks = marks_of(request, body)
    kept = kept_prefixes(marks, request, messages, form, more, token_ids) if marks else ()
    if request.top_logprobs is not None and not request.logprobs:
        raise InvalidRequest("top_logprobs is given without logprobs: true", param="top_logprobs")
    logprobs = (request.top_logprobs or 0) if request.logprobs else None
    room = room_for(request, model, len(token_ids), is_limit_asked=is_limit_asked)
    sampling = sampling_of(request, room, logprobs)
    shown = tuple(images or ())
    return Prompt(token_ids, sampling, stops_of(request), grammar, tools, tool_choice, False, shown, kept)


def _tools(request: ChatRequest, form: "PromptFormat") -> bytes:
    if not request.tools or bytes(request.tool_choice).strip() == b'"none"':
        return b""
    if not form.takes("tools"):
        raise UnsupportedParameter(f"the chat template of {request.model!r} has no place for tools", param="tools")
    if request.parallel_tool_calls is False and bytes(request.tool_choice).strip() in _FREE_TOOL_CHOICES:
        # A forced call is a single one by its grammar, so it needs no refusal.
        raise UnsupportedParameter(
            f"parallel_tool_calls: false is not offered for the model {request.model!r}; leave it out",
            param="parallel_tool_calls",
        )
    for place, tool in enumerate(request.tools):
        try:
            kind = _tool_decoder.decode(tool).type
        except (msgspec.MsgspecError, ValueError):
            raise InvalidRequest(
                f"tools[{place}] must be an object whose type is a string", param=f"tools[{place}]"
            ) from None
        if kind != "function":
            raise UnsupportedParameter(
                f"tools[{place}] is of type {kind[:40]!r}; {request.model!r} calls functions only",
                param=f"tools[{place}].type",
            )
    return msgspec.json.encode(request.tools)


def _forced_call(request: ChatRequest, tools: bytes, grammar: Grammar | None) -> str:
    """Return the forced tool call in the engine protocol's notation; empty if the model decides."""
    choice = bytes(request.tool_choice).strip()
    if choice in _FREE_TOOL_CHOICES:
        return ""
    try:
        stated = msgspec.json.decode(choice, type=_NamedTool | Literal["required"])
    except (msgspec.MsgspecError, ValueError):
        raise InvalidRequest(
            "tool_choice must be 'auto', 'none', 'required' or name a function", param="tool_choice"
        ) from None
    if not tools:
        raise InvalidRequest("tool_choice asks for a call and tools is empty", param="tool_choice")
    if grammar is not None:
        raise InvalidRequest(
            "tool_choice asks for a call and another field says what the output must match; give one of them",
            param="tool_choice",
        )
    return stated if isinstance(stated, str) else f"function:{stated.function.name}"


def _template_variables(request: ChatRequest, tools: bytes, effort: ReasoningEffort | None) -> dict[str, Any]:
    variables: dict[str, Any] = dict(request.chat_template_kwargs or {})
    reserved = variables.keys() & {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"}
    if reserved:
        raise InvalidRequest(f"chat_template_kwargs may not set {min(reserved)!r}", param="chat_template_kwargs")
    if tools:
        variables["tools"] = json.loads(tools)
    if effort is not None:
        variables["reasoning_effort"] = effort
        if effort == "none":
            variables["enable_thinking"] = False
    elif request.reasoning_effort is not None:
        variables.setdefault("reasoning_effort", request.reasoning_effort)
        if request.reasoning_effort == "none":
            variables.setdefault("enable_thinking", False)
    return variables
