"""A PDF of A4 pages, for text of any script: Helvetica for Latin-1, else embedded subsets of this machine's fonts."""

import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Final
from unicodedata import combining, normalize

from fpdf import FPDF
from fpdf.enums import MethodReturnValue, XPos, YPos

from analytics.exports.fonts import INSTALL, faces_for, needed_letters

_LATIN_1: Final = 256
_PLAIN_FONT: Final = "Helvetica"  # every PDF reader has it
_ROW: Final = 5  # millimetres
_NAMED_AT_MOST: Final = 20
# Letters that Unicode does not decompose, and currency signs and marks in names.
_PLAIN: Final = {
    **{"\u0141": "L", "\u0142": "l", "\u0110": "D", "\u0111": "d", "\u0131": "i", "\u0152": "OE", "\u0153": "oe"},
    **{"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u201e": '"', "\u2013": "-", "\u2014": "-"},
    "\u20ac": "EUR",
}


# fontTools warns about tables that a subset drops.
logging.getLogger("fontTools.subset").setLevel(logging.ERROR)


class Sheet:
    """Pages of lines and one table. `missing` are letters without a font on this machine and without a plain Latin
    form: they are printed as code points, such as [U+682A]."""

    def __init__(self, texts: Sequence[str], made_at: datetime) -> None:
        """Begin a page; `texts` are all texts that it will show. The same texts and time give the same file."""
        self._pdf = FPDF(format="A4")
        self._pdf.set_creation_date(made_at)
        self._pdf.set_auto_page_break(True, margin=15)
        self._pdf.add_page()
        self._family = _PLAIN_FONT
        self._letters: dict[str, str] = {}  # written instead of a letter
        self.missing = ""
        shown = normalize("NFC", "\n".join(texts))
        if not all(map(_is_latin_1, shown)):
            self._embed(shown)

    @property
    def note(self) -> str:
        """Return a note on letters without a font; empty if there are none."""
        if not self._letters:
            return ""
        return f"No font on this machine has {code_points(''.join(self._letters))}. To show them, {INSTALL}."

    def style(self, style: str, size: float) -> None:
        """Set size (points) and style (B bold, I italic) of later text; embedded fonts have one style."""
        self._pdf.set_font(self._family, style if self._family == _PLAIN_FONT else "", size)

    def line(self, text: str, height: float = _ROW) -> None:
        """Write a paragraph; `height` is a line's, in millimetres."""
        self._pdf.multi_cell(0, height, self._printed(text), align="L", new_x=XPos.LMARGIN, new_y=YPos.NEXT)

    def gap(self, height: float) -> None:
        """Leave a vertical gap, in millimetres."""
        self._pdf.ln(height)

    def row(self, cells: Sequence[tuple[str, float, str]]) -> None:
        """Write a table row of (text, width in millimetres, alignment) per cell. Long text is wrapped."""
        pdf = self._pdf
        wrapped = [self._wrapped(self._printed(text), width) for text, width, _ in cells]
        height = _ROW * max(map(len, wrapped))
        if pdf.will_page_break(height):
            pdf.add_page()
        top, left = pdf.get_y(), pdf.l_margin
        for lines, (_, width, align) in zip(wrapped, cells, strict=True):
            for number, text in enumerate(lines):
                pdf.set_xy(left, top + _ROW * number)
                pdf.cell(width, _ROW, text, align=align)
            left += width
        pdf.line(pdf.l_margin, top + height, left, top + height)
        pdf.set_xy(pdf.l_margin, top + height)

    def as_bytes(self) -> bytes:
        """Return the PDF file."""
        return bytes(self._pdf.output())

    def _embed(self, shown: str) -> None:
        faces, missing = faces_for(shown)
        if any(
            map(_is_latin_1, missing)
        ):  # Helvetica cannot be mixed with embedded fonts, and no font has these letters
            faces, missing = [], "".join(letter for letter in sorted(set(shown)) if _is_needed(letter))
        plain = {letter: _plain(letter) for letter in missing}
        self.missing = "".join(letter for letter in missing if not plain[letter])
        self._letters = {letter: plain[letter] or f"[U+{ord(letter):04X}]" for letter in missing}
        if not faces:
            return
        names = [f"font{number}" for number in range(len(faces))]
        for name, face in zip(names, faces, strict=True):
            self._pdf.add_font(name, fname=face.path)
        self._family = names[0]
        self._pdf.set_font(self._family, size=9)
        self._pdf.set_fallback_fonts(names[1:], exact_match=False)
        self._pdf.set_text_shaping(True)  # joins Arabic letters, places vowel signs and sets right-to-left text

    def _printed(self, text: str) -> str:
        if text.isascii():
            return text
        text = "".join(self._letters.get(letter, letter) for letter in normalize("NFC", text))
        # Other letters that Helvetica lacks are invisible, such as direction marks.
        return "".join(filter(_is_latin_1, text)) if self._family == _PLAIN_FONT else text

    def _wrapped(self, text: str, width: float) -> list[str]:
        if self._pdf.get_string_width(text) <= width - 2 * self._pdf.c_margin:
            return [text]
        lines = self._pdf.multi_cell(width, _ROW, text, align="L", dry_run=True, output=MethodReturnValue.LINES)
        assert isinstance(lines, list)
        return [str(line) for line in lines]


def code_points(letters: str) -> str:
    """Return the first 20 letters with their code points."""
    named = ", ".join(f"U+{ord(letter):04X}" for letter in letters[:_NAMED_AT_MOST])
    return named if len(letters) <= _NAMED_AT_MOST else f"{named} and {len(letters) - _NAMED_AT_MOST} more letters"


def _is_needed(letter: str) -> bool:
    return not _is_latin_1(letter) and bool(needed_letters(letter))


def _is_latin_1(letter: str) -> bool:
    return ord(letter) < _LATIN_1


def _plain(letter: str) -> str:
    """Return a letter's Latin-1 form; empty if it has none."""
    found = _PLAIN.get(letter) or "".join(part for part in normalize("NFKD", letter) if not combining(part))
    return found if all(map(_is_latin_1, found)) else ""
