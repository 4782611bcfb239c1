"""Parse an MCP client's JSON-RPC message and its protocol revision.

Raises RpcFault, which is an answer in the protocol's own shape.
"""

import re
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from contracts.mcp.wire import (
    CAPABILITIES_KEY,
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    LEGACY,
    MODERN,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    VERSION_KEY,
    VERSION_WITHOUT_HEADER,
    VERSIONS,
    read_header_value,
)
from gateway.wire.exchange import Exchange

_JSON: Final = "application/json"
_MAX_SHOWN: Final = 80
_MAX_SESSION: Final = 100
_LABEL: Final = re.compile(r"[\x21-\x7e]{1,1024}")
_NAMED: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}  # whose header repeats what
_LOOPBACK: Final = frozenset(("localhost", "127.0.0.1", "::1"))


class RpcFault(Exception):
    """An error response of the protocol: its HTTP status, code, message and data."""

    def __init__(self, status: int, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.data = data


class Parameters(msgspec.Struct, gc=False):
    """The parameters of a message that the gateway reads. All others are sent on unchanged."""

    meta: dict[str, Any] = msgspec.field(name="_meta", default_factory=dict)
    name: str = ""
    uri: str = ""
    protocol_version: str = msgspec.field(name="protocolVersion", default="")
    arguments: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    input_responses: msgspec.Raw | msgspec.UnsetType = msgspec.field(name="inputResponses", default=msgspec.UNSET)
    request_state: msgspec.Raw | msgspec.UnsetType = msgspec.field(name="requestState", default=msgspec.UNSET)


class Message(msgspec.Struct, gc=False):
    """One JSON-RPC message of a client."""

    jsonrpc: str = ""
    id: int | str | None | msgspec.UnsetType = msgspec.UNSET
    method: str = ""
    params: Parameters = msgspec.field(default_factory=Parameters)
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET

    @property
    def is_notification(self) -> bool:
        """Return whether the message gets no answer: it has no id, or is itself an answer."""
        return self.id is msgspec.UNSET or self.is_response

    @property
    def is_response(self) -> bool:
        """Return whether it answers a request from a server, which the gateway never sends."""
        return self.result is not msgspec.UNSET or self.error is not msgspec.UNSET


_decode: Final = msgspec.json.Decoder(Message).decode


class _OnlyId(msgspec.Struct, gc=False):
    id: Any = None


_decode_id: Final = msgspec.json.Decoder(_OnlyId).decode


def read_message(exchange: Exchange) -> Message:
    """Return the message in a body. Raise RpcFault if it is invalid."""
    kind = exchange.header(b"content-type").partition(";")[0].strip().lower()
    if kind != _JSON:
        raise RpcFault(415, INVALID_REQUEST, f"the content type must be {_JSON}, not {kind[:_MAX_SHOWN]!r}")
    try:
        message = _decode(exchange.body)
    except msgspec.ValidationError:
        raise RpcFault(400, INVALID_REQUEST, "the body is no JSON-RPC message of the Model Context Protocol") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise RpcFault(400, PARSE_ERROR, "the body is not valid JSON") from None
    if message.jsonrpc != "2.0":
        raise RpcFault(400, INVALID_REQUEST, 'the body must have "jsonrpc": "2.0"')
    if not message.method and not message.is_response:
        raise RpcFault(400, INVALID_REQUEST, "the body has no method")
    if message.id is None:
        raise RpcFault(400, INVALID_REQUEST, "an id is a string or an integer, not null; a notification has none")
    return message


def id_of(body: bytes) -> int | str | None:
    """Return the id of a message that is otherwise unreadable; `None` if it has none."""
    try:
        found = _decode_id(body).id
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return found if isinstance(found, int | str) and not isinstance(found, bool) else None


def revision_of(exchange: Exchange, message: Message) -> str:
    """Return the revision for the answer to a message. Raise RpcFault if it is unsupported."""
    header = exchange.header(b"mcp-protocol-version")
    stated = message.params.meta.get(VERSION_KEY)
    if stated is None:
        known = _by_header(header, message)
        if known is not None:
            return known
    if message.is_notification and header in VERSIONS:
        return header
    version = header if stated is None else stated
    if not isinstance(version, str):
        raise RpcFault(400, INVALID_PARAMS, f"{VERSION_KEY!r} in _meta must be a string")
    if not header:
        raise RpcFault(400, HEADER_MISMATCH, "the header MCP-Protocol-Version is missing")
    if header != version:
        raise RpcFault(
            400, HEADER_MISMATCH, "the header MCP-Protocol-Version and the version in _meta are not the same"
        )
    if version not in VERSIONS:
        data = {"supported": list(VERSIONS), "requested": version[:_MAX_SHOWN]}
        raise RpcFault(400, UNSUPPORTED_VERSION, "Unsupported protocol version", data)
    if version == MODERN:
        _check_modern(exchange, message)
    return version


def _by_header(header: str, message: Message) -> str | None:
    """Return the revision of a message that states none itself; `None` if the header has none that is known.

    Raise RpcFault on a request of a revision whose requests state it.
    """
    if message.method == "initialize":
        return header if header in LEGACY else LEGACY[0]
    if header in LEGACY:
        return header
    if not header:
        return VERSION_WITHOUT_HEADER
    if header in VERSIONS and not message.is_notification:
        raise RpcFault(400, INVALID_PARAMS, f"_meta has no {VERSION_KEY!r}, which every request has")
    return None


def check_origin(exchange: Exchange) -> None:
    """Raise RpcFault if a browser's page from another host has sent the request (DNS rebinding)."""
    origin = exchange.header(b"origin")
    if not origin:
        return
    try:
        host = urlsplit(origin).hostname or ""
        own = urlsplit(f"//{exchange.header(b'host')}").hostname or ""
    except ValueError:
        host, own = "", "-"
    if host != own and host not in _LOOPBACK:
        raise RpcFault(403, INVALID_REQUEST, "pages of this origin may not call the gateway")


def session_label(exchange: Exchange) -> str:
    """Return the session that a client names. It only labels records and grants nothing."""
    given = exchange.header(b"mcp-session-id")
    return given[:_MAX_SESSION] if _LABEL.fullmatch(given) else ""


def _check_modern(exchange: Exchange, message: Message) -> None:
    capabilities = message.params.meta.get(CAPABILITIES_KEY)
    if not isinstance(capabilities, dict):
        raise RpcFault(400, INVALID_PARAMS, f"_meta has no {CAPABILITIES_KEY!r}, which every request has")
    method = exchange.header(b"mcp-method")
    if method != message.method:
        raise RpcFault(400, HEADER_MISMATCH, _mismatch("Mcp-Method", method, message.method))
    field = _NAMED.get(message.method)
    if field is not None:
        given = exchange.header(b"mcp-name")
        expected = message.params.name if field == "name" else message.params.uri
        if not given or read_header_value(given) != expected:
            raise RpcFault(400, HEADER_MISMATCH, _mismatch("Mcp-Name", given, expected))


def _mismatch(header: str, given: str, expected: str) -> str:
    if not given:
        return f"Header mismatch: the header {header} is missing"
    return (
        f"Header mismatch: {header} header value {given[:_MAX_SHOWN]!r} does not match body value "
        f"{expected[:_MAX_SHOWN]!r}"
    )
