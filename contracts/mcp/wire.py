"""The Model Context Protocol in the revisions that the gateway supports on both sides.

"Modern" is revision 2026-07-28, in which each request states its version and the client's capabilities. "Legacy" are
the revisions before it, which start with an `initialize` handshake and may have a session.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

MODERN: Final = "2026-07-28"
LEGACY: Final = ("2025-11-25", "2025-06-18", "2025-03-26")  # newest first
VERSIONS: Final = (MODERN, *LEGACY)
VERSION_WITHOUT_HEADER: Final = "2025-03-26"  # of a client that states none

VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT_KEY: Final = "io.modelcontextprotocol/clientInfo"
CAPABILITIES_KEY: Final = "io.modelcontextprotocol/clientCapabilities"
SERVER_KEY: Final = "io.modelcontextprotocol/serverInfo"
RESERVED_META: Final = "io.modelcontextprotocol/"

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
HEADER_MISMATCH: Final = -32020
MISSING_CAPABILITY: Final = -32021
UNSUPPORTED_VERSION: Final = -32022

_PLAIN_VALUE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_CODED_VALUE: Final = re.compile(r"=\?base64\?(.*)\?=", re.DOTALL)


class RpcError(msgspec.Struct, frozen=True):
    """The `error` of a JSON-RPC response."""

    code: int
    message: str = ""
    data: Any = None


class RpcMessage(msgspec.Struct, frozen=True):
    """A JSON-RPC message of any kind. `result` and `params` stay unparsed."""

    id: int | str | None | msgspec.UnsetType = msgspec.UNSET
    method: str | msgspec.UnsetType = msgspec.UNSET
    params: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: RpcError | msgspec.UnsetType = msgspec.UNSET


def header_value(text: str) -> str:
    """Encode a text for an `Mcp-*` header: unchanged, or in Base64 if a header cannot contain it."""
    if _PLAIN_VALUE.fullmatch(text) and not _CODED_VALUE.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def read_header_value(value: str) -> str | None:
    """Decode the text of an `Mcp-*` header; `None` if it is malformed."""
    coded = _CODED_VALUE.fullmatch(value)
    if coded is None:
        return value if _PLAIN_VALUE.fullmatch(value) else None
    try:
        return base64.b64decode(coded.group(1), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def parameter_text(value: object) -> str | None:
    """Return an argument as header text; `None` if its type cannot be sent in a header."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | str) else None


def at_path(arguments: object, path: tuple[str, ...]) -> object:
    """Return the value at a path of property names; `None` if there is none."""
    for name in path:
        if not isinstance(arguments, Mapping):
            return None
        arguments = arguments.get(name)
    return arguments
