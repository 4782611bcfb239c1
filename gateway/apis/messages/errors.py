"""Errors in Anthropic's format, with its error types and the statuses that its SDKs expect."""

import re
from functools import partial
from typing import Final

import msgspec

from contracts.errors import ThreadUnsupported, TollkeeperError
from gateway.apis.rendering import ErrorShape
from gateway.limits.headers import OwnNames, moment_in
from gateway.request.clock import Clock
from gateway.wire.exchange import Headers

_encode: Final = msgspec.json.Encoder().encode

_OVERLOADED: Final = 529
_KINDS: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
# What a server may say of a request or of itself. What it says of credentials is about the gateway's.
_PASSED_ON: Final = frozenset(
    ("invalid_request_error", "request_too_large", "rate_limit_error", "overloaded_error", "timeout_error", "api_error")
)
LIMIT_NAMES: Final[OwnNames] = (
    (
        b"anthropic-ratelimit-requests-limit",
        b"anthropic-ratelimit-requests-remaining",
        b"anthropic-ratelimit-requests-reset",
    ),
    (
        b"anthropic-ratelimit-tokens-limit",
        b"anthropic-ratelimit-tokens-remaining",
        b"anthropic-ratelimit-tokens-reset",
    ),
)
_LIMITS: Final = {
    b"x-ratelimit-%b-%b" % (what, of): own
    for of, names in zip((b"requests", b"tokens"), LIMIT_NAMES, strict=True)
    for what, own in zip((b"limit", b"remaining", b"reset"), names, strict=True)
}
# What is called otherwise in the chat that a request became, about which limits and targets speak.
_NAMES: Final = {
    "stop": "stop_sequences",
    "response_format": "output_config.format",
    "reasoning_effort": "thinking",
    "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
    "user": "metadata.user_id",
}
_DURATION: Final = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:([\d.]+)s)?(?:(\d+)ms)?")


def error_kind(error: TollkeeperError) -> str:
    """Return Anthropic's `error.type`. If the model's server reported an error about the request or its load, its type
    is used.
    """
    if error.upstream_type in _PASSED_ON:
        return error.upstream_type
    unlisted = "invalid_request_error" if error.status < 500 else "api_error"
    return _KINDS.get(error.status, unlisted)


def error_body(error: TollkeeperError, request_id: str | None = None) -> bytes:
    """Render an error as a JSON body. `details.error_code` is our own, stable code."""
    details: dict[str, object] = {"error_code": error.error_code}
    message, param = error.message, error.param
    if param in _NAMES:
        message, param = re.sub(rf"\b{param}\b", _NAMES[param], message), _NAMES[param]
    if param is not None:
        details["param"] = param
        if isinstance(error, ThreadUnsupported):
            details["unsupported"] = [param]
    content = {"type": error_kind(error), "message": message, "details": details}
    return _encode({"type": "error", "error": content, "request_id": request_id})


def error_event(error: TollkeeperError, request_id: str | None = None) -> bytes:
    """Render an error as the event that ends a stream in progress."""
    return b"event: error\ndata: %b\n\n" % error_body(error, request_id)


def error_status(error: TollkeeperError) -> int:
    """Return the HTTP status; Anthropic's API has a status of its own for overload (529)."""
    return _OVERLOADED if error.status == 503 else error.status


def own_headers(headers: Headers, wall_ns: int) -> Headers:
    """Return headers under Anthropic's names: the request's id and the limits, whose resets are timestamps."""
    found: Headers = ()
    for name, value in headers:
        if name == b"x-request-id":
            found += ((b"request-id", value),)
        elif (own := _LIMITS.get(name)) is not None:
            found += ((own, _moment(value, wall_ns) if own.endswith(b"reset") else value),)
    return found


def messages_errors(clock: Clock) -> ErrorShape:
    """Return the error format of the Messages API."""

    def of_request(headers: Headers) -> tuple[ErrorShape, Headers]:
        stated = dict(headers).get(b"x-request-id")
        request_id = None if stated is None else stated.decode()
        body, event = partial(error_body, request_id=request_id), partial(error_event, request_id=request_id)
        return ErrorShape(body, event, error_status), own_headers(headers, clock.wall_ns())

    return ErrorShape(error_body, error_event, error_status, of_request)


def _moment(duration: bytes, wall_ns: int) -> bytes:
    """Return the time `duration` from now, in whole seconds rounded up: "1m30s" -> "2026-11-21T16:31:31Z"."""
    found = _DURATION.fullmatch(duration.decode("latin-1"))
    hours, minutes, seconds, milliseconds = found.groups() if found is not None else (None,) * 4
    wait_seconds = int(hours or 0) * 3600 + int(minutes or 0) * 60 + float(seconds or 0) + int(milliseconds or 0) / 1000
    return moment_in(round(wait_seconds * 1e9), wall_ns)
