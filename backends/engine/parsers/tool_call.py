"""A tool call as models write it, and what parsers of it have in common."""

from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A function's name and its arguments, an object as JSON text, as the model wrote it."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolPiece:
    """Parsed output: text outside of calls, and complete calls; their relative order is not kept."""

    content: str = ""
    calls: list[ToolCall] = field(default_factory=list)


class ToolCallParser(Protocol):
    """Separates one choice's calls and text.

    The output depends only on the text so far, never on how it was split: another replica can continue from there.
    """

    def push(self, text: str) -> ToolPiece:
        """Add text."""

    def finish(self) -> ToolPiece:
        """Return the held-back rest at the end. An incomplete call is text."""


class _Stated(msgspec.Struct, frozen=True):
    name: str
    arguments: msgspec.Raw = msgspec.Raw()
    parameters: msgspec.Raw = msgspec.Raw()


_stated_decoder = msgspec.json.Decoder(_Stated)
_object_decoder = msgspec.json.Decoder(dict[str, Any])


def read_call(text: str) -> ToolCall | None:
    """Read `{"name": ..., "arguments" or "parameters": {...}}`; `None` if it is not a call."""
    try:
        stated = _stated_decoder.decode(text)
        arguments = bytes(stated.arguments) or bytes(stated.parameters)
        if arguments in (b"", b"null"):
            arguments = b"{}"
        elif arguments.startswith(b'"'):  # some models write the object as a string, as the API does
            arguments = msgspec.json.decode(arguments, type=str).encode()
        _object_decoder.decode(arguments)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return ToolCall(stated.name, arguments.decode()) if stated.name else None
