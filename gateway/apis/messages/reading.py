"""Parses bodies of the Messages API into typed requests. Fields that the gateway cannot honour are refused by name."""

import re
from collections.abc import Sequence
from typing import Final, TypeVar, get_args

import msgspec

from contracts.api.ignored_fields import is_ignored
from contracts.api.messages import (
    MAX_BLOCKS,
    AnyBlock,
    Block,
    BudgetedThinking,
    Contents,
    Display,
    DocumentBlock,
    Effort,
    ImageType,
    Lifetime,
    Message,
    MessagesRequest,
    NamedChoice,
    Prompt,
    Role,
    ServiceTier,
    Tool,
    ToolResultBlock,
    ToolUseBlock,
    Url,
)
from contracts.errors import InvalidRequest, NotOffered, ThreadUnsupported
from gateway.apis.reading import Choices, read_body, unknown_parameter

_requests: Final = msgspec.json.Decoder(MessagesRequest)
_prompts: Final = msgspec.json.Decoder(Prompt)
_names: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])

_CHOICES: Final[Choices] = {
    "role": get_args(Role),
    "ttl": get_args(Lifetime),
    "effort": get_args(Effort),
    "display": get_args(Display),
    "service_tier": get_args(ServiceTier),
    "media_type": (*get_args(ImageType), "application/pdf", "text/plain"),
}
# What `type` may be, by where it stands.
_TYPES: Final = (
    (
        re.compile(r"messages\[\d+\]\.content\[\d+\]\.content\[\d+\]"),
        ("text", "image", "document", "tool_reference"),
    ),
    (re.compile(r".*\.source\.content\[\d+\]"), ("text", "image")),
    (re.compile(r"messages\[\d+\]\.content\[\d+\]"), tuple(kind.__struct_config__.tag for kind in get_args(Block))),
    (re.compile(r"system\[\d+\]"), ("text",)),
    (re.compile(r".*\.source"), ("base64", "url", "text or content in a document")),
    (re.compile(r"(.*\.)?cache_control"), ("ephemeral",)),
    (re.compile(r"output_config\.format|output_format"), ("json_schema",)),
    (re.compile(r"thinking"), ("enabled", "adaptive", "disabled")),
    (re.compile(r"tool_choice"), ("auto", "any", "tool", "none")),
)
_NAME: Final = re.compile(r"[a-z0-9_.-]{1,60}")
_STEP: Final = re.compile(r"\.?([^.\[]+)|\[(\d+)\]")
_CUSTOM: Final = (None, "custom")
_NOT_OFFERED: Final = (
    "compaction",
    "container",
    "context_management",
    "fallbacks",
    "inference_geo",
    "mcp_servers",
    "thread",
)
_FIELDS: Final = frozenset((*MessagesRequest.__struct_encode_fields__, "betas"))  # the SDK's name for a header

PromptT = TypeVar("PromptT", bound=Prompt)


def read_messages(content_type: str, body: bytes) -> MessagesRequest:
    """Read the body of POST /v1/messages.

    Raises UnsupportedMediaType, MalformedBody (with the byte), or InvalidRequest (with field, value and limit).
    """
    request = _read(_requests, content_type, body)
    thinking = request.thinking
    if isinstance(thinking, BudgetedThinking) and thinking.budget_tokens >= request.max_tokens:
        raise InvalidRequest(
            f"thinking.budget_tokens is {thinking.budget_tokens}; it must be less than max_tokens, "
            f"{request.max_tokens}, which thinking counts towards",
            param="thinking.budget_tokens",
        )
    if request.messages[-1].role == "assistant":
        raise InvalidRequest(
            "messages ends with an assistant's message; going on with it (prefill) is not offered: end with a user's",
            param="messages",
        )
    for place, text in enumerate(request.stop_sequences or ()):
        if not text:
            raise InvalidRequest(f"stop_sequences[{place}] is empty", param=f"stop_sequences[{place}]")
    return request


def read_prompt(content_type: str, body: bytes) -> Prompt:
    """Read the body of POST /v1/messages/count_tokens. Raises as `read_messages`."""
    return _read(_prompts, content_type, body)


def _read(decoder: "msgspec.json.Decoder[PromptT]", content_type: str, body: bytes) -> PromptT:
    try:
        request = read_body(decoder, content_type, body, _CHOICES)
    except InvalidRequest as error:
        raise _with_its_type(error, body) from None
    _refuse_fields(request, body)
    blocks = sum(_size(message.content) for message in request.messages)
    if blocks > MAX_BLOCKS:
        raise InvalidRequest(
            f"messages has {blocks} blocks together; at most {MAX_BLOCKS} are allowed", param="messages"
        )
    for place, message in enumerate(request.messages):
        if not isinstance(message.content, str):
            _check_blocks(message, f"messages[{place}]")
    _check_tools(request)
    if request.format is not None:
        _check_object(request.format.schema, "output_config.format.schema")
    return request


