"""What an application asked for becomes what an engine host is given. What cannot be honoured is refused by name."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from backends.llm.engine_sampling import grammar_of, refuse_given, room_for, sampling_of, stops_of
from backends.tokenizer import PromptFormat
from contracts.chat import ChatRequest, Message, ReasoningEffort
from contracts.embedding import EmbeddingRequest
from contracts.errors import InvalidRequest
from contracts.wire import Grammar, ModelHello, Sampling

# Text up to here is encoded in a millisecond or so; beyond it in a thread, so that other streams go on.
_LONG_CHARACTERS: Final = 4096
_FREE_TOOL_CHOICES: Final = (b"", b"null", b'"auto"', b'"none"')
_TEXT_PARTS: Final = ("text", "refusal")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as token ids, with everything else its generation needs."""

    token_ids: list[int]
    sampling: Sampling
    stop: list[str]
    grammar: Grammar | None
    tools: bytes
    tool_choice: str = ""  # as in contracts.wire.Submit
    is_raw: bool = False  # no chat: what is generated is text as it stands


class _Unsupported(msgspec.Struct, frozen=True):
    """Fields of OpenAI's API or of vLLM's that would change the answer and that engine hosts do not know."""

    functions: msgspec.Raw = msgspec.Raw()
    function_call: msgspec.Raw = msgspec.Raw()
    audio: msgspec.Raw = msgspec.Raw()
    prediction: msgspec.Raw = msgspec.Raw()
    web_search_options: msgspec.Raw = msgspec.Raw()
    best_of: msgspec.Raw = msgspec.Raw()
    use_beam_search: msgspec.Raw = msgspec.Raw()
    prompt_logprobs: msgspec.Raw = msgspec.Raw()
    bad_words: msgspec.Raw = msgspec.Raw()
    mm_processor_kwargs: msgspec.Raw = msgspec.Raw()
    truncate_prompt_tokens: msgspec.Raw = msgspec.Raw()


class _NamedFunction(msgspec.Struct, frozen=True):
    name: str


class _NamedTool(msgspec.Struct, frozen=True, tag_field="type", tag="function"):
    function: _NamedFunction


_unsupported_decoder: Final = msgspec.json.Decoder(_Unsupported)


@dataclass(frozen=True, slots=True)
class Inputs:
    """What is to be embedded, as token ids."""

    token_ids: list[list[int]]

    @property
    def tokens(self) -> int:
        """Give how many tokens they are together."""
        return sum(map(len, self.token_ids))


async def prompt_of(
    request: ChatRequest,
    body: bytes,
    model: ModelHello,
    form: PromptFormat,
    effort: ReasoningEffort | None = None,
) -> Prompt:
    """Render, encode and check a chat. Raises InvalidRequest, naming the field and the limit.

    `body` is what the application sent, searched for fields that cannot be honoured. `effort` replaces what it says
    of reasoning effort.
    """
    refuse_given(request, _unsupported_decoder.decode(body))
    if model.kind != "generate":
        raise InvalidRequest(f"the model {request.model!r} embeds; it does not chat", param="model")
    tools = _tools(request, form)
    grammar = grammar_of(request)
    tool_choice = _forced_call(request, tools, grammar)
    messages = [_message(message, place, request.model) for place, message in enumerate(request.messages)]
    more = _template_variables(request, tools, effort)
    if sum(len(str(message["content"])) for message in messages) <= _LONG_CHARACTERS and len(tools) <= _LONG_CHARACTERS:
        token_ids = form.encode(form.render(messages, **more))
    else:
        token_ids = await asyncio.to_thread(lambda: form.encode_long(form.render(messages, **more)))
    if request.top_logprobs is not None and not request.logprobs:
        raise InvalidRequest("top_logprobs is given without logprobs: true", param="top_logprobs")
    logprobs = (request.top_logprobs or 0) if request.logprobs else None
    sampling = sampling_of(request, room_for(request, model, len(token_ids)), logprobs)
    return Prompt(token_ids, sampling, stops_of(request), grammar, tools, tool_choice)


async def encode_entries(entries: Sequence[str | list[int]], form: PromptFormat) -> list[list[int]]:
    """Encode the texts among the entries, each with the special tokens the model frames it with."""
    texts = [one for one in entries if isinstance(one, str)]
    if sum(map(len, texts)) <= _LONG_CHARACTERS:
        encoded = iter(form.encode_inputs(texts))
    else:
        encoded = iter(await asyncio.to_thread(form.encode_inputs, texts))
    return [next(encoded) if isinstance(one, str) else one for one in entries]


async def inputs_of(request: EmbeddingRequest, model: ModelHello, form: PromptFormat) -> Inputs:
    """Encode what is to be embedded. Raises InvalidRequest, naming the input that is too long."""
    if model.kind != "embed":
        raise InvalidRequest(f"the model {request.model!r} chats; it does not embed", param="model")
    all_ids = await encode_entries(request.inputs, form)
    for place, ids in enumerate(all_ids):
        where = f"input[{place}]" if len(all_ids) > 1 else "input"
        if not ids:
            raise InvalidRequest(f"{where} is empty", param="input")
        if model.context_tokens and len(ids) > model.context_tokens:
            raise InvalidRequest(
                f"{where} has {len(ids)} tokens; {request.model!r} takes at most {model.context_tokens}",
                param="input",
                code="context_length_exceeded",
            )
    if request.dimensions is not None and model.dimensions and request.dimensions > model.dimensions:
        raise InvalidRequest(
            f"dimensions is {request.dimensions}; {request.model!r} has {model.dimensions}", param="dimensions"
        )
    return Inputs(all_ids)


def _message(message: Message, place: int, model: str) -> dict[str, object]:
    given: dict[str, object] = {"role": message.role, "content": _content(message, place, model)}
    if message.name is not None:
        given["name"] = message.name
    if message.tool_call_id is not None:
        given["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        given["tool_calls"] = [
            {"id": call.id, "type": call.type, "function": {"name": call.function.name, "arguments": arguments}}
            for call in message.tool_calls
            if call.function is not None
            for arguments in (_arguments(call.function.arguments),)
        ]
    return given


def _content(message: Message, place: int, model: str) -> str:
    if message.content is None or isinstance(message.content, str):
        return message.content or message.refusal or ""
    for number, part in enumerate(message.content):
        if part.type not in _TEXT_PARTS:
            raise InvalidRequest(
                f"messages[{place}].content[{number}] is of type {part.type[:40]!r}; {model!r} takes text only",
                param=f"messages[{place}].content[{number}].type",
            )
    return "\n".join(part.text or part.refusal or "" for part in message.content)


def _arguments(text: str) -> object:
    # Templates render arguments as JSON themselves, and expect the object rather than its text.
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return found if isinstance(found, dict) else text


def _tools(request: ChatRequest, form: PromptFormat) -> bytes:
    if not request.tools or bytes(request.tool_choice).strip() == b'"none"':
        return b""
    if not form.takes("tools"):
        raise InvalidRequest(f"the chat template of {request.model!r} has no place for tools", param="tools")
    if request.parallel_tool_calls is False:
        raise InvalidRequest("parallel_tool_calls: false is not offered for this model", param="parallel_tool_calls")
    return msgspec.json.encode(request.tools)


def _forced_call(request: ChatRequest, tools: bytes, grammar: Grammar | None) -> str:
    """Give the tool call that must be made, as the wire states it; empty where the model decides."""
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
