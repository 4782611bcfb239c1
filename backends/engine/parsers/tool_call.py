"""Tool calls in model output, and what their parsers have in common."""

from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A function's name, and its arguments: a JSON object as the model wrote it."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolPiece:
    """New output: text outside of calls, and complete calls. Their relative order is lost."""

    content: str = ""
    calls: list[ToolCall] = field(default_factory=list)


class ToolCallParser(Protocol):
    """Separates one choice's calls from its text.

    The output depends only on the text so far, not on how it was split, so that another replica can continue.
    """

    def push(self, text: str) -> ToolPiece:
        """Parse further text and return the output that is certain."""

    def finish(self) -> ToolPiece:
        """Return the remaining output at the end. An incomplete call is text."""


class _Stated(msgspec.Struct, frozen=True):
    name: str
    arguments: msgspec.Raw = msgspec.Raw()
    parameters: msgspec.Raw = msgspec.Raw()


_stated_decoder = msgspec.json.Decoder(_Stated)
_object_decoder = msgspec.json.Decoder(dict[str, Any])


def read_call(text: str) -> ToolCall | None:
    """Parse `{"name": ..., "arguments" or "parameters": {...}}`; `None` if it is not a call."""
    try:
        stated = _stated_decoder.decode(text)
        arguments = bytes(stated.arguments) or bytes(stated.parameters)
        if arguments in (b"", b"null"):
            arguments = b"{}"
        elif arguments.startswith(b'"'):  # some models write the object as a JSON string, as in the API
            arguments = msgspec.json.decode(arguments, type=str).encode()
        _object_decoder.decode(arguments)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return ToolCall(stated.name, arguments.decode()) if stated.name else None
