"""Translates errors about a chat's fields to the Responses API's field names."""

import re
from typing import Final

from contracts.errors import TollkeeperError

_NAMES: Final = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
    "verbosity": "text.verbosity",
    "logprobs": "include",
}
_FIELD: Final = re.compile(r"^(\w+)(.*)$", re.DOTALL)
_SAID: Final = re.compile(r"\b(max_tokens|max_completion_tokens|response_format|reasoning_effort|verbosity)\b")


def in_own_words(error: TollkeeperError) -> TollkeeperError:
    """Return the error with the name of the response's field instead of the chat's.

    A field that this API does not know was not the chat's.
    """
    if error.error_code == "unknown_parameter":
        return error
    field = _FIELD.match(error.param or "")
    if field is not None and field.group(1) in _NAMES:
        error.param = f"{_NAMES[field.group(1)]}{field.group(2)}" if field.group(1) != "messages" else "input"
        error.message = _SAID.sub(lambda found: _NAMES[found.group(1)], error.message)
    return error
