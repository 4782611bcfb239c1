"""What a quick look leaves out holds nothing: no phrase that can be said without one of the traces."""

from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithms.detectors.injection import injection_in
from algorithms.detectors.injection_languages import OTHER_LANGUAGES
from algorithms.detectors.injection_phrases import ENGLISH, Phrase
from algorithms.detectors.injection_traces import TRACES
from bench.guardrail_corpus import read_corpus
from contracts.guardrails.plain_text import plain_text
from gateway.guardrails.screening.expression import Expression

_QUICK = Expression(*TRACES)
_PHRASES = [each for each in chain(ENGLISH, OTHER_LANGUAGES) if each.form.pattern.isascii()]


@pytest.mark.parametrize("phrase", _PHRASES, ids=lambda each: each.name)
def test_no_phrase_is_said_without_a_trace(phrase: Phrase) -> None:
    @settings(max_examples=5, database=None)
    @given(st.from_regex(phrase.form.pattern, alphabet=st.characters(max_codepoint=126)))
    def is_traced(text: str) -> None:
        if phrase.form.search(text.lower()) is not None:
            assert _QUICK.start(text) >= 0

    is_traced()


@pytest.mark.parametrize("name", ["injection", "injection_unseen", "injection_definitions"])
def test_no_text_of_the_corpus_is_left_out_that_says_anything(name: str) -> None:
    texts = [plain_text(line.text) for line in read_corpus(name)]
    left_out = [text for text in texts if text.isascii() and _QUICK.start(text) < 0]
    assert [text for text in left_out if injection_in(text).signals] == []
    assert left_out
