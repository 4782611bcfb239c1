"""The tools of a Responses request, as a chat has them. Tools that run at the API's own side are refused by name."""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta

from contracts.errors import InvalidRequest
from contracts.responses import FunctionTool, ResponseRequest
from gateway.reading import Choices, invalid_field

ToolChoice = str | dict[str, Any] | None

_MAX_SHOWN: Final = 60
_WORDS: Final = ("none", "auto", "required")
_CHOICES: Final[Choices] = {"type": ("function",), "mode": ("auto", "required")}


class _Peek(msgspec.Struct, frozen=True):
    type: str = "function"


class _NamedTool(msgspec.Struct, frozen=True):
    name: str
    type: Literal["function"] = "function"


class _AllowedTools(msgspec.Struct, frozen=True):
    mode: Literal["auto", "required"]
    tools: Annotated[list[_NamedTool], Meta(min_length=1)]


_peek: Final = msgspec.json.Decoder(_Peek)
_tools: Final = msgspec.json.Decoder(FunctionTool)
_named: Final = msgspec.json.Decoder(_NamedTool)
_allowed: Final = msgspec.json.Decoder(_AllowedTools)


def read_tools(request: ResponseRequest, body: bytes) -> list[FunctionTool]:
    """Give the tools that are offered to the model. Raises InvalidRequest, naming the field."""
    return [_read_tool(raw, place, body) for place, raw in enumerate(request.tools or ())]


def choose(request: ResponseRequest, tools: list[FunctionTool], body: bytes) -> tuple[list[FunctionTool], ToolChoice]:
    """Give the tools that the model may call, and a chat's `tool_choice`. Raises InvalidRequest, naming what is amiss.

    Both are those that the request's `tool_choice` leaves.
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


def _read_tool(raw: msgspec.Raw, place: int, body: bytes) -> FunctionTool:
    where = f"tools[{place}]"
    try:
        kind = _peek.decode(raw).type
        if kind != "function":
            raise InvalidRequest(
                f"{where} is of type {kind[:_MAX_SHOWN]!r}, which is not offered here; give functions and run them "
                "yourself",
                param=f"{where}.type",
            )
        tool = _tools.decode(raw)
    except msgspec.ValidationError as error:
        raise invalid_field(str(error), body, _CHOICES, below=where) from None
    check_object(tool.parameters, f"{where}.parameters")
    return tool


def check_object(value: msgspec.Raw, param: str) -> None:
    """Hold to a JSON object, or null, what goes on as it came. Raises InvalidRequest."""
    if not bytes(value).lstrip().startswith((b"{", b"null")):
        raise InvalidRequest(f"{param} is not an object", param=param)


def _word(choice: str, tools: list[FunctionTool]) -> str:
    if choice not in _WORDS:
        raise InvalidRequest(
            f"tool_choice is {choice[:_MAX_SHOWN]!r}; it is one of {', '.join(_WORDS)}, or names a function",
            param="tool_choice",
        )
    if choice == "required" and not tools:
        raise InvalidRequest("tool_choice is 'required' and tools is empty", param="tool_choice")
    return choice


def _named_choice(named: _NamedTool, tools: list[FunctionTool]) -> dict[str, Any]:
    _check_offered(named.name, tools)
    return {"type": "function", "function": {"name": named.name}}


def _narrowed(allowed: _AllowedTools, tools: list[FunctionTool]) -> tuple[list[FunctionTool], str]:
    """Give the allowed tools alone: chats have no word for the others being there and not allowed."""
    names = {tool.name for tool in allowed.tools}
    for name in sorted(names):
        _check_offered(name, tools)
    return [tool for tool in tools if tool.name in names], allowed.mode


def _check_offered(name: str, tools: list[FunctionTool]) -> None:
    if all(tool.name != name for tool in tools):
        raise InvalidRequest(
            f"tool_choice names the function {name[:_MAX_SHOWN]!r}, which is not among the tools", param="tool_choice"
        )
