"""Errors in the shape of Google's APIs."""

from typing import Final

import msgspec

from contracts.errors import TollkeeperError
from gateway.apis.gemini.wording import in_own_words
from gateway.apis.rendering import ErrorShape

_STATUSES: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_encode: Final = msgspec.json.Encoder().encode


def error_body(error: TollkeeperError) -> bytes:
    """Render an error as a JSON body. `reason` in its details is the gateway's own, stable code."""
    error = in_own_words(error)
    status = _STATUSES.get(error.status, "INVALID_ARGUMENT" if error.status < 500 else "INTERNAL")
    metadata = {} if error.param is None else {"field": error.param}
    details = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": error.error_code,
        "domain": "tollkeeper",
        "metadata": metadata,
    }
    content = {"code": error.status, "message": error.message, "status": status, "details": [details]}
    return _encode({"error": content})


def error_event(error: TollkeeperError) -> bytes:
    """Render an error as the event that ends a stream in progress."""
    return b"data: %b\n\n" % error_body(error)


GEMINI_ERRORS: Final = ErrorShape(error_body, error_event)
