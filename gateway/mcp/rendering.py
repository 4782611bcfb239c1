"""Render responses, errors and events for MCP clients, in their protocol revision."""

from typing import Any, Final

import msgspec

from contracts.errors import TollkeeperError
from contracts.mcp.wire import MODERN, SERVER_KEY
from gateway.apis.rendering import ErrorShape

SERVER_INFO: Final = {"name": "tollkeeper", "title": "Tollkeeper", "version": "1"}
OUR_META: Final = "dev.tollkeeper/"  # begins the names that the gateway alone gives
ERROR_KEY: Final = f"{OUR_META}error"  # in the _meta of a tool's result that the gateway made
FINGERPRINT_KEY: Final = f"{OUR_META}fingerprint"  # in the _meta of a definition
EVENT_STREAM: Final = b"text/event-stream"

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


def rendered_result(id: object, result: dict[str, Any], revision: str) -> bytes:
    """Return a response. Fields that only one of the revisions has are added or omitted."""
    if revision == MODERN:
        given = result.get("_meta")
        meta = _decode(given) if isinstance(given, msgspec.Raw) else given
        known = meta if isinstance(meta, dict) else {}
        result = {"resultType": "complete", **result, "_meta": {**known, SERVER_KEY: SERVER_INFO}}
    else:
        result.pop("resultType", None)
    return _encode({"jsonrpc": "2.0", "id": id, "result": result})


def rendered_error(id: object, code: int, message: str, data: object = None) -> bytes:
    """Return an error response. `id` is `None` if the request's id is unknown: it is omitted."""
    error: dict[str, object] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return _encode({"jsonrpc": "2.0", **({} if id is None else {"id": id}), "error": error})


def tool_error(error: TollkeeperError) -> dict[str, Any]:
    """Return the result of a tool that failed, in words that a model can act on."""
    about: dict[str, object] = {"code": error.error_code}
    if error.retry_after_seconds is not None:
        about["retry_after_seconds"] = error.retry_after_seconds
    return {
        "content": [{"type": "text", "text": error.message}],
        "isError": True,
        "_meta": {ERROR_KEY: about},
    }


def event(message: bytes) -> bytes:
    """Return a message as an event of a stream."""
    return b"event: message\ndata: " + message + b"\n\n"


def _error_body(error: TollkeeperError) -> bytes:
    return rendered_error(None, error.status, error.message, {"code": error.error_code})


def _error_event(error: TollkeeperError) -> bytes:
    return event(_error_body(error))


MCP_ERRORS: Final = ErrorShape(_error_body, _error_event)
