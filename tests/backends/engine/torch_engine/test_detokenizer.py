"""Text comes out whole: no broken characters, no stop string however it is cut, nothing lost, nothing after the end."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from backends.engine.torch_engine.detokenizer import TextStream, Vocabulary
from tests.backends.engine.torch_engine.tiny_models import BEGIN, END, build_tokenizer

TOKENIZER = build_tokenizer()
VOCABULARY = Vocabulary(TOKENIZER.to_str().encode())
TEXTS = st.text(alphabet=st.sampled_from("ab <>\n{}é漢字😀👩‍👩‍👧ß\U0001f1e9\U0001f1ea"), max_size=30)


def stream(stops: list[str] | None = None) -> TextStream:
    return TextStream(VOCABULARY.stream([]), stops or [])


def id_of(token: str) -> int:
    found = TOKENIZER.token_to_id(token)
    assert found is not None
    return int(found)


def byte_ids(text: str) -> list[int]:
    """Return one token per byte: the finest cut there is."""
    ids = []
    for token in TOKENIZER.pre_tokenizer.pre_tokenize_str(text):
        ids += [id_of(character) for character in token[0]]
    return ids


@given(text=TEXTS)
def test_text_cut_at_every_byte_comes_out_as_it_was(text):
    out = stream()
    pieces = [out.push(token_id).text for token_id in byte_ids(text)]
    assert "\ufffd" not in "".join(pieces)
    assert "".join(pieces) + out.flush() == text


@given(ids=st.lists(st.integers(0, len(VOCABULARY) + 3), max_size=40))
def test_any_tokens_give_what_the_tokenizer_gives_for_all_at_once(ids):
    out = stream()
    text = "".join(out.push(token_id).text for token_id in ids) + out.flush()
    assert text == TOKENIZER.decode(ids, skip_special_tokens=True)


def test_a_character_cut_off_at_the_end_is_marked_once():
    out = stream()
    ids = byte_ids("a😀")[:-1]
    assert "".join(out.push(token_id).text for token_id in ids) == "a"
    assert out.flush() == "\ufffd"


@given(before=TEXTS, stop=TEXTS.filter(bool), after=TEXTS, seed=st.integers(0, 99))
def test_a_stop_string_ends_the_text_wherever_tokens_cut_it(before, stop, after, seed):
    whole = before + stop + after
    source = random.Random(seed)
    ids = byte_ids(whole) if source.random() < 0.5 else TOKENIZER.encode(whole).ids
    out = stream([stop, "never in it"])
    given_out, stopped = "", False
    for token_id in ids:
        piece = out.push(token_id)
        given_out += piece.text
        if piece.stopped:
            stopped = True
            break
    assert stopped
    assert given_out == whole[: whole.index(stop)]


@pytest.mark.parametrize("cut", range(1, 6))
def test_what_may_begin_a_stop_string_is_held_and_given_when_it_does_not(cut):
    out = stream(["<stop>"])
    begin = "<stop>"[:cut]
    assert "".join(out.push(token_id).text for token_id in byte_ids("x" + begin)) == "x"
    assert out.push(byte_ids("y")[0]).text == begin + "y"
    assert out.flush() == ""


def test_what_is_held_at_the_end_is_given():
    out = stream(["<stop>"])
    assert "".join(out.push(token_id).text for token_id in byte_ids("a<st")) == "a"
    assert out.flush() == "<st"


def test_the_earliest_of_several_stop_strings_ends_the_text():
    out = stream(["cd", "bcde"])
    pieces = [out.push(token_id) for token_id in byte_ids("abcd")]
    assert "".join(piece.text for piece in pieces) == "ab"
    assert pieces[-1].stopped


def test_a_stop_string_before_the_minimum_passes_as_text():
    out = stream(["b"])
    assert out.push(byte_ids("b")[0], may_stop=False).text == "b"
    assert out.push(byte_ids("b")[0]).stopped


def test_special_tokens_give_no_text_but_have_one_of_their_own():
    out = stream()
    ids = [id_of(BEGIN), *byte_ids("a"), id_of(END)]
    assert "".join(out.push(token_id).text for token_id in ids) == "a"
    assert VOCABULARY.token_text(id_of(END)) == END


def sentencepiece_like() -> Tokenizer:
    pieces = {"<unk>": 0, "▁": 1, "▁the": 2, "▁cat": 3, "s": 4}
    pieces |= {f"<0x{byte:02X}>": 5 + byte for byte in range(256)}
    tokenizer = Tokenizer(models.BPE(pieces, [], byte_fallback=True, unk_token="<unk>"))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


def test_a_tokenizer_with_spaces_in_its_pieces_keeps_them_and_its_bytes():
    tokenizer = sentencepiece_like()
    vocabulary = Vocabulary(tokenizer.to_str().encode())
    emoji = [5 + byte for byte in "😀".encode()]
    out = TextStream(vocabulary.stream([2]), [])
    pieces = [out.push(token_id).text for token_id in [3, 4, *emoji, 2, 3]]
    assert pieces == [" cat", "s", "", "", "", "😀", " the", " cat"]


def test_bytes_that_never_become_a_character_do_not_hold_text_for_ever():
    vocabulary = Vocabulary(sentencepiece_like().to_str().encode())
    out = TextStream(vocabulary.stream([2]), [])
    pieces = [out.push(5 + 0xFF).text for _ in range(40)]
    assert any(pieces)
    assert len("".join(pieces) + out.flush()) >= 32
