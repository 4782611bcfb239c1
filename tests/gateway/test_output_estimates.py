"""Learned output lengths: the quantile against the exact one, cuts, habits that change, and what stands in for it."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.limits.estimates.output_estimates import (
    DEFAULT_TOKENS,
    ENOUGH_ANSWERS,
    MEMORY_ANSWERS,
    RELATIVE_ERROR,
    OutputEstimator,
)

FOR_EVER = 10**12  # answers: as good as no forgetting


def learn(estimator: OutputEstimator, lengths, tenant: str = "acme", reason: str = "stop") -> None:
    for tokens in lengths:
        estimator.learn(tenant, "m", tokens, reason)


def exact(lengths: list[int], quantile: float) -> int:
    return sorted(lengths)[math.ceil(quantile * len(lengths) - 1e-9) - 1]


def heavy_tailed(chance: random.Random, count: int, median: float = 200.0, spread: float = 1.5) -> list[int]:
    return [min(max(1, round(chance.lognormvariate(math.log(median), spread))), 10**6) for _ in range(count)]


# Counts at which the estimate has just been brought up to date: the 20th answer, and every 16th after it.
UP_TO_DATE = st.integers(0, 30).map(lambda more: ENOUGH_ANSWERS + 16 * more)


@given(st.integers().map(random.Random), UP_TO_DATE, st.sampled_from([0.5, 0.9, 0.95]), st.floats(0.1, 3))
def test_the_quantile_is_the_exact_one_or_at_most_five_per_cent_above(chance, count, quantile, spread):
    lengths = heavy_tailed(chance, count, spread=spread)
    estimator = OutputEstimator(quantile, memory=FOR_EVER)
    learn(estimator, lengths)
    wanted = exact(lengths, quantile)
    assert wanted <= estimator.estimate("acme", "m") <= wanted * (1 + RELATIVE_ERROR)


@given(st.lists(st.integers(0, 40), min_size=ENOUGH_ANSWERS, max_size=ENOUGH_ANSWERS))
def test_short_answers_are_told_exactly(lengths):
    estimator = OutputEstimator(memory=FOR_EVER)
    learn(estimator, lengths)
    assert estimator.estimate("acme", "m") == max(exact(lengths, 0.9), 1)


@pytest.mark.parametrize(("before", "after"), [(20.0, 2000.0), (2000.0, 20.0)])
@pytest.mark.parametrize("seed", range(3))
def test_a_change_of_habits_is_followed_within_three_memories(before, after, seed):
    chance = random.Random(seed)
    estimator = OutputEstimator()
    learn(estimator, heavy_tailed(chance, 2000, before, 1.0))
    new = heavy_tailed(chance, 3 * MEMORY_ANSWERS, after, 1.0)
    learn(estimator, new)
    reference = heavy_tailed(chance, 20_000, after, 1.0)
    assert exact(reference, 0.82) <= estimator.estimate("acme", "m") <= exact(reference, 0.97)


def test_a_turn_to_longer_answers_shows_within_sixty():
    estimator = OutputEstimator()
    learn(estimator, [100] * 2000)
    learn(estimator, [1000] * 60)
    assert estimator.estimate("acme", "m") >= 1000


def test_millions_of_answers_lose_no_accuracy():
    estimator = OutputEstimator(memory=2)  # its weights are rescaled every 28 answers
    learn(estimator, [7, 700] * 5000)
    assert 700 <= estimator.estimate("acme", "m") <= 735


@pytest.mark.parametrize("seed", range(3))
def test_answers_that_limits_cut_do_not_make_the_estimate_short(seed):
    chance = random.Random(seed)
    lengths = heavy_tailed(chance, 4000, 200, 1.0)
    limits = heavy_tailed(chance, 4000, 400, 1.5)
    estimator = OutputEstimator(memory=FOR_EVER)
    for tokens, limit in zip(lengths, limits, strict=True):
        estimator.learn("acme", "m", min(tokens, limit), "length" if limit < tokens else "stop")
    found = estimator.estimate("acme", "m")
    assert exact(lengths, 0.87) <= found <= exact(lengths, 0.93)
    # What leaving the cut ones out would have said:
    whole = [tokens for tokens, limit in zip(lengths, limits, strict=True) if tokens <= limit]
    assert exact(whole, 0.9) < exact(lengths, 0.87)


def test_where_every_answer_is_cut_the_estimate_is_no_less_than_the_cut():
    estimator = OutputEstimator()
    learn(estimator, [2000] * 50, reason="length")
    assert 2000 <= estimator.estimate("acme", "m") <= 2100
    short = OutputEstimator()
    learn(short, [16] * 50, reason="length")
    assert short.estimate("acme", "m") == DEFAULT_TOKENS


@pytest.mark.parametrize("reason", ["", "abort", "error", "length"])
def test_an_answer_that_did_not_end_by_itself_counts_as_cut(reason):
    estimator = OutputEstimator(memory=FOR_EVER)
    learn(estimator, [100] * 40)
    learn(estimator, [10] * 40, reason=reason)
    assert 100 <= estimator.estimate("acme", "m") <= 105
    learn(estimator, [0] * 1000, reason=reason)
    assert 100 <= estimator.estimate("acme", "m") <= 105


@pytest.mark.parametrize("reason", ["stop", "tool_calls", "function_call", "content_filter"])
def test_an_answer_that_ended_by_itself_is_as_long_as_it_is(reason):
    estimator = OutputEstimator()
    learn(estimator, [10] * 36, reason=reason)
    assert estimator.estimate("acme", "m") == 10


@pytest.mark.parametrize("answers", [ENOUGH_ANSWERS - 1, ENOUGH_ANSWERS, ENOUGH_ANSWERS + 1])
def test_a_tenants_own_quantile_holds_from_the_twentieth_answer(answers):
    estimator = OutputEstimator(default_tokens=300, memory=FOR_EVER)
    learn(estimator, [10] * 1000, tenant="other")
    learn(estimator, [40] * answers)
    assert estimator.estimate("acme", "m") == (40 if answers >= ENOUGH_ANSWERS else 10)


@pytest.mark.parametrize("answers", [0, ENOUGH_ANSWERS - 1, ENOUGH_ANSWERS, ENOUGH_ANSWERS + 1])
def test_before_that_a_model_is_told_the_default(answers):
    estimator = OutputEstimator(default_tokens=300)
    for number in range(answers):
        estimator.learn(f"tenant{number}", "m", 10, "stop")
    assert estimator.estimate("new", "m") == (10 if answers >= ENOUGH_ANSWERS else 300)
    assert estimator.estimate("new", "other") == 300


@pytest.mark.parametrize(("max_tokens", "each"), [(None, 40), (41, 40), (40, 40), (39, 39), (1, 1)])
@pytest.mark.parametrize("choices", [1, 3])
def test_an_estimate_is_capped_by_max_tokens_and_times_the_choices(max_tokens, each, choices):
    estimator = OutputEstimator()
    learn(estimator, [40] * ENOUGH_ANSWERS)
    assert estimator.estimate("acme", "m", max_tokens, choices) == each * choices


def test_several_choices_are_learned_by_their_mean():
    estimator = OutputEstimator()
    for _ in range(ENOUGH_ANSWERS):
        estimator.learn("acme", "m", 31, "stop", choices=4)
    assert estimator.estimate("acme", "m") == 8


def test_pairs_are_bounded_and_the_least_recently_learned_go_first():
    estimator = OutputEstimator(max_pairs=3)
    for tenant in ("a", "b", "a", "c"):
        learn(estimator, [40] * ENOUGH_ANSWERS, tenant=tenant)
    assert len(estimator) == 3
    learn(estimator, [10] * 2000, tenant="c")
    assert estimator.estimate("a", "m") == 40 and estimator.estimate("b", "m") == 10


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.integers(-5, 2**40), st.sampled_from(["stop", "length", ""]), st.integers(0, 130))),
    st.integers(1, 2**31),
    st.integers(1, 128),
)
def test_whatever_is_learned_an_estimate_is_positive_and_within_its_cap(answers, max_tokens, choices):
    estimator = OutputEstimator()
    for tokens, reason, count in answers * 10:
        estimator.learn("acme", "m", tokens, reason, count)
    assert 1 <= estimator.estimate("acme", "m", max_tokens, choices) <= max_tokens * choices


@pytest.mark.parametrize("quantile", [0.0, 1.0, -0.1, 90.0])
def test_a_quantile_that_is_none_is_refused(quantile):
    with pytest.raises(ValueError, match="between 0 and 1"):
        OutputEstimator(quantile)
