"""Encodings of texts: plain, or JSON with escapes."""

import re
from collections.abc import Sequence
from typing import Final, Protocol

from contracts.guardrails.plain_text import original_span, original_spans, plain_text

_HIGH: Final = r"\\u[dD][89abAB][0-9a-fA-F]{2}"
_LOW: Final = r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_TOKEN: Final = re.compile(rf"{_HIGH}{_LOW}|\\u[0-9a-fA-F]{{4}}|\\.|[^\\]+|\\", re.DOTALL)
_UNFINISHED: Final = re.compile(rf"(?:{_HIGH})?\\(?:u[0-9a-fA-F]{{0,3}})?\Z|{_HIGH}\Z")
QUOTED: Final = re.compile(r'\\.|(")', re.DOTALL)
_NUMBER: Final = frozenset("0123456789.eE+-")
_LETTERS: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}


class Spelling(Protocol):
    """Converts a text to the plain form that detectors inspect, and maps positions back to the original."""

    def plain(self, text: str) -> str:
        """Return the plain form of a text."""

    def span(self, text: str, start: int, end: int) -> tuple[int, int]:
        """Return the range in the original text of the range from `start` to `end` in the plain text."""

    def spans(self, text: str, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the result of `span` for several ranges, in one pass through the text."""

    def unfinished(self, text: str) -> int:
        """Return the start of an incomplete character at the end; the length if there is none."""


class AsIs:
    """Text without escapes."""

    def plain(self, text: str) -> str:
        """Return the plain text."""
        return plain_text(text)

    def span(self, text: str, start: int, end: int) -> tuple[int, int]:
        """Map a range of the plain text to the original."""
        return original_span(text, start, end)

    def spans(self, text: str, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Map several ranges of the plain text to the original."""
        return original_spans(text, spans)

    def unfinished(self, text: str) -> int:
        """Return the text's length: no character can be incomplete."""
        return len(text)


class InJson:
    """Text that is JSON, such as a tool's arguments. Detectors inspect the content of its strings."""

    def plain(self, text: str) -> str:
        """Return the plain text, escapes resolved."""
        if "\\" not in text:
            return plain_text(text)
        return plain_text("".join([_said(token) for token in _TOKEN.findall(text)]))

    def span(self, text: str, start: int, end: int) -> tuple[int, int]:
        """Map a range of the plain text to the original."""
        if "\\" not in text:
            return original_span(text, start, end)
        first: int | None = None
        at = 0
        for token in _TOKEN.finditer(text):
            said = _said(token[0])
            length = len(plain_text(said))
            is_escape = token[0].startswith("\\")
            if at + length > start and first is None:
                first = token.start()
                if not is_escape:
                    first += original_span(said, start - at, min(end - at, length))[0]
            if at + length >= end:
                last = token.end()
                if not is_escape:
                    last = token.start() + original_span(said, max(start - at, 0), end - at)[1]
                return (token.start() if first is None else first), last
            at += length
        return (len(text) if first is None else first), len(text)

    def spans(self, text: str, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Map several ranges of the plain text to the original."""
        if "\\" not in text:
            return original_spans(text, spans)
        origins: list[tuple[int, int]] = []
        for token in _TOKEN.finditer(text):
            if token[0].startswith("\\"):
                origins += [token.span()] * len(plain_text(_said(token[0])))
            else:
                origins += [
                    (place, place + 1)
                    for place, character in enumerate(token[0], token.start())
                    for _ in plain_text(character)
                ]
        size, none = len(origins), (len(text), len(text))
        return [
            ((origins[start] if start < size else none)[0], (origins[end - 1] if end <= size else none)[1])
            for start, end in spans
        ]

    def unfinished(self, text: str) -> int:
        """Return the start of an incomplete escape at the end."""
        if "\\" not in text[-12:]:
            return len(text)
        at = 0
        for token in _TOKEN.finditer(text):
            if token[0].startswith("\\") and _UNFINISHED.match(text, token.start()) is not None:
                return token.start()
            at = token.end()
        return at


AS_IS: Final = AsIs()
IN_JSON: Final = InJson()


def ends_quoted(text: str, *, is_quoted: bool) -> bool:
    """Return whether JSON ends within a string; `is_quoted` is the state at its start."""
    if '"' not in text:
        return is_quoted
    return is_quoted ^ (sum(found[1] is not None for found in QUOTED.finditer(text)) % 2 == 1)


def stand_in(text: str, end: int, kind: str, *, is_quoted: bool) -> tuple[int, str]:
    """Return where JSON continues after a finding that ends at `end`, and the replacement that keeps it valid JSON."""
    if is_quoted:
        return end, f"[{kind}]"
    while end < len(text) and text[end] in _NUMBER:
        end += 1
    return end, f'"[{kind}]"'


def _said(token: str) -> str:
    if not token.startswith("\\"):
        return token
    if len(token) >= 6:
        units = bytes.fromhex("".join(token.split("\\u")))
        return units.decode("utf-16-be", "replace")
    return _LETTERS.get(token[1:], token[1:])
