"""The errors of servers that speak OpenAI's protocol, read for what they say."""

from typing import Final

import msgspec

from contracts.errors import UpstreamBroken

_MAX_ERROR_MESSAGE: Final = 500


def broken(quote: str, otherwise: str) -> UpstreamBroken:
    """Return the error of a reply that broke off: with what the server says of it, or else in words of ours."""
    error = UpstreamBroken(quote or otherwise)
    error.quote = quote
    return error


class _ErrorDetail(msgspec.Struct):
    message: str | None = None


class _ErrorBody(msgspec.Struct):
    error: _ErrorDetail | str | None = None
    message: str | None = None  # vLLM before 0.10 put it at the top


def message_in(body: bytes) -> str:
    """Give the message of an error in OpenAI's shape, cut to 500 characters; empty where there is none."""
    try:
        parsed = msgspec.json.decode(body, type=_ErrorBody)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    error = parsed.error
    message = error.message if isinstance(error, _ErrorDetail) else error or parsed.message
    return (message or "")[:_MAX_ERROR_MESSAGE]
