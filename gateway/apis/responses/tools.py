"""Translates the tools of a Responses request to a chat's. Tools that OpenAI runs on its own servers are refused by
name.

A chat has no namespaces: a namespace's functions are named NAMESPACE__FUNCTION there, and calls are renamed back.
"""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta

from contracts.api.responses import (
    MAX_FUNCTION_NAME,
    MAX_TOOLS,
    FunctionTool,
    NamespaceTool,
    OfferedTool,
    ResponseRequest,
)
from contracts.errors import InvalidRequest, NotOffered
from gateway.apis.reading import Choices, invalid_field

ToolChoice = str | dict[str, Any] | None

_MAX_SHOWN: Final = 60
_WORDS: Final = ("none", "auto", "required")
_CHOICES: Final[Choices] = {"type": ("function",), "mode": ("auto", "required")}


class _Peek(msgspec.Struct, frozen=True):
    type: str = "function"
    external_web_access: Any = None


class _NamedTool(msgspec.Struct, frozen=True):
    name: str
    type: Literal["function"] = "function"
    namespace: str | None = None


class _AllowedTools(msgspec.Struct, frozen=True):
    mode: Literal["auto", "required"]
    tools: Annotated[list[_NamedTool], Meta(min_length=1)]


_peek: Final = msgspec.json.Decoder(_Peek)
_tools: Final = msgspec.json.Decoder(FunctionTool)
_namespaces: Final = msgspec.json.Decoder(NamespaceTool)
_encode: Final = msgspec.json.Encoder().encode
_named: Final = msgspec.json.Decoder(_NamedTool)
_allowed: Final = msgspec.json.Decoder(_AllowedTools)


def read_tools(request: ResponseRequest, body: bytes) -> tuple[list[OfferedTool], list[msgspec.Raw]]:
    """Return the functions that are offered to the model, and the tools as the response repeats them.

    Raise InvalidRequest, naming the field.
    """
    offered: list[OfferedTool] = []
    shown: list[msgspec.Raw] = []
    for place, raw in enumerate(request.tools or ()):
        where = f"tools[{place}]"
        try:
            peek = _peek.decode(raw)
            if peek.type == "namespace":
                offered += _read_namespace(raw, where, body)
                shown.append(raw)
            elif not _is_never_used(peek):
                tool = _read_function(raw, peek.type, where, body)
                offered.append(OfferedTool(function=tool))
                shown.append(msgspec.Raw(_encode(tool)))
        except msgspec.ValidationError as error:
            raise invalid_field(str(error), body, _CHOICES, below=where) from None
    if len(offered) > MAX_TOOLS:
        raise InvalidRequest(
            f"tools has {len(offered)} functions, including namespaces; at most {MAX_TOOLS} are allowed",
            param="tools",
        )
    return offered, shown


def choose(request: ResponseRequest, tools: list[OfferedTool], body: bytes) -> tuple[list[OfferedTool], ToolChoice]:
    """Return the tools that the model may call, and the chat's `tool_choice`, both as the request's `tool_choice`
    states.

    Raises InvalidRequest, naming the field.
    """
    raw = request.tool_choice
    if raw is UNSET or bytes(raw).strip() == b"null":
        return tools, None
    try:
        choice = msgspec.json.decode(raw, type=_Peek | str)
        if isinstance(choice, str):
            return tools, _word(choice, tools)
        if choice.type == "allowed_tools":
            return _narrowed(_allowed.decode(raw), tools)
        if choice.type == "function":
            return tools, _named_choice(_named.decode(raw), tools)
    except msgspec.ValidationError as error:
        raise invalid_field(str(error), body, _CHOICES, below="tool_choice") from None
    raise InvalidRequest(
        f"tool_choice is of type {choice.type[:_MAX_SHOWN]!r}, and only functions are offered", param="tool_choice"
    )


def is_left_out(raw: msgspec.Raw) -> bool:
    """Return whether a tool that was read is not offered to the model."""
    return _is_never_used(_peek.decode(raw))


def _is_never_used(peek: _Peek) -> bool:
    """Return whether a tool can be omitted: a search of the provider's own index, which the model can do without.

    Codex offers it by default. A live web search is refused instead: its caller expects results.
    """
    return peek.type == "web_search" and peek.external_web_access is False


def _read_namespace(raw: msgspec.Raw, where: str, body: bytes) -> list[OfferedTool]:
    space = _namespaces.decode(raw)
    found: list[OfferedTool] = []
    for place, inner in enumerate(space.tools):
        at = f"{where}.tools[{place}]"
        try:
            tool = _read_function(inner, _peek.decode(inner).type, at, body)
        except msgspec.ValidationError as error:
            raise invalid_field(str(error), body, _CHOICES, below=at) from None
        one = OfferedTool(function=tool, namespace=space.name)
        if len(one.chat_name) > MAX_FUNCTION_NAME:
            raise InvalidRequest(
                f"{at}.name has {len(tool.name)} characters, with its namespace {len(one.chat_name)}; at most "
                f"{MAX_FUNCTION_NAME} are allowed",
                param=f"{at}.name",
            )
        found.append(one)
    return found


def _read_function(raw: msgspec.Raw, kind: str, where: str, body: bytes) -> FunctionTool:
    if kind != "function":
        raise NotOffered(
            f"{where} is of type {kind[:_MAX_SHOWN]!r}, which is not supported; define functions and run them yourself",
            param=f"{where}.type",
        )
    tool = _tools.decode(raw)
    check_object(tool.parameters, f"{where}.parameters")
    return tool


def check_object(value: msgspec.Raw, param: str) -> None:
    """Verify that a value that is passed on unchanged is a JSON object or null. Raises InvalidRequest."""
    if not bytes(value).lstrip().startswith((b"{", b"null")):
        raise InvalidRequest(f"{param} is not an object", param=param)


def _word(choice: str, tools: list[OfferedTool]) -> str:
    if choice not in _WORDS:
        raise InvalidRequest(
            f"tool_choice is {choice[:_MAX_SHOWN]!r}; it is one of {', '.join(_WORDS)}, or names a function",
            param="tool_choice",
        )
    if choice == "required" and not tools:
        raise InvalidRequest("tool_choice is 'required' and tools is empty", param="tool_choice")
    return choice


def _named_choice(named: _NamedTool, tools: list[OfferedTool]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": _offered(named, tools).chat_name}}


def _narrowed(allowed: _AllowedTools, tools: list[OfferedTool]) -> tuple[list[OfferedTool], str]:
    """Return only the allowed tools: chats cannot express tools that are present but not allowed."""
    wanted = [_offered(named, tools) for named in sorted(allowed.tools, key=lambda named: named.name)]
    names = {tool.chat_name for tool in wanted}
    return [tool for tool in tools if tool.chat_name in names], allowed.mode


def _offered(named: _NamedTool, tools: list[OfferedTool]) -> OfferedTool:
    """Return the named tool. Raise InvalidRequest if there is none."""
    for tool in tools:
        if tool.function.name == named.name and tool.namespace == named.namespace:
            return tool
    raise InvalidRequest(
        f"tool_choice names the function {named.name[:_MAX_SHOWN]!r}, which is not among the tools", param="tool_choice"
    )
