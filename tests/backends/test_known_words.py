"""Encoding by words that are known gives what the library gives for the whole text, to the last id."""

import json
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Encoding, Tokenizer

from backends.engine.settings import BUILTIN_PATH
from backends.tokenization.known_words import KNOWN_PATTERNS, KnownWords, are_words_apart

BUILTIN = json.loads((BUILTIN_PATH / "tokenizer.json").read_bytes())
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def split_by(regex: str, **more: object) -> dict[str, Any]:
    split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False, **more}
    return {"type": "Sequence", "pretokenizers": [split, BYTES]}


def built_in(**fields: object) -> bytes:
    """The built-in model's tokenizer, some of it said otherwise."""
    return json.dumps({**BUILTIN, **fields}).encode()


FORMS = {
    "GPT-2's": built_in(),
    "composing": built_in(normalizer={"type": "NFC"}),
    **{
        f"pattern {place}": built_in(pre_tokenizer=split_by(pattern), normalizer={"type": "NFC"})
        for place, pattern in enumerate(sorted(KNOWN_PATTERNS))
    },
}
# What decides where pieces end, what joins with what is beside it, and what looks like a space to somebody.
ATOMS = [
    *[" "] * 20,
    *("  ", "   ", "\n", "\n\n", "\t", "\r\n", "\x1c", "\x85", "\xa0", "\u180e", "\u2003", "\u200b", "\u3000"),
    *("a", "b", "word", "Word", "WORD", "'s", "'LL", "'re", "é", "e\u0301", "\u0301", "ß", "İ", "ǅ", "日本", "한"),
    *("1", "12", "1234", "٣", "½", "²", ".", "!", "...", "foo(", "{", "-", "_", "/", "。", "🙂", "👩\u200d👩", "\x00"),
    *("<|end|>", "<|user|>", "<|begin|>", "<|", "|>"),
]


class Counted:
    """A tokenizer that tells what it was asked to encode."""

    def __init__(self, tokenizer: bytes) -> None:
        self._tokenizer = Tokenizer.from_buffer(tokenizer)
        self.asked: list[str] = []

    def encode_batch_fast(self, texts: list[str], *, add_special_tokens: bool) -> list[Encoding]:
        assert not add_special_tokens
        self.asked += texts
        return self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)


@pytest.fixture
def new_words() -> Callable[..., tuple[KnownWords, Counted]]:
    def make(**more: int) -> tuple[KnownWords, Counted]:
        counted = Counted(FORMS["GPT-2's"])
        return KnownWords(counted, **more), counted  # type: ignore[arg-type]

    return make


@pytest.mark.parametrize("form", FORMS)
def test_ids_are_those_of_the_whole_text(form):
    assert are_words_apart(FORMS[form])
    library = Tokenizer.from_buffer(FORMS[form])
    words = KnownWords(library, kept=30)  # few, so that words are forgotten and learned again all the time

    @settings(max_examples=60)
    @given(st.one_of(st.lists(st.sampled_from(ATOMS), max_size=30).map("".join), st.text(max_size=30)))
    def check(text: str) -> None:
        expected = library.encode(text, add_special_tokens=False).ids
        assert words.encode(text) == expected
        assert words.encode(text) == expected  # with what has just been learned

    check()


def test_every_pair_of_what_decides_keeps_its_ids_between_words():
    library = Tokenizer.from_buffer(FORMS["GPT-2's"])
    words = KnownWords(library)
    for first, second in product(sorted(set(ATOMS)), repeat=2):
        text = f"the {first}{second} book closes{first} {second}"
        assert words.encode(text) == library.encode(text, add_special_tokens=False).ids, (first, second)


def test_what_was_encoded_is_not_encoded_again(new_words):
    words, library = new_words()
    ids = words.encode("<|user|>Good morning, dear reader")
    library.asked.clear()
    assert words.encode("<|user|>Good morning, dear reader") == ids and library.asked == []
    assert words.encode("<|user|>Good morning, dear writer") != ids and library.asked == [" writer"]


def test_numbers_keys_and_long_words_are_not_kept(new_words):
    words, library = new_words()
    text = f"take {'it ' * 20}4711 and sk-a1b2 or {'x' * 25} here"
    words.encode(text)
    library.asked.clear()
    words.encode(text)
    assert library.asked == [" 4711", " sk-a1b2", f" {'x' * 25}"]


def test_a_text_that_is_nearly_all_new_is_encoded_whole_and_learned_bit_by_bit(new_words):
    words, library = new_words()
    text = " ".join(chr(ord("a") + place % 26) * (place // 26 + 1) for place in range(52))
    words.encode(text)
    assert library.asked[0] == text and len(library.asked) == 1 + 8 and len(words) == 8
    for _ in range(7):
        words.encode(text)
    library.asked.clear()
    words.encode(text)
    assert library.asked == []


@pytest.mark.parametrize("kept", [1, 2, 7])
def test_no_more_is_kept_than_twice_what_may_be(new_words, kept):
    words, _ = new_words(kept=kept)
    for place in range(60):
        words.encode(f"same start then {chr(97 + place % 26)}{chr(97 + place // 26)}")
    assert len(words) <= 2 * kept + 1  # and one that a text began with


def test_a_word_that_is_asked_for_is_not_forgotten(new_words):
    words, library = new_words(kept=4)
    for place in range(40):
        words.encode(f"the word {chr(97 + place % 26)}")
    assert library.asked.count(" word") == 1


def test_what_texts_begin_with_is_kept_within_bounds(new_words):
    words, _ = new_words()
    for place in range(1100):
        words.encode(f"{'ab'[place % 2]}{chr(0x4E00 + place)} the")
    assert len(words) <= 1024 + 1


NOT_APART = {
    "no JSON": b"{",
    "no model": b"{}",
    "no pieces": built_in(pre_tokenizer=None),
    "a space put before a text": built_in(pre_tokenizer={**BYTES, "use_regex": True, "add_prefix_space": True}),
    "bytes without pieces": built_in(pre_tokenizer=BYTES),
    "another pattern": built_in(pre_tokenizer=split_by(r"\w+ \w+|.")),
    "spaces taken along": built_in(pre_tokenizer=split_by(min(KNOWN_PATTERNS), behavior="MergedWithPrevious")),
    "what is between": built_in(pre_tokenizer=split_by(min(KNOWN_PATTERNS), invert=True)),
    "a string for a pattern": built_in(pre_tokenizer=split_by(min(KNOWN_PATTERNS), pattern={"String": " "})),
    "Metaspace": built_in(pre_tokenizer={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}),
    "another normalizer": built_in(normalizer={"type": "Lowercase"}),
    "chance": built_in(model={**BUILTIN["model"], "dropout": 0.1}),
    "another model": built_in(model={**BUILTIN["model"], "type": "Unigram"}),
    "ends of words": built_in(model={**BUILTIN["model"], "end_of_word_suffix": "</w>"}),
    **{
        f"an added token that is {flag}": built_in(
            added_tokens=[*BUILTIN["added_tokens"], {**BUILTIN["added_tokens"][0], "id": 4096, flag: value}]
        )
        for flag, value in {"rstrip": True, "lstrip": True, "single_word": True, "content": "<a b>"}.items()
    },
}


@pytest.mark.parametrize("case", NOT_APART)
def test_other_tokenizers_encode_every_text_whole(case):
    assert not are_words_apart(NOT_APART[case])
