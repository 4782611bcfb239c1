"""Text as a reader perceives it, rather than as it is encoded: so that other letters hide nothing from a detector.

Each character is converted separately, so the plain form of two joined texts is the joined plain form. Case and spaces
stay.
"""

import unicodedata
from collections.abc import Iterable
from typing import Final

from contracts.guardrails.homoglyphs import LOOK_ALIKES

_UNSEEN: Final = frozenset(("Mn", "Me", "Cf"))  # combining marks; formatting: zero-width, bidi, soft hyphens
_FILLERS: Final = frozenset("\u115f\u1160\u3164\uffa0")  # invisible letters of Hangul
_BLANKS: Final = frozenset(("Zs", "Zl", "Zp"))
_BRAILLE_BLANK: Final = "\u2800"
_TAGS: Final = 0xE0000  # plus the ASCII character that each stands for: models read them, and nothing shows them
# Letters in circles, squares and flags without a compatibility form: the first of 26.
_ALPHABETS: Final = (0x1F150, 0x1F170, 0x1F1E6)
_MOST_KEPT: Final = 20_000  # cached characters
_MOST_REPLACED: Final = 64  # characters of a text that are replaced one after the other, which is faster for few


class _Forms(dict[int, str]):
    """The plain form of every character, computed at its first use."""

    def __missing__(self, point: int) -> str:
        form = _form(point)
        if len(self) < _MOST_KEPT:
            self[point] = form
        return form


def _form(point: int) -> str:
    for first in _ALPHABETS:
        if first <= point < first + 26:
            return chr(ord("A") + point - first)
    if _TAGS + 0x20 <= point < _TAGS + 0x7F:
        return chr(point - _TAGS)
    if 0xD800 <= point < 0xE000:
        return "\ufffd"  # half of a surrogate pair: nothing can encode it
    return "".join(map(_plain, unicodedata.normalize("NFKD", chr(point))))


def _plain(character: str) -> str:
    if character.isascii():
        return character
    category = unicodedata.category(character)
    if category in _UNSEEN or character in _FILLERS:
        return ""
    if category in _BLANKS or character == _BRAILLE_BLANK:
        return " "
    if category == "Nd":
        return str(unicodedata.digit(character))
    return LOOK_ALIKES.get(character, character)


_FORMS: Final = _Forms({point: chr(point) for point in range(128)})


def plain_text(text: str) -> str:
    """Return a text with compatibility forms, marks, look-alikes and foreign digits replaced by the ASCII they stand
    for.

    Invisible characters are removed, all white space except tabs and line ends becomes one kind of space, and an ASCII
    text is unchanged.
    """
    if text.isascii():
        return text
    changed = [character for character in set(text) if _FORMS[ord(character)] != character]
    if len(changed) > _MOST_REPLACED:
        return text.translate(_FORMS)
    for character in changed:  # one after the other: no form has a character that has another form
        text = text.replace(character, _FORMS[ord(character)])
    return text


def original_span(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the range in a text whose plain form is from `start` to `end` (`end` exclusive, not empty).

    Invisible characters within the range belong to it.
    """
    if text.isascii():
        return start, end
    first: int | None = None
    at = 0
    for place, character in enumerate(text):
        at += len(_FORMS[ord(character)])
        if first is None and at > start:
            first = place
        if at >= end:
            return (place if first is None else first), place + 1
    return (len(text) if first is None else first), len(text)


def original_spans(text: str, spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the result of `original_span` for several ranges, in one pass through the text."""
    if text.isascii():
        return list(spans)
    origins = [place for place, character in enumerate(text) for _ in _FORMS[ord(character)]]
    size = len(origins)
    return [
        (origins[start] if start < size else len(text), origins[end - 1] + 1 if end <= size else len(text))
        for start, end in spans
    ]
