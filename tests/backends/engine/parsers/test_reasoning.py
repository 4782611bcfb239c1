"""Reasoning told apart from the answer, wherever the text is cut."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.engine.parsers.reasoning import ReasoningParser, ReasoningTags

TAGS = ReasoningTags("<think>", "</think>")
# Text made of the tags' own characters, so that near misses are common.
TRICKY = st.lists(st.sampled_from(["<think>", "</think>", "<", "/", "think", ">", "é", " ", "\n", "a"]), max_size=12)


@dataclass
class Heard:
    reasoning: str = ""
    content: str = ""
    tokens: int = 0


def heard(pieces: list[str], *, is_open: bool = False, end: bool = True) -> Heard:
    parser = ReasoningParser(TAGS, is_open=is_open)
    found = Heard()
    for piece in pieces:
        parser.note_tokens([len(piece)])
        told = parser.push(piece)
        found.reasoning += told.reasoning
        found.content += told.content
    if end:
        last = parser.finish()
        found.reasoning += last.reasoning
        found.content += last.content
    found.tokens = parser.tokens
    return found


@pytest.mark.parametrize(
    ("text", "is_open", "reasoning", "content"),
    [
        ("<think>\nhm\n</think>\n\nyes", False, "hm\n", "yes"),
        ("\n<think>hm</think>yes", False, "hm", "yes"),
        ("hm\n</think>\n\nyes", True, "hm\n", "yes"),
        ("<think>hm</think>yes", True, "hm", "yes"),
        ("</think>yes", True, "", "yes"),
        ("<think></think>", False, "", ""),
        ("<think>cut of", False, "cut of", ""),
        ("<think>cut </thin", False, "cut </thin", ""),
        ("cut", True, "cut", ""),
        ("yes", False, "", "yes"),
        (" \n", False, "", " \n"),
        ("<thin", False, "", "<thin"),
        ("A <think> tag </think>", False, "", "A <think> tag </think>"),
        ("<think>a</think>b<think>c</think>", False, "a", "b<think>c</think>"),
    ],
)
def test_every_cut_gives_the_same(text: str, is_open: bool, reasoning: str, content: str) -> None:
    for place in range(len(text) + 1):
        found = heard([text[:place], text[place:]], is_open=is_open)
        assert (found.reasoning, found.content) == (reasoning, content)
    found = heard(list(text), is_open=is_open)
    assert (found.reasoning, found.content) == (reasoning, content)


@given(TRICKY, st.booleans(), st.data())
def test_what_is_out_depends_on_the_text_so_far_alone(parts: list[str], is_open: bool, data: st.DataObject) -> None:
    text = "".join(parts)
    place = data.draw(st.integers(0, len(text)))
    whole, cut = heard([text], is_open=is_open, end=False), heard(list(text), is_open=is_open, end=False)
    twice = heard([text[:place], text[place:]], is_open=is_open, end=False)
    assert (whole.reasoning, whole.content) == (cut.reasoning, cut.content) == (twice.reasoning, twice.content)


@given(TRICKY, st.booleans())
def test_nothing_but_tags_and_space_around_them_is_lost(parts: list[str], is_open: bool) -> None:
    text = "".join(parts)
    found = heard(list(text), is_open=is_open)
    lost = len(text) - len(found.reasoning) - len(found.content)
    assert lost <= len("<think></think>") + sum(map(str.isspace, text))
    kept = found.reasoning + found.content
    assert "".join(text.split()).endswith("".join(found.content.split()))
    assert is_open or text.lstrip().startswith("<think>") or kept == text


def test_text_is_held_back_only_while_it_may_be_a_tag() -> None:
    parser = ReasoningParser(TAGS, is_open=False)
    assert parser.push("<think>").reasoning == ""
    assert parser.push("a < b </thi").reasoning == "a < b "
    assert parser.push("s").reasoning == "</this"
    assert parser.push("</think>").reasoning == ""
    assert parser.push("<").content == "<"


def test_tokens_wholly_inside_the_tags_are_counted() -> None:
    assert heard(["<think>", "\n", "a", " b", "</think>", "\n\n", "c"]).tokens == 3
    assert heard(["<th", "ink>x", "a", "b.</", "think>", "c"]).tokens == 1  # x and b share theirs with a tag
    assert heard(["a", " b", "</think>", "c"], is_open=True).tokens == 2
    assert heard(["<think>", "a", "b"]).tokens == 2
    assert heard(["<think>", "a", "<"], end=False).tokens == 2
    assert heard(["a", "b"]).tokens == 0


def test_tokens_without_text_go_with_the_text_they_begin() -> None:
    parser = ReasoningParser(TAGS, is_open=True)
    for text, length in (("", 0), ("", 0), ("é", 1), ("</think>", 8), ("", 0), ("é", 1), ("", 0)):
        parser.note_tokens([length])
        parser.push(text)
    assert parser.tokens == 3


def test_text_that_lags_behind_its_tokens_is_counted_by_its_tokens() -> None:
    parser = ReasoningParser(TAGS, is_open=True)
    parser.note_tokens([1, 8, 1])  # held back by a possible stop string
    assert parser.push("").content == ""
    assert parser.push("a</think>b").content == "b"
    assert parser.tokens == 1


def test_tokens_of_another_replica_are_not_counted() -> None:
    parser = ReasoningParser(TAGS, is_open=False)
    parser.note_tokens([7, 1, 0], 0)
    parser.push("<think>a")
    parser.note_tokens([1])
    parser.push("b")
    assert parser.tokens == 1
