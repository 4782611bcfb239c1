"""Converts token ids to text as they arrive: exact UTF-8 across tokens, stop strings across token boundaries.

Text is held back only while it may still change (an incomplete character) or may be the start of a stop string. A stop
string, and any text after it, is never returned.
"""

import codecs
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from tokenizers import Tokenizer

_WINDOW: Final = 6  # earlier tokens that may affect a decoder's output (spaces between words)
_MAX_UNFINISHED: Final = 8  # tokens; a UTF-8 character takes at most 4
_REPLACEMENT: Final = "\ufffd"


class Vocabulary:
    """A tokenizer.json, and for byte-level tokenizers the bytes of each token; `None` for special tokens."""

    def __init__(self, tokenizer_json: bytes) -> None:
        self.tokenizer = Tokenizer.from_buffer(tokenizer_json)
        self.special_ids = {
            index for index, token in self.tokenizer.get_added_tokens_decoder().items() if token.special
        }
        decoder = json.loads(tokenizer_json).get("decoder") or {}
        self._bytes = self._token_bytes() if decoder.get("type") == "ByteLevel" else None

    def __len__(self) -> int:
        return int(self.tokenizer.get_vocab_size(with_added_tokens=True))

    def token_text(self, token_id: int) -> str:
        """Return one token's text, including special tokens; invalid text becomes U+FFFD."""
        text: str = self.tokenizer.decode([token_id], skip_special_tokens=False)
        return text

    def tail(self, token_ids: Sequence[int], count: int) -> str:
        """Return the text of the last `count` tokens, special ones included."""
        text: str = self.tokenizer.decode(list(token_ids[-count:]), skip_special_tokens=False)
        return text

    def stream(self, context: Sequence[int], markers: Collection[str] = ()) -> "_Characters":
        """Return a decoder for tokens after `context`, the end of a prompt. Of special tokens, only `markers` become
        text.
        """
        if self._bytes is not None:
            characters: _Characters = _ByteCharacters(self._bytes)
        else:
            characters = _WindowCharacters(self.tokenizer, list(context[-_WINDOW:]))
        found = {index: text for text in markers if (index := self.tokenizer.token_to_id(text)) in self.special_ids}
        return _MarkedCharacters(characters, found) if found else characters

    def _token_bytes(self) -> list[bytes | None]:
        """Return the bytes of each token, by inverting GPT-2's mapping of bytes to printable characters
        (encoder.py).
        """
        printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        alphabet = {chr(byte): byte for byte in printable}
        others = (byte for byte in range(256) if byte not in set(printable))
        alphabet |= {chr(0x100 + place): byte for place, byte in enumerate(others)}
        vocabulary = self.tokenizer.get_vocab(with_added_tokens=True)
        table: list[bytes | None] = [None] * (max(vocabulary.values(), default=-1) + 1)
        for token, index in vocabulary.items():
            if index in self.special_ids:
                continue
            known = all(character in alphabet for character in token)
            table[index] = bytes(alphabet[character] for character in token) if known else token.encode()
        return table


class _Characters(Protocol):
    """Converts tokens to text that will not change any more."""

    def push(self, token_id: int) -> str: ...

    def flush(self) -> str: ...


class _ByteCharacters:
    """Decodes byte-level tokens incrementally."""

    def __init__(self, table: list[bytes | None]) -> None:
        self._table = table
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        found = self._table[token_id] if token_id < len(self._table) else None
        return self._decoder.decode(found) if found else ""

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)


class _WindowCharacters:
    """Decodes with any other tokenizer: a window with and without the new tokens; the difference is new text."""

    def __init__(self, tokenizer: Tokenizer, context: list[int]) -> None:
        self._tokenizer = tokenizer
        self._ids = context
        self._known = len(context)  # how many of `_ids` have been returned as text

    def push(self, token_id: int) -> str:
        self._ids.append(token_id)
        return self._new(final=False)

    def flush(self) -> str:
        return self._new(final=True)

    def _new(self, *, final: bool) -> str:
        before = self._decode(self._ids[: self._known])
        after = self._decode(self._ids)
        unfinished = after.endswith(_REPLACEMENT) and len(self._ids) - self._known < _MAX_UNFINISHED
        if len(after) <= len(before) or (unfinished and not final):
            return ""
        self._ids = self._ids[max(0, self._known - _WINDOW) :] if self._known > _WINDOW else self._ids
        self._ids = self._ids[-(_WINDOW + _MAX_UNFINISHED) :]
        self._known = len(self._ids)
        return after[len(before) :]

    def _decode(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=True)
        return text


class _MarkedCharacters:
    """Decodes with any tokenizer, with some special tokens as text."""

    def __init__(self, characters: _Characters, markers: Mapping[int, str]) -> None:
        self._characters = characters
        self._markers = markers

    def push(self, token_id: int) -> str:
        marker = self._markers.get(token_id)
        return self._characters.push(token_id) if marker is None else self._characters.flush() + marker

    def flush(self) -> str:
        return self._characters.flush()


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that is certain after a token; `stop` is the stop string that the token completed, if any."""

    text: str
    stop: str = ""

    @property
    def stopped(self) -> bool:
        """Return whether a stop string was completed."""
        return bool(self.stop)


class TextStream:
    """Decodes the tokens of one choice. `characters` counts all decoded characters, including those held back."""

    def __init__(self, characters: _Characters, stops: Sequence[str] = ()) -> None:
        self._characters = characters
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.characters = 0
        self._longest = max(map(len, self._stops), default=0)

    def push(self, token_id: int, *, may_stop: bool = True) -> Piece:
        """Add a token and return the text that is certain. Without `may_stop`, before the minimum length, stop strings
        are text.
        """
        return self._release(self._characters.push(token_id), may_stop)

    def flush(self) -> str:
        """Return the remaining text of an answer that ended without a stop string."""
        piece = self._release(self._characters.flush(), True)
        text, self._held = piece.text + ("" if piece.stopped else self._held), ""
        return text

    def _release(self, new: str, may_stop: bool) -> Piece:
        self.characters += len(new)
        if not self._stops or not may_stop:
            text, self._held = self._held + new, ""
            return Piece(text)
        if not new:
            return Piece("")
        text = self._held + new
        found = min(((place, stop) for stop in self._stops if (place := text.find(stop)) >= 0), default=None)
        if found is not None:
            self._held = ""
            return Piece(text[: found[0]], found[1])
        kept = self._possible_stop(text)
        self._held = text[len(text) - kept :]
        return Piece(text[: len(text) - kept])

    def _possible_stop(self, text: str) -> int:
        """Return the length of the longest suffix of `text` that may start a stop string."""
        for length in range(min(len(text), self._longest - 1), 0, -1):
            tail = text[-length:]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0
