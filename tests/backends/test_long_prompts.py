"""Prompts of any length: refused before they are encoded if they cannot fit, encoded no further than the context."""

import json
import sys
import tracemalloc
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import backends.tokenization.tokenizer
from backends.engine.settings import BUILTIN_PATH
from backends.engine.torch_engine.model_files import read_model_files
from backends.tokenization.tokenizer import PIECE_CHARACTERS, PromptFormat
from contracts.errors import InvalidRequest

FILES = read_model_files(BUILTIN_PATH)
FORM = PromptFormat(FILES.tokenizer, FILES.chat_template, {})


def unigram() -> PromptFormat:
    """A tokenizer whose words are not known to stand apart, so that nothing is known of its tokens' lengths."""
    pieces = [("<unk>", 0.0), ("\N{LOWER ONE EIGHTH BLOCK}", -2.0), *((letter, -3.0) for letter in "abcdefgh")]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return PromptFormat(tokenizer.to_str().encode(), "", {})


def library(text: str) -> list[int]:
    """What the library itself makes of a whole text."""
    return list(Tokenizer.from_buffer(FILES.tokenizer).encode(text, add_special_tokens=False).ids)


WORDS = st.sampled_from(
    ["a", "the", " ", "  ", "\n", "\t", "books", "é", "漢字", "<|end|>", "<|e", "nd|>", "1234567", "'s", "-", "x" * 90]
)


@settings(max_examples=60, deadline=None)
@given(
    words=st.lists(WORDS, min_size=1, max_size=40),
    repeats=st.integers(1, 12),
    joined_by=st.sampled_from([" ", "", "\n", " \n "]),
)
def test_a_long_text_has_the_tokens_that_the_library_finds(words, repeats, joined_by):
    text = joined_by.join(words * repeats)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backends.tokenization.tokenizer, "PIECE_CHARACTERS", 64)
        patch.setattr(backends.tokenization.tokenizer, "_MOST_UNCUT", 256)
        expected = library(text)
        assert FORM.encode_within(text, len(expected)) == expected
        assert FORM.encode_within(text, len(expected) + 1) == expected
        assert FORM.encode_within(text, len(expected) - 1) is None
        assert not FORM.is_too_long(text, len(expected))


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (FORM, "the quick brown fox " * 40_000),
        (FORM, "x" * 700_000),
        (FORM, "漢" * 300_000),
        (FORM, "\n" * 500_000),
        (FORM, '{"a":1}' * 90_000),
        (unigram(), "abc de " * 40_000),
        (unigram(), "abcdefgh" * 40_000),
    ],
    ids=["words", "one word", "one word of many bytes", "empty lines", "code", "unigram", "one word of a unigram"],
)
def test_real_lengths_below_at_and_above_the_context(form, text):
    expected = form.encode(text)
    assert form.encode_within(text, len(expected)) == expected
    assert form.encode_within(text, len(expected) - 1) is None
    assert form.encode_within(text, 100) is None
    assert form.is_too_long(text, 100) and not form.is_too_long(text, len(expected))


def test_no_text_is_shorter_than_its_tokens_allow():
    longest = max(json.loads(FILES.tokenizer)["model"]["vocab"], key=len)
    assert FORM.token_bytes == len(longest)
    words = " ".join([longest.removeprefix("\u0120")] * 20_000)
    tokens = FORM.encode(words)
    assert len(words.encode()) <= len(tokens) * FORM.token_bytes
    assert FORM.encode_within(words, len(tokens)) == tokens


def test_of_tokens_that_may_be_any_length_none_is_assumed():
    assert unigram().token_bytes == 0


def test_composing_leaves_more_than_a_quarter_of_the_bytes():
    # The longest that a character can be written: its decomposition, each part of it in its longest form.
    longest_form: dict[str, int] = {}
    everything = [chr(number) for number in range(sys.maxunicode + 1) if not 0xD800 <= number < 0xE000]
    for one in everything:
        composed = unicodedata.normalize("NFC", one)
        if len(composed) == 1:
            longest_form[composed] = max(longest_form.get(composed, 0), len(one.encode()))
    for one in everything:
        if unicodedata.normalize("NFC", one) == one:
            parts = unicodedata.normalize("NFD", one)
            size = sum(longest_form.get(part, len(part.encode())) for part in parts)
            assert max(size, longest_form[one]) < 4 * len(one.encode())


def test_what_cannot_fit_is_not_encoded():
    text = "a " * 15_000_000
    tracemalloc.start()
    try:
        assert FORM.encode_within(text, 8192) is None
        assert FORM.encode_within(text, 1 << 20) is None  # by its length as well
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
        assert FORM.encode_within("authentication " * 200_000, 100_000) is None  # by what its beginning holds
        assert tracemalloc.get_traced_memory()[1] < 24 << 20
    finally:
        tracemalloc.stop()


def test_inputs_in_batches_are_what_they_are_together():
    texts = ["a b c", "the books " * 9000, "", "x" * 70_000, "one more"]
    each = [one.ids for one in Tokenizer.from_buffer(FILES.tokenizer).encode_batch(texts)]
    assert FORM.encode_inputs(texts) == each
    assert FORM.encode_cut([(text, None) for text in texts]) == each


def test_a_text_is_cut_to_its_first_tokens_however_long_it_is():
    text = "the quick brown fox " * 20_000
    [cut], [whole] = FORM.encode_cut([(text, 50)]), FORM.encode_cut([(text[: PIECE_CHARACTERS // 2], 50)])
    assert cut == whole and len(cut) == 50


def test_all_inputs_of_a_request_have_a_million_tokens_at_most():
    with pytest.raises(InvalidRequest, match="more than 1000000 tokens together"):
        FORM.encode_inputs(["a " * 6000] * 200)
