"""Greedy answers are transformers' own, token for token, whatever the engine had to do on the way."""

import random

import pytest
import torch

from bench.torch_driver import run
from contracts.engine.wire import Submit
from tests.backends.engine.torch_engine.conftest import MakeEngine
from tests.backends.engine.torch_engine.tiny_models import TinyModel, random_ids, request


def random_batch(source: random.Random, count: int) -> list[Submit]:
    """Return requests of many lengths; half of them begin with a piece of the same text."""
    shared = random_ids(source, 80)
    batch = []
    for number in range(count):
        begin = shared[: source.randrange(80)] if source.random() < 0.5 else []
        prompt = begin + random_ids(source, source.randrange(1, 90))
        batch.append(request(number, prompt, max_tokens=source.randrange(1, 48)))
    return batch


def expected(tiny: TinyModel, batch: list[Submit]) -> dict[bytes, list[int]]:
    return {one.request_id: tiny.generate(one.token_ids, one.sampling.max_tokens) for one in batch}


@pytest.mark.parametrize("seed", [1, 2])
def test_random_batches_with_chunks_hits_and_preemptions_generate_what_transformers_does(tiny, make_engine, seed):
    batch = random_batch(random.Random(seed), 20)
    # 32 blocks are one request's worst case: ten running ones must drive each other out.
    engine = make_engine(tiny.path, kv_blocks=32, max_batch_tokens=24, max_sequences=10)
    answers = run(engine, batch, after_step=lambda _: engine.blocks.check_integrity())
    assert {key: answer.token_ids for key, answer in answers.items()} == expected(tiny, batch)
    assert engine.stats()["preemptions"] > 0
    assert any(answer.cached_tokens for answer in answers.values())
    assert any(answer.account.recompute_tokens for answer in answers.values())
    for one in batch:
        usage = answers[one.request_id].account.usage
        assert usage.input_tokens == len(one.token_ids)
        assert usage.output_tokens == one.sampling.max_tokens


def test_a_second_round_hits_the_cache_and_changes_nothing(tiny, make_engine):
    batch = random_batch(random.Random(3), 8)
    engine = make_engine(tiny.path)
    first = run(engine, batch)
    second = run(engine, batch)
    for one in batch:
        key = one.request_id
        assert second[key].token_ids == first[key].token_ids
        assert second[key].cached_tokens == (len(one.token_ids) - 1) // 16 * 16


def test_a_continued_answer_goes_on_where_it_was(tiny, make_engine):
    prompt = random_ids(random.Random(4), 37)
    whole = tiny.generate(prompt, 40)
    engine = make_engine(tiny.path, max_batch_tokens=16)
    parts = [request(given, prompt, max_tokens=40, generated_ids=whole[:given]) for given in (1, 11, 39)]
    answers = run(engine, parts)
    for one in parts:
        given = len(one.generated_ids)
        assert answers[one.request_id].token_ids == whole[given:]
        assert answers[one.request_id].account.usage.output_tokens == 40 - given
        assert answers[one.request_id].account.finish_reason == "length"


def test_an_answer_that_was_complete_already_ends_at_once(engine):
    answers = run(engine, [request(1, [5, 6, 7], max_tokens=3, generated_ids=[8, 9, 10])])
    account = answers[(1).to_bytes(16, "big")].account
    assert (account.finish_reason, account.usage.output_tokens) == ("length", 0)


def test_an_answer_grows_through_every_size_of_the_decode_buffer_to_the_end_of_the_context(tiny, make_engine):
    prompt = random_ids(random.Random(5), 100)
    engine = make_engine(tiny.path)
    others = [request(number, random_ids(random.Random(number), 20), max_tokens=60) for number in (1, 2, 3)]
    answers = run(engine, [request(9, prompt, max_tokens=10_000), *others])
    assert answers[(9).to_bytes(16, "big")].token_ids == tiny.generate(prompt, 412)
    for one in others:
        assert answers[one.request_id].token_ids == tiny.generate(one.token_ids, 60)


def test_answers_are_the_same_without_a_decode_buffer(tiny, make_engine, monkeypatch):
    batch = random_batch(random.Random(6), 6)
    engine = make_engine(tiny.path)
    monkeypatch.setattr(engine._buffer, "_max_bytes", 0)
    answers = run(engine, batch)
    assert {key: answer.token_ids for key, answer in answers.items()} == expected(tiny, batch)


def test_a_decode_buffer_that_is_too_small_for_all_serves_some(tiny, make_engine, monkeypatch):
    batch = [request(number, random_ids(random.Random(number), 110), max_tokens=40) for number in range(8)]
    engine = make_engine(tiny.path)
    row_bytes = 128 * engine._buffer._pool.shape.token_bytes
    monkeypatch.setattr(engine._buffer, "_max_bytes", 5 * row_bytes)
    answers = run(engine, batch)
    assert {key: answer.token_ids for key, answer in answers.items()} == expected(tiny, batch)


def test_all_choices_of_a_greedy_request_are_alike(tiny, make_engine):
    prompt = random_ids(random.Random(7), 45)
    engine = make_engine(tiny.path, max_sequences=4)
    # Six choices on four seats: some are forked at once, the others queue.
    asked = [request(1, prompt, max_tokens=20, n=6)]
    answers = run(engine, asked, after_step=lambda _: engine.blocks.check_integrity())
    answer = answers[(1).to_bytes(16, "big")]
    whole = tiny.generate(prompt, 20)
    assert [answer.choices[index].token_ids for index in range(6)] == [whole] * 6
    assert answer.account.usage.input_tokens == 45
    assert answer.account.usage.output_tokens == 120


def test_log_probabilities_are_the_models_own(tiny, make_engine):
    prompt = random_ids(random.Random(8), 21)
    answers = run(make_engine(tiny.path), [request(1, prompt, max_tokens=8, logprobs=3, temperature=1.7, seed=5)])
    answer = answers[(1).to_bytes(16, "big")]
    reference = torch.log_softmax(tiny.logits(prompt + answer.token_ids), -1)
    assert len(answer.choices[0].logprobs) == 8
    for place, scored in enumerate(answer.choices[0].logprobs):
        line = reference[len(prompt) - 1 + place]
        assert scored.logprob == pytest.approx(float(line[scored.token_id]), abs=1e-3)
        values, indices = line.topk(3)
        assert [token for token, _, _ in scored.top] == indices.tolist()
        assert [value for _, _, value in scored.top] == pytest.approx(values.tolist(), abs=1e-3)


def test_the_tenants_salt_keeps_caches_apart(engine):
    prompt = random_ids(random.Random(9), 64)
    run(engine, [request(1, prompt, cache_salt="a", tenant="acme")])
    same = run(engine, [request(2, prompt, cache_salt="a", tenant="acme")])
    other = run(engine, [request(3, prompt, cache_salt="b", tenant="beta")])
    assert same[(2).to_bytes(16, "big")].cached_tokens == 48
    assert other[(3).to_bytes(16, "big")].cached_tokens == 0


def test_bfloat16_serves_too(llama: TinyModel, make_engine: MakeEngine):
    prompt = random_ids(random.Random(10), 30)
    answers = run(make_engine(llama.path, dtype="bfloat16"), [request(1, prompt, max_tokens=8), request(2, prompt[:9])])
    assert answers[(1).to_bytes(16, "big")].account.usage.output_tokens == 8
