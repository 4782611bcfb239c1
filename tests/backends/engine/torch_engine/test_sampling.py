"""Tokens are drawn from the distribution that was asked for, reproducibly, no matter who else is in the batch."""

import random
from typing import Any

import pytest
import torch

from backends.engine.torch_engine.sampler import _keep_top, choose
from backends.engine.torch_engine.sampling_state import SamplingState
from bench.torch_driver import run
from contracts.engine.wire import Sampling
from tests.backends.engine.torch_engine.tiny_models import END_ID, VOCABULARY, random_ids, request

LOGITS = torch.tensor([2.0, 1.0, 0.5, 0.0, -1.0, -3.0])


def state(prompt: tuple[int, ...] = (), given: tuple[int, ...] = (), index: int = 0, **options: Any) -> SamplingState:
    sampling = Sampling(**({"max_tokens": 10} | options))
    return SamplingState(sampling, index=index, prompt=prompt, given=given, end_ids=[5], vocabulary=len(LOGITS))


def draw(one: SamplingState, logits: torch.Tensor = LOGITS) -> int:
    return choose(logits.clone()[None], [one], [None]).token_ids[0]


def frequencies(count: int = 4000, **options: Any) -> list[float]:
    states = [state(seed=seed, **options) for seed in range(count)]
    drawn = choose(LOGITS.repeat(count, 1), states, [None] * count).token_ids
    return [drawn.count(token) / count for token in range(len(LOGITS))]


def close(found: list[float], expected: torch.Tensor) -> bool:
    return all(abs(one - float(other)) < 0.03 for one, other in zip(found, expected, strict=True))


def test_temperature_scales_the_distribution():
    assert close(frequencies(temperature=1.0), torch.softmax(LOGITS, -1))
    assert close(frequencies(temperature=2.0), torch.softmax(LOGITS / 2, -1))
    assert frequencies(200, temperature=0.0) == [1.0, 0, 0, 0, 0, 0]


def test_top_k_keeps_exactly_k():
    expected = torch.softmax(LOGITS[:2], -1)
    assert close(frequencies(top_k=2), torch.cat([expected, torch.zeros(4)]))
    assert frequencies(200, top_k=1)[0] == 1.0


def test_top_p_keeps_the_smallest_set_that_reaches_it():
    probabilities = torch.softmax(LOGITS, -1)
    first = float(probabilities[0])
    assert frequencies(500, top_p=first - 0.01)[0] == 1.0
    found = frequencies(500, top_p=first + 0.01)
    assert found[1] > 0
    assert found[2:] == [0, 0, 0, 0]


@pytest.mark.parametrize("spread", [0.1, 30.0])
@pytest.mark.parametrize(("top_k", "top_p"), [(0, 0.3), (0, 0.999), (700, 0.9), (5, 0.5), (300, 1.0)])
@pytest.mark.parametrize("sorted_whole", [0, 16_384])
def test_a_large_vocabulary_is_cut_as_by_definition(spread, top_k, top_p, sorted_whole, monkeypatch):
    monkeypatch.setattr("backends.engine.torch_engine.sampler._SORTED_WHOLE", sorted_whole)
    logits = torch.randn(1, 1000, generator=torch.Generator().manual_seed(1)) * spread
    kept, order = _keep_top(torch.softmax(logits, -1), [state(top_k=top_k, top_p=top_p)])
    best_first = torch.softmax(logits[0], -1).sort(descending=True)
    within = best_first.values[: top_k or 1000]
    before = within.cumsum(-1) - within
    expected = within[(before < top_p * within.sum()) | (torch.arange(len(within)) == 0)] if top_p < 1 else within
    assert int((kept > 0).sum()) == pytest.approx(int((expected > 0).sum()), abs=1)  # rounding of the sum
    places = order[0, : len(expected)]
    assert torch.equal(torch.softmax(logits[0], -1)[places], best_first.values[: len(expected)])


def test_min_p_drops_what_is_much_less_likely_than_the_best():
    found = frequencies(1000, min_p=0.3)
    assert found[1] > 0
    assert found[2:] == [0, 0, 0, 0]


def test_a_row_with_filters_does_not_change_its_neighbour():
    alone = [draw(state(seed=seed)) for seed in range(50)]
    states = [one for seed in range(50) for one in (state(seed=seed), state(seed=seed, top_k=2, temperature=0.3))]
    together = choose(LOGITS.repeat(100, 1), states, [None] * 100).token_ids[::2]
    assert together == alone


def test_penalties_follow_their_formulas():
    one = state((0, 1), (1, 2, 2), presence_penalty=0.5, frequency_penalty=0.25, repetition_penalty=2.0, logprobs=0)
    expected = LOGITS.clone()
    for token in (0, 1, 2):  # prompt and output
        expected[token] = expected[token] / 2 if expected[token] > 0 else expected[token] * 2
    expected[1] -= 0.5 + 0.25
    expected[2] -= 0.5 + 2 * 0.25
    changed = LOGITS.clone()[None]
    choose(changed, [one], [None])
    assert torch.allclose(changed[0], expected)


