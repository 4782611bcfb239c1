"""Removes credentials from what a model server says: its errors may repeat the request's head."""

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

REMOVED: Final = "[credential]"

_LEAST_EXACT: Final = 4  # characters: less is a word of any sentence
_LEAST_INSIDE: Final = 8  # from here on a value is found within longer words too
_LEAST_CUT: Final = 6
# With a number in it, or so long that it is no word: "a bearer token" and "bearer authentication" stay.
_OPAQUE: Final = r"(?:(?=[\w.~+/=*-]*\d)[\w.~+/=*-]{8,}|[\w.~+/=*-]{24,})"
_SHAPES: Final = (
    re.compile(rf"(?i)(?<=\bbearer )\s*{_OPAQUE}|(?<=\bbasic )\s*{_OPAQUE}"),
    re.compile(rf"(?i)(?P<name>\b(?:authorization|(?:x-)?api[-_ ]?key(?: provided)?)[\"']?\s*[:=]\s*[\"']?){_OPAQUE}"),
    re.compile(r"\b(?:sk|tk|pk|rk|xai|gsk|hf|nvapi|pplx|csk|fw|ghp|glpat|r8|tgp)[-_][\w*.-]{8,}"),
    re.compile(r"\bAIza[\w*-]{16,}|\b(?:AKIA|ASIA)[A-Z0-9*]{12,}|\beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?"),
)


def without_credentials(text: str, values: Iterable[str] = ()) -> str:
    """Return a text without these values, the longest first, and without what has the shape of a key."""
    for value in sorted(_forms(values), key=len, reverse=True):
        if len(value) >= _LEAST_INSIDE:
            text = _without_cut(text.replace(value, REMOVED), value)
        elif len(value) >= _LEAST_EXACT:
            text = re.sub(rf"(?<![\w-]){re.escape(value)}(?![\w-])", REMOVED, text)
    for shape in _SHAPES:
        text = shape.sub(_kept_name, text)
    return text


def _without_cut(text: str, value: str) -> str:
    """Return a text without the beginning of a value at its end, where it was cut."""
    for length in range(len(value) - 1, _LEAST_CUT - 1, -1):
        if text.endswith(value[:length]):
            return text[:-length] + REMOVED
    return text


def _forms(values: Iterable[str]) -> set[str]:
    """Return values as they are, as they stand in a URL, and the credentials behind a scheme such as Basic."""
    found = set()
    for value in values:
        for one in (value.strip(), value.strip().rpartition(" ")[2]):
            found |= {one, quote(one, safe="")}
    return found


def _kept_name(found: re.Match[str]) -> str:
    return f"{found.groupdict().get('name') or ''}{REMOVED}"
