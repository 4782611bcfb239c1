"""Finds hidden text: base64 and hexadecimal digits that decode to words."""

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Final

_SHORTEST: Final = 24  # characters of base64: 18 of text, shorter than any instruction
LEAST_PAIRS: Final = 12  # minimum number of pairs of hexadecimal digits
_MOST_CHARACTERS: Final = 8192  # of one piece
_MOST_PIECES: Final = 8  # decoded per text
_READABLE_SHARE: Final = 0.95
_BASE64: Final = re.compile(rf"[A-Za-z0-9+/_-]{{{_SHORTEST},{_MOST_CHARACTERS}}}")
_HEX: Final = re.compile(r"(?<![0-9A-Fa-f])(?:(?:\\x|%|0x)?[0-9A-Fa-f]{2}[ ,:]?){12,4096}")


def hidden_texts(text: str, longest_word: int, pairs: int) -> Iterator[str]:
    """Yield the readable texts that are encoded in a text as base64 or hexadecimal digits.

    `longest_word` is the length of the text's longest word, `pairs` the number of its words that are two hexadecimal
    digits. Prose has neither long words nor many pairs, and is skipped. At most eight pieces of each kind are decoded,
    so that the time is linear in the text's length.
    """
    if longest_word < _SHORTEST and pairs < LEAST_PAIRS:
        return
    if longest_word >= _SHORTEST:
        for found in _some(_BASE64, text):
            if (decoded := _readable(_from_base64(found))) is not None:
                yield decoded
    for found in _some(_HEX, text):
        if (decoded := _readable(_from_hex(found))) is not None:
            yield decoded


def _some(form: re.Pattern[str], text: str) -> Iterator[str]:
    for number, found in enumerate(form.finditer(text)):
        if number == _MOST_PIECES:
            return
        yield found[0]


def _from_base64(text: str) -> bytes | None:
    plain = text.translate(_URL_SAFE)
    try:
        return base64.b64decode(
            plain[: len(plain) // 4 * 4] if len(plain) % 4 == 1 else plain + "=" * (-len(plain) % 4)
        )
    except (binascii.Error, ValueError):
        return None


_URL_SAFE: Final = str.maketrans("-_", "+/")


def _from_hex(text: str) -> bytes | None:
    digits = re.sub(r"\\x|0x|[ ,:%]", "", text)
    try:
        return bytes.fromhex(digits[: len(digits) // 2 * 2])
    except ValueError:
        return None


def _readable(data: bytes | None) -> str | None:
    if not data:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    shown = sum(map(str.isprintable, text)) + text.count("\n")
    return text if " " in text and shown >= _READABLE_SHARE * len(text) else None