def test_a_penalty_counts_tokens_as_they_come():
    one = state(temperature=0.0, frequency_penalty=2.0)
    tokens = []
    for _ in range(4):
        tokens.append(draw(one))
        one.note(tokens[-1])
    assert tokens == [0, 1, 2, 0] or tokens == [0, 1, 2, 3]
    assert tokens[0] != tokens[1]


def test_logit_bias_forces_and_bans():
    assert draw(state(temperature=0.0, logit_bias={4: 100.0})) == 4
    assert draw(state(temperature=0.0, logit_bias={0: -100.0})) == 1


def test_an_end_before_the_minimum_is_not_drawn():
    logits = torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0, 9.0])
    one = state(temperature=0.0, min_tokens=2)
    assert draw(one, logits) == 1
    one.note(1)
    assert draw(one, logits) == 1
    one.note(1)
    assert draw(one, logits) == 5


def test_a_row_for_which_nothing_is_left_still_gets_a_token():
    logits = torch.full((6,), -torch.inf)
    logits[3] = 0.0
    assert all(draw(state(seed=seed, min_p=1.0, top_p=0.01), logits) == 3 for seed in range(20))


def test_scores_are_the_models_own_before_temperature_and_bias():
    chosen = choose(LOGITS.clone()[None], [state(temperature=0.0, logit_bias={4: 100.0}, logprobs=2)], [None])
    score = chosen.scores[0]
    expected = torch.log_softmax(LOGITS, -1)
    assert score is not None
    assert score.logprob == pytest.approx(float(expected[4]))
    assert [token for token, _ in score.top] == [0, 1]


def test_a_seed_gives_the_same_answer_whoever_else_is_served(llama, make_engine):
    source = random.Random(1)
    prompt = random_ids(source, 30)
    seeded: dict[str, Any] = {"temperature": 1.3, "seed": 42, "max_tokens": 24}
    key = (1).to_bytes(16, "big")
    alone = run(make_engine(llama.path), [request(1, prompt, **seeded)])[key].token_ids
    others = [request(number, random_ids(source, 60), temperature=1.0, max_tokens=40) for number in range(2, 9)]
    crowded = make_engine(llama.path, kv_blocks=32, max_batch_tokens=16, max_sequences=8)
    answers = run(crowded, [*others, request(1, prompt, priority=1, **seeded)])
    assert crowded.stats()["preemptions"] or crowded.stats()["steps"]
    assert answers[key].token_ids == alone
    assert run(make_engine(llama.path), [request(1, prompt, **(seeded | {"seed": 43}))])[key].token_ids != alone


def test_a_seeded_answer_continued_elsewhere_is_the_same_answer(llama, make_engine):
    prompt = random_ids(random.Random(2), 30)
    seeded: dict[str, Any] = {"temperature": 1.3, "seed": 42, "max_tokens": 24}
    key = (1).to_bytes(16, "big")
    whole = run(make_engine(llama.path), [request(1, prompt, **seeded)])[key].token_ids
    rest = run(make_engine(llama.path), [request(1, prompt, generated_ids=whole[:10], **seeded)])[key].token_ids
    assert whole[:10] + rest == whole


def test_choices_of_a_seeded_request_differ_and_reproduce(llama, make_engine):
    prompt = random_ids(random.Random(3), 20)
    made = []
    for seats in (16, 2):  # forked at once, or queued
        engine = make_engine(llama.path, max_sequences=seats)
        answer = run(engine, [request(1, prompt, temperature=1.5, seed=7, n=4)])[(1).to_bytes(16, "big")]
        made.append([tuple(answer.choices[index].token_ids) for index in range(4)])
    assert made[0] == made[1]
    assert len(set(made[0])) == 4


def test_two_requests_without_a_seed_differ(engine):
    prompt = random_ids(random.Random(4), 20)
    answers = run(engine, [request(number, prompt, temperature=1.5) for number in (1, 2)])
    first, second = answers.values()
    assert first.token_ids != second.token_ids


@pytest.mark.parametrize("minimum", [0, 5, 12])
def test_ignore_eos_and_min_tokens_and_stop_tokens_end_where_they_say(engine, minimum):
    # The end token is by far the likeliest.
    options: dict[str, Any] = {"logit_bias": {END_ID: 50.0}, "max_tokens": 12, "ignore_eos": False}
    answer = run(engine, [request(1, [9, 8, 7], min_tokens=minimum, **options)])[(1).to_bytes(16, "big")]
    expected = 12 if minimum == 12 else minimum + 1
    assert len(answer.token_ids) == expected
    assert answer.account.finish_reason == ("length" if minimum == 12 else "stop")
    forced = run(engine, [request(2, [9, 8, 7], **(options | {"ignore_eos": True}))])[(2).to_bytes(16, "big")]
    assert forced.token_ids == [END_ID] * 12
    options["logit_bias"] = {VOCABULARY - 1: 50.0}
    stopped = run(engine, [request(3, [9], stop_token_ids=[VOCABULARY - 1], **options)])[(3).to_bytes(16, "big")]
    assert (stopped.token_ids, stopped.text) == ([VOCABULARY - 1], "")
