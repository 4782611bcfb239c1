"""The errors of servers that speak OpenAI's protocol, read for what they say."""

from collections.abc import Iterable
from typing import Final

import msgspec

from backends.llm.echoed_credentials import without_credentials
from contracts.errors import UpstreamBroken

_MAX_ERROR_MESSAGE: Final = 500
_MAX_SEARCHED: Final = 16 * 1024


def broken(quote: str, otherwise: str) -> UpstreamBroken:
    """Return the error of a reply that broke off: with what the server says of it, or else in words of ours."""
    error = UpstreamBroken(quote or otherwise)
    error.quote = quote
    return error


class _ErrorDetail(msgspec.Struct):
    message: str | None = None
    type: str | int | None = None


class _ErrorBody(msgspec.Struct):
    error: _ErrorDetail | str | None = None
    message: str | None = None  # vLLM before 0.10 put it at the top
    type: str | int | None = None


def message_in(body: bytes, sent: Iterable[str]) -> str:
    """Return the message of an error in OpenAI's shape, at most 500 characters; empty if there is none.

    The credentials that were `sent`, and what looks like some, are taken out.
    """
    try:
        parsed = msgspec.json.decode(body, type=_ErrorBody)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    error = parsed.error
    message = error.message if isinstance(error, _ErrorDetail) else error or parsed.message
    # Cut last: half a key would not be found. What is looked at is bounded too.
    return without_credentials(message[:_MAX_SEARCHED], sent)[:_MAX_ERROR_MESSAGE] if message else ""


def type_in(body: bytes) -> str:
    """Return the type of an error in OpenAI's shape, such as "server_error"; empty if there is none."""
    try:
        parsed = msgspec.json.decode(body, type=_ErrorBody)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    kind = parsed.error.type if isinstance(parsed.error, _ErrorDetail) else parsed.type
    return kind if isinstance(kind, str) else ""
