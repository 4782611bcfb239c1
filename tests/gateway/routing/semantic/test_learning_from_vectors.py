"""Scores, thresholds and tallies on vectors made by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.embedder.base import DIMENSIONS
from contracts.serving.semantic import ComplexitySpec, IntentSpec, SemanticSpec
from gateway.routing.semantic.complexity import fit_complexity, given_prompts, look_of
from gateway.routing.semantic.intent_space import IntentSpace
from gateway.routing.semantic.intents import everyday_prompts, fit_intents
from gateway.routing.semantic.tally import Tally
from gateway.routing.semantic.thresholds import best_threshold

SCORES = st.lists(st.floats(0, 1).map(lambda value: round(value, 3)), min_size=1, max_size=30)


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def around(middle, count, spread, random):
    """Vectors about an axis of their own."""
    base = np.zeros(DIMENSIONS)
    base[middle] = 1
    return unit(base + spread * random.standard_normal((count, DIMENSIONS)) / np.sqrt(DIMENSIONS))


@settings(deadline=None)
@given(right=SCORES, wrong=SCORES)
def test_no_other_line_parts_right_from_wrong_better(right, wrong):
    right, wrong = np.array(right), np.array(wrong)

    def parts(line):
        return (right >= line).mean() - (wrong >= line).mean()

    line = best_threshold(right, wrong)
    assert 0 <= line <= 1
    assert all(parts(line) >= parts(other) - 1e-9 for other in np.linspace(0, 1, 21))


def test_the_line_is_in_the_middle_of_the_gap():
    assert best_threshold(np.array([0.6, 0.8]), np.array([0.1, 0.4])) == pytest.approx(0.5)
    assert best_threshold(np.array([0.6, 0.8]), np.empty(0)) == pytest.approx(0.3)
    assert best_threshold(np.empty(0), np.array([0.2])) == 1.0


@settings(max_examples=30, deadline=None)
@given(counts=st.lists(st.integers(1, 6), min_size=1, max_size=4), seed=st.integers(0, 1000))
def test_held_out_scores_are_those_of_a_space_without_the_example(counts, seed):
    random = np.random.default_rng(seed)
    vectors = unit(random.standard_normal((sum(counts), 16)))
    labels = np.repeat(np.arange(len(counts)), counts)
    found = IntentSpace(vectors, labels, len(counts)).held_out_scores()
    for place in range(len(vectors)):
        if counts[labels[place]] == 1:
            assert found[place, labels[place]] < 1e-6  # nothing is left that could be near to it
            continue
        rest = np.arange(len(vectors)) != place
        alone = IntentSpace(vectors[rest], labels[rest], len(counts)).scores(vectors[place : place + 1])[0]
        assert found[place] == pytest.approx(alone, abs=1e-9)


def learned(spread=0.5, thresholds=(None, None), others=0):
    random = np.random.default_rng(7)
    texts = {name: [f"{name} {number}" for number in range(8)] for name in ("code", "billing")}
    vectors = dict(zip(texts["code"], around(0, 8, spread, random), strict=True))
    vectors |= dict(zip(texts["billing"], around(1, 8, spread, random), strict=True))
    strangers = [f"other {number}" for number in range(others)]
    vectors |= dict(zip(strangers, around(2, others, spread, random), strict=True))
    everyday = unit(random.standard_normal((len(everyday_prompts()), DIMENSIONS)))
    vectors |= dict(zip(everyday_prompts(), everyday, strict=True))
    intents = tuple(
        IntentSpec(name=name, utterances=tuple(texts[name]), threshold=threshold)
        for name, threshold in zip(texts, thresholds, strict=True)
    )
    return fit_intents(SemanticSpec(intents=intents, others=tuple(strangers)), vectors)


def test_what_is_near_an_intent_is_read_as_it_and_what_is_near_none_is_not():
    classifier, report = learned(others=6)
    random = np.random.default_rng(8)
    assert [intent for intent, _ in classifier.read(around(0, 5, 0.5, random))] == [0] * 5
    assert [intent for intent, _ in classifier.read(around(1, 5, 0.5, random))] == [1] * 5
    assert [intent for intent, _ in classifier.read(around(2, 5, 0.5, random))] == [None] * 5
    assert report.held_out.accuracy == 1 and report.held_out.count == 16
    assert report.others == 1 and report.everyday == 1
    assert set(report.thresholds.values()) == {report.calibrated}


def test_a_stated_threshold_is_held_below_at_and_above():
    plain, _ = learned()
    text = around(0, 1, 0.8, np.random.default_rng(9))
    ((_, score),) = plain.read(text)
    for threshold, expected in ((score - 1e-6, 0), (score, 0), (score + 1e-6, None)):
        classifier, report = learned(thresholds=(threshold, None))
        assert classifier.read(text) == [(expected, score)]
        assert report.thresholds["code"] == threshold and report.calibrated == report.thresholds["billing"]
    _, report = learned(thresholds=(0.2, 0.9))
    assert report.calibrated is None


def test_examples_that_are_strewn_are_not_all_left_to_the_default():
    _, report = learned(spread=4.0)
    assert report.held_out.abstention <= 0.5


def test_complexity_is_told_by_the_examples():
    simple, complex_ = given_prompts()
    random = np.random.default_rng(3)
    vectors = dict(zip(simple, around(0, len(simple), 1.0, random), strict=True))
    vectors |= dict(zip(complex_, around(1, len(complex_), 1.0, random), strict=True))
    classifier, report = fit_complexity(ComplexitySpec(), vectors)
    assert report.is_calibrated and report.held_out.accuracy is not None and report.held_out.accuracy > 0.95
    (near_simple,), (near_complex,) = around(0, 1, 1.0, random), around(1, 1, 1.0, random)
    assert classifier.probability(near_simple, "word") < report.threshold < classifier.probability(near_complex, "word")
    stated, report = fit_complexity(ComplexitySpec(threshold=0.99), vectors)
    assert (stated.threshold, report.is_calibrated) == (0.99, False)


@settings(deadline=None)
@given(text=st.text(max_size=2000))
def test_what_a_prompt_looks_like_is_from_0_to_1(text):
    assert all(0 <= part <= 1 for part in look_of(text))


def test_a_tally_counts_what_was_taken_for_what():
    tally = Tally.of([("a", "a"), ("a", "b"), ("b", None), (None, None), (None, "a")])
    assert (tally.accuracy, tally.abstention, tally.precision) == (2 / 5, 2 / 5, 1 / 3)
    assert tally.confusion(["a", "b"]) == {
        "a": {"a": 1, "b": 1, "(none)": 0},
        "b": {"a": 0, "b": 0, "(none)": 1},
        "(none)": {"a": 1, "b": 0, "(none)": 1},
    }
    empty = Tally.of([])
    assert (empty.accuracy, empty.abstention, empty.precision) == (None, None, None)
