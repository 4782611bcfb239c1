"""A lower bound of a text's tokens, without the model's tokenizer.

Tokenizers first split at white space, so no token spans two words: a text has at least as many tokens as words. Only
words with a letter or a digit count, because one token may contain a line of punctuation with its line breaks.
"""

import re
from typing import Final

import msgspec

_WORD: Final = re.compile(r"\w\S*")


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct):
    function: _Function | None = None


_calls: Final = msgspec.json.Decoder(list[_Call])


def least_tokens(text: str) -> int:
    """Return the minimum tokens of a non-empty text: its words, and at least one."""
    if text.find(" ", 1, -1) < 0 and text.find("\n", 1, -1) < 0:
        return 1
    return len(_WORD.findall(text)) or 1


def least_call_tokens(calls: bytes) -> int:
    """Return the minimum tokens of a chunk's tool calls, by the words of their arguments."""
    try:
        found = _calls.decode(calls)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return 1
    said = [call.function.arguments if call.function is not None else None for call in found]
    return sum([least_tokens(text) if text else 1 for text in said])


def first_words(text: str, words: int) -> str:
    """Return the start of a text with at most this many words, counted as in `least_tokens`."""
    if words <= 0:
        return ""
    for number, word in enumerate(_WORD.finditer(text), 1):
        if number == words:
            return text[: word.end()]
    return text
