"""Extracts paragraphs of English from HTML manuals: the text of <p> elements, if it looks like sentences."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

_SPACE: Final = re.compile(r"\s+")
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_MIN_WORDS: Final = 8
_MAX_WORDS: Final = 220
_REPLACED: Final = str.maketrans(
    {"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2013": "-", "\u2014": " - ", "\u00a0": " "}
)


class _ParagraphReader(HTMLParser):
    """Collects the text of <p> elements, leaving out code blocks and tables."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.paragraphs: list[str] = []
        self._text: list[str] = []
        self._in_paragraph = False
        self._skipped = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("pre", "script", "style", "table", "nav"):
            self._skipped += 1
        elif tag == "p":
            self._flush()
            self._in_paragraph = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("pre", "script", "style", "table", "nav"):
            self._skipped = max(0, self._skipped - 1)
        elif tag in ("p", "div", "section", "li", "dd"):
            self._flush()

    def handle_data(self, data: str) -> None:
        if self._in_paragraph and not self._skipped:
            self._text.append(data)

    def _flush(self) -> None:
        if self._text:
            self.paragraphs.append("".join(self._text))
        self._text = []
        self._in_paragraph = False


def paragraphs_of(directory: Path) -> Iterator[list[str]]:
    """Yield the usable paragraphs of each HTML page below a directory, sorted by file name."""
    for path in sorted(directory.rglob("*.html")):
        reader = _ParagraphReader()
        reader.feed(path.read_text(errors="replace"))
        found = [clean for raw in reader.paragraphs if (clean := _clean(raw))]
        if found:
            yield found


def sentences_of(paragraph: str) -> list[str]:
    """Return the sentences of a paragraph."""
    return _SENTENCE_END.split(paragraph)


def _clean(raw: str) -> str:
    """Return a paragraph as plain text; empty if it is not prose."""
    text = _SPACE.sub(" ", raw.translate(_REPLACED)).strip()
    words = text.split(" ")
    if not _MIN_WORDS <= len(words) <= _MAX_WORDS or text[-1:] not in ".!?" or not text[0].isupper():
        return ""
    letters = sum(character.isalpha() or character == " " for character in text)
    if not text.isascii() or letters < 0.9 * len(text):
        return ""
    return text
