"""Caches token ids of words: most words of a prompt have been encoded before, and a look-up takes a tenth of the time.

The ids are exactly those of the tokenizer library. This works for tokenizers whose pieces never extend over the space
between two words, so that each word with the space before it is encoded as within a text; see `are_words_apart`.
"""

import re
from collections import deque
from typing import Final

import msgspec
from tokenizers import Tokenizer

_KEPT: Final = 16_384  # words in each of two generations: at most about 8 MB
_LONGEST: Final = 24  # maximum length of a cached word in characters
_MOST_FIRSTS: Final = 1024
_LOOKED_AT: Final = 32  # words of a mostly new text that are considered for the cache
_LEARNED_AT_ONCE: Final = 8  # of these added: takes a seventh of the time to encode 1 KB
_COST_OF_A_WORD: Final = 2  # cost of encoding a word alone, relative to one within a text
_NONE: Final[list[int]] = []
# A space after one of these characters begins a new piece. None of them counts as a space in any library.
AT_SPACES: Final = re.compile(r"(?<=[!-~\w]) ")
_DIGIT: Final = re.compile(r"\d")

# How GPT-2 ("ByteLevel" alone), Llama 3, Qwen 2 and gpt-oss split a text into pieces. In none of them can a piece
# contain a space after its beginning, unless that follows another space.
_CONTRACTIONS: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST: Final = r"\s+(?!\S)|\s+"
_LLAMA: Final = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|" + _REST
_UPPER: Final = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}"
_LOWER: Final = r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_GPT_OSS: Final = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+{_CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*{_CONTRACTIONS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|" + _REST
)
KNOWN_PATTERNS: Final = frozenset((_LLAMA, _LLAMA.replace("{1,3}", ""), _GPT_OSS))


class _Pattern(msgspec.Struct, frozen=True):
    regex: str = msgspec.field(name="Regex", default="")


class _Cutter(msgspec.Struct, frozen=True):
    type: str = ""
    pretokenizers: "list[_Cutter]" = []
    pattern: _Pattern = _Pattern()
    behavior: str = ""
    invert: bool = False
    add_prefix_space: bool = True
    use_regex: bool = True


class _Normalizer(msgspec.Struct, frozen=True):
    type: str = ""


class _AddedToken(msgspec.Struct, frozen=True):
    content: str = " "
    single_word: bool = True
    lstrip: bool = True
    rstrip: bool = True


class _Model(msgspec.Struct, frozen=True):
    type: str = ""
    dropout: float | None = None
    continuing_subword_prefix: str | None = None
    end_of_word_suffix: str | None = None


class _File(msgspec.Struct, frozen=True):
    model: _Model
    normalizer: _Normalizer | None = None
    pre_tokenizer: _Cutter | None = None
    added_tokens: list[_AddedToken] = []


def are_words_apart(tokenizer: bytes) -> bool:
    """Return whether a tokenizer.json encodes each word of a text, with the space before it, as it does the
    word alone.
    """
    try:
        file = msgspec.json.decode(tokenizer, type=_File)
    except msgspec.MsgspecError:
        return False  # an unknown format
    model, cutter = file.model, file.pre_tokenizer
    return (
        cutter is not None
        and _cuts_at_spaces(cutter)
        # NFC normalization never combines a space with other characters.
        and (file.normalizer is None or file.normalizer.type == "NFC")
        and model.type == "BPE"
        and not (model.dropout or model.continuing_subword_prefix or model.end_of_word_suffix)
        and all(map(_stands_alone, file.added_tokens))
    )


def _cuts_at_spaces(cutter: _Cutter) -> bool:
    if cutter.type != "Sequence":
        return _is_byte_level(cutter) and cutter.use_regex
    if len(cutter.pretokenizers) != 2:
        return False
    split, bytes_of = cutter.pretokenizers
    is_known = split.type == "Split" and split.pattern.regex in KNOWN_PATTERNS
    is_plain = split.behavior == "Isolated" and not split.invert
    return is_known and is_plain and _is_byte_level(bytes_of) and not bytes_of.use_regex


def _is_byte_level(cutter: _Cutter) -> bool:
    return cutter.type == "ByteLevel" and not cutter.add_prefix_space


def _stands_alone(token: _AddedToken) -> bool:
    """Return whether an added token is matched everywhere in a text, and includes no surrounding characters."""
    return not (token.single_word or token.lstrip or token.rstrip or re.search(r"\s", token.content))


class KnownWords:
    """Encodes texts word by word with a cache of words of up to 24 characters without digits.

    Words with digits are not cached, so that numbers, keys and ids are not kept and do not displace words. Only for
    tokenizers for which `are_words_apart` is true. May be called from several threads.
    """

    __slots__ = ("_firsts", "_kept", "_known", "_known_before", "_tokenizer")

    def __init__(self, tokenizer: Tokenizer, *, kept: int = _KEPT) -> None:
        self._tokenizer = tokenizer
        self._kept = kept
        # By word, without the space before it, in two generations: a full cache becomes the previous generation, whose
        # words are dropped at the next change unless they are used again.
        self._known = _Known()
        self._known_before = _Known()
        self._firsts = _Known()  # first words of texts, which have no space before

    def __len__(self) -> int:
        """Return the number of cached words."""
        return len(self._known) + len(self._known_before) + len(self._firsts)

    def encode(self, text: str) -> list[int]:
        """Return a text's token ids, without adding special tokens."""
        words = text.split(" ")
        found = self._look_up(words)
        return _joined(found) if all(found) else self._encode_new(text, words, found)

    def _look_up(self, words: list[str]) -> list[list[int]]:
        """Return the ids of each word; an empty list for a word that is not cached."""
        found = list(map(self._known.__getitem__, words))
        found[0] = self._firsts[words[0]]
        return found

    def _encode_new(self, text: str, words: list[str], found: list[list[int]]) -> list[int]:
        """Encode a text with uncached words, and cache suitable ones."""
        missing = _places_missing(found)
        if self._is_mostly_new(words, missing):
            return self._encode_whole(text, words, missing)
        if not all([_ends_a_piece(words[place]) for place in missing if place + 1 < len(words)]):
            words = AT_SPACES.split(text)
            found = self._look_up(words)
            missing = _places_missing(found)
            if self._is_mostly_new(words, missing):
                return self._encode_whole(text, words, missing)
        new: dict[str, list[int]] = {}
        for place in missing:
            word = words[place]
            known = self._known_before.get(word) if place else None
            if known is None:
                new[f" {word}" if place else word] = _NONE
            else:
                found[place] = known
                self._keep(word, known)
        encoded = self._tokenizer.encode_batch_fast(list(new), add_special_tokens=False)
        for piece, one in zip(new, encoded, strict=True):
            new[piece] = one.ids
        for place in missing:
            if not found[place]:
                word = words[place]
                found[place] = new[f" {word}" if place else word]
                if _is_worth_keeping(word):
                    self._keep(word, found[place], is_first=not place)
        return _joined(found)

    def _is_mostly_new(self, words: list[str], missing: list[int]) -> bool:
        """Return whether encoding the uncached words would take longer than encoding the whole text."""
        if len(missing) * _COST_OF_A_WORD <= len(words):
            return False
        new = {words[place] for place in missing}.difference(self._known_before)
        return len(new) * _COST_OF_A_WORD > len(words)

    def _encode_whole(self, text: str, words: list[str], missing: list[int]) -> list[int]:
        """Encode a mostly new text as a whole, and cache a few words spread over it."""
        some = missing[:: len(missing) // _LOOKED_AT + 1]
        places = [place for place in some if _is_worth_keeping(words[place])][:_LEARNED_AT_ONCE]
        pieces = [text, *(f" {words[place]}" if place else words[place] for place in places)]
        whole, *encoded = self._tokenizer.encode_batch_fast(pieces, add_special_tokens=False)
        for place, one in zip(places, encoded, strict=True):
            self._keep(words[place], one.ids, is_first=not place)
        ids: list[int] = whole.ids
        return ids

    def _keep(self, word: str, ids: list[int], *, is_first: bool = False) -> None:
        if is_first:
            if len(self._firsts) >= _MOST_FIRSTS:
                self._firsts = _Known()
            self._firsts[word] = ids
            return
        if len(self._known) >= self._kept:
            self._known_before, self._known = self._known, _Known()
        self._known[word] = ids


class _Known(dict[str, list[int]]):
    def __missing__(self, word: str) -> list[int]:
        return _NONE


def _joined(found: list[list[int]]) -> list[int]:
    ids: list[int] = []
    deque(map(ids.extend, found), maxlen=0)
    return ids


def _places_missing(found: list[list[int]]) -> list[int]:
    places: list[int] = []
    place = -1
    try:
        while True:
            place = found.index(_NONE, place + 1)
            places.append(place)
    except ValueError:
        return places


def _ends_a_piece(word: str) -> bool:
    """Return whether a space after this word certainly begins a new piece, as in `AT_SPACES`."""
    last = word[-1:]
    return "!" <= last <= "~" or last.isalnum()


def _is_worth_keeping(word: str) -> bool:
    return len(word) <= _LONGEST and _ends_a_piece(word) and _DIGIT.search(word) is None
