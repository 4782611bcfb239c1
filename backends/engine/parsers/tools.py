"""The tools of one request, as `Submit.tools` brings them."""

from typing import Any

import msgspec

from contracts.errors import InvalidRequest


class _Function(msgspec.Struct, frozen=True):
    name: str
    parameters: dict[str, Any] | None = None


class _Tool(msgspec.Struct, frozen=True):
    function: _Function


_decoder = msgspec.json.Decoder(list[_Tool])


def read_tools(tools: bytes) -> dict[str, dict[str, Any]]:
    """Return the JSON schema of each function's parameters, by name. Raises InvalidRequest."""
    try:
        found = _decoder.decode(tools)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"tools cannot be read: {str(error)[:200]}", param="tools") from error
    return {tool.function.name: tool.function.parameters or {"type": "object"} for tool in found}
