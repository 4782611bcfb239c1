"""Text in files that spreadsheets open: none of it runs as a formula."""

import unicodedata
from typing import Final

_BEGIN_FORMULA: Final = frozenset("=+-@\u2212")  # the last is the minus sign; full-width forms are normalized to these
_BEGIN_CELL: Final = ("\t", "\r", "\n")
_INVISIBLE: Final = frozenset({"Cc", "Cf", "Zs", "Zl", "Zp"})


def harmless_cell(value: object) -> object:
    """Return a cell's value; text that a spreadsheet may run as a formula gets an apostrophe in front (OWASP, "CSV
    Injection"), even if spaces or invisible characters precede the formula.
    """
    return f"'{value}" if isinstance(value, str) and _may_be_formula(value) else value


def _may_be_formula(text: str) -> bool:
    if text.startswith(_BEGIN_CELL):
        return True
    first = next((letter for letter in text if unicodedata.category(letter) not in _INVISIBLE), "")
    return unicodedata.normalize("NFKC", first)[:1] in _BEGIN_FORMULA
