"""Removes credentials from a model server's error messages, which may repeat the request's headers."""

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

REMOVED: Final = "[credential]"

_LEAST_EXACT: Final = 4  # characters: shorter values could be ordinary words
_LEAST_INSIDE: Final = 8  # values from this length on are also removed inside longer words
_LEAST_CUT: Final = 6
# With a digit, or too long for a word: "a bearer token" and "bearer authentication" are not removed.
_OPAQUE: Final = r"(?:(?=[\w.~+/=*-]*\d)[\w.~+/=*-]{8,}|[\w.~+/=*-]{24,})"
_SHAPES: Final = (
    re.compile(rf"(?i)(?<=\bbearer )\s*{_OPAQUE}|(?<=\bbasic )\s*{_OPAQUE}"),
    re.compile(rf"(?i)(?P<name>\b(?:authorization|(?:x-)?api[-_ ]?key(?: provided)?)[\"']?\s*[:=]\s*[\"']?){_OPAQUE}"),
    re.compile(r"\b(?:sk|tk|pk|rk|xai|gsk|hf|nvapi|pplx|csk|fw|ghp|glpat|r8|tgp)[-_][\w*.-]{8,}"),
    re.compile(r"\bAIza[\w*-]{16,}|\b(?:AKIA|ASIA)[A-Z0-9*]{12,}|\beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?"),
)


def without_credentials(text: str, values: Iterable[str] = ()) -> str:
    """Return a text without `values`, and without anything that has the format of a key."""
    for value in sorted(_forms(values), key=len, reverse=True):
        if len(value) >= _LEAST_INSIDE:
            text = _without_cut(text.replace(value, REMOVED), value)
        elif len(value) >= _LEAST_EXACT:
            text = re.sub(rf"(?<![\w-]){re.escape(value)}(?![\w-])", REMOVED, text)
    for shape in _SHAPES:
        text = shape.sub(_kept_name, text)
    return text


def _without_cut(text: str, value: str) -> str:
    """Return a text without a truncated value at its end."""
    for length in range(len(value) - 1, _LEAST_CUT - 1, -1):
        if text.endswith(value[:length]):
            return text[:-length] + REMOVED
    return text


def _forms(values: Iterable[str]) -> set[str]:
    """Return values unchanged, URL-encoded, and without an authorization scheme such as Basic."""
    found = set()
    for value in values:
        for one in (value.strip(), value.strip().rpartition(" ")[2]):
            found |= {one, quote(one, safe="")}
    return found


def _kept_name(found: re.Match[str]) -> str:
    return f"{found.groupdict().get('name') or ''}{REMOVED}"
