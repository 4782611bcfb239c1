"""How alike two prompts are."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithms.abuse.sketch import SKETCH_SIZE, similarity, sketch_of

_REPORT = (
    "The quarterly report of the northern branch shows that revenue grew by twelve percent while costs stayed level "
    "and the new warehouse opened three weeks before its date which saved the rent of the old one, some of the staff "
    "moved early so that both places could be run with the same people until the summer when the second shift begins"
)


def test_a_prompt_is_wholly_like_itself_whatever_its_numbers_case_and_blanks() -> None:
    one = sketch_of("Give me the balance of customer 17 and of no other customer, please.")
    other = sketch_of("give me  the balance of customer 18 and of no other\ncustomer, please.")
    assert similarity(one, other) == 1.0


def test_a_word_that_is_changed_leaves_most_of_a_long_prompt() -> None:
    assert similarity(sketch_of(_REPORT), sketch_of(_REPORT.replace("twelve", "eleven"))) > 0.85


def test_a_few_words_are_compared_exactly() -> None:
    # Eight runs of three words; one word at the end is in one of them.
    one = sketch_of("a b c d e f g h i j".replace(" ", "x "))
    other = sketch_of("a b c d e f g h i k".replace(" ", "x "))
    assert similarity(one, other) == pytest.approx(7 / 9)


def test_prompts_about_other_things_are_unlike() -> None:
    other = "Write a limerick about a lighthouse keeper who collects clocks and never knows what time it is"
    assert similarity(sketch_of(_REPORT), sketch_of(other)) < 0.05


def test_text_without_blanks_is_compared_too() -> None:
    one, other = (
        "请把这份合同翻译成英文并列出所有的付款条件和违约责任",
        "请把这份合同翻译成法文并列出所有的付款条件和违约责任",
    )
    assert 0.5 < similarity(sketch_of(one), sketch_of(other)) < 1
    assert similarity(sketch_of(one), sketch_of("今天北京的天气怎么样")) < 0.1


@pytest.mark.parametrize("text", ["", "   ", "\n"])
def test_nothing_is_like_nothing(text: str) -> None:
    assert similarity(sketch_of(text), sketch_of(text)) == 0.0


@settings(max_examples=40)
@given(st.text(max_size=300), st.text(max_size=300))
def test_similarity_is_a_share_that_holds_both_ways_and_sketches_are_bounded(one: str, other: str) -> None:
    first, second = sketch_of(one), sketch_of(other)
    assert 0 <= similarity(first, second) == similarity(second, first) <= 1
    assert len(first) <= SKETCH_SIZE