def _with_its_type(error: InvalidRequest, body: bytes) -> InvalidRequest:
    """Return the name of the unsupported type, if that is the fault."""
    where, dot, field = (error.param or "").rpartition(".")
    if not dot or field != "type":
        return error
    known = next((types for pattern, types in _TYPES if pattern.fullmatch(where)), ())
    try:
        given: object = msgspec.json.decode(body)
        for name, index in _STEP.findall(error.param or ""):
            given = given[int(index) if index else name]  # type: ignore[index]  # the path is that of what was read
    except (LookupError, TypeError, ValueError, RecursionError):
        return error  # what follows the field is broken as well
    shown = repr(given) if isinstance(given, str) and _NAME.fullmatch(given) else "of another kind"
    return InvalidRequest(
        f"{error.param} is {shown}, which is not supported; supported are {', '.join(known)}", param=error.param
    )


def _size(content: "str | Sequence[AnyBlock] | None") -> int:
    """Return the number of blocks, with those in results of tools and in documents."""
    if content is None or isinstance(content, str):
        return 1
    inner = (block.content for block in content if isinstance(block, ToolResultBlock))
    sources = (block.source for block in content if isinstance(block, DocumentBlock))
    documents = (source.content for source in sources if isinstance(source, Contents))
    return len(content) + sum(map(_size, (*inner, *documents)))


def _refuse_fields(request: Prompt, body: bytes) -> None:
    """Refuse fields that are not supported, and unknown ones, which are probably misspelt."""
    for name, value in _names.decode(body).items():
        if name in _FIELDS or (name in _NOT_OFFERED and bytes(value) in (b"null", b"[]")):
            continue
        if is_ignored("messages", name, bytes(value)):
            continue
        if name == "thread":
            raise ThreadUnsupported("thread is not offered; leave it out and send the whole history", param=name)
        if name in _NOT_OFFERED:
            raise NotOffered(f"{name} is not offered; leave it out", param=name)
        raise unknown_parameter(name)
    if request.speed not in (None, "standard", "fast"):
        raise InvalidRequest("speed is neither 'standard' nor 'fast'", param="speed")


def _check_blocks(message: Message, where: str) -> None:
    """Verify that blocks match their role, and refuse those that no target can get."""
    for place, block in enumerate(message.content):
        assert not isinstance(block, str)
        at = f"{where}.content[{place}]"
        kind = block.__struct_config__.tag
        if isinstance(block, ToolUseBlock):
            is_right = message.role == "assistant"
            _check_object(block.input, f"{at}.input")
        elif kind in ("thinking", "redacted_thinking"):
            is_right = message.role == "assistant"
        else:
            is_right = kind == "text" or message.role == "user"
        if not is_right:
            raise InvalidRequest(
                f"{at}.type is {kind!r}, which has no place in a message of the role {message.role!r}",
                param=f"{at}.type",
            )
        if isinstance(block, DocumentBlock):
            _check_document(block, at)
        elif isinstance(block, ToolResultBlock) and isinstance(block.content, list):
            for inner, part in enumerate(block.content):
                if isinstance(part, DocumentBlock):
                    _check_document(part, f"{at}.content[{inner}]")


def _check_document(block: DocumentBlock, at: str) -> None:
    if block.citations is not None and block.citations.enabled:
        raise InvalidRequest(f"{at}.citations.enabled is true; citations are not offered", param=f"{at}.citations")
    if isinstance(block.source, Url):
        raise InvalidRequest(
            f"{at}.source.type is 'url', which is not supported for a document; send its bytes as base64",
            param=f"{at}.source.type",
        )


def _check_tools(request: Prompt) -> None:
    tools = request.tools or []
    for place, tool in enumerate(tools):
        _check_tool(tool, f"tools[{place}]")
    loaded = request.loaded_tools
    if tools and not loaded:
        raise InvalidRequest("tools are all deferred (defer_loading); at least one must be loaded", param="tools")
    choice = request.tool_choice
    if isinstance(choice, NamedChoice) and all(tool.name != choice.name for tool in loaded):
        raise InvalidRequest(f"tool_choice.name is {choice.name[:64]!r}, and no tool has it", param="tool_choice.name")
    if choice is not None and choice.__struct_config__.tag == "any" and not tools:
        raise InvalidRequest("tool_choice.type is 'any', and tools is empty", param="tool_choice")


def _check_tool(tool: Tool, at: str) -> None:
    if tool.type not in _CUSTOM:
        shown = repr(tool.type) if tool.type and _NAME.fullmatch(tool.type) else "of another kind"
        raise NotOffered(
            f"{at}.type is {shown}: tools that bring their own definition are not offered; "
            "send a tool of the type 'custom' with an input_schema",
            param=f"{at}.type",
        )
    if not tool.input_schema:
        raise InvalidRequest(f"{at}.input_schema is required", param=f"{at}.input_schema")
    _check_object(tool.input_schema, f"{at}.input_schema")


def _check_object(value: msgspec.Raw, at: str) -> None:
    """Verify that a value that is passed on unchanged is a JSON object."""
    if not bytes(value).lstrip().startswith(b"{"):
        raise InvalidRequest(f"{at} is not an object", param=at)
