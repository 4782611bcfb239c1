"""However a request ends (done, aborted, late, refused, failed), it is told once and everything comes back."""

import random
import threading
from typing import Any

import pytest
import torch

from bench.torch_driver import Answer, collect, run
from contracts.engine.wire import Delta, Finished, Image
from tests.backends.engine.torch_engine.tiny_models import CONTEXT, TEXT, VOCABULARY, random_ids, request

KEY = (1).to_bytes(16, "big")


@pytest.mark.parametrize("steps", range(14))
def test_an_abort_in_any_state_returns_blocks_and_seats(llama, make_engine, steps):
    engine = make_engine(llama.path, kv_blocks=32, max_batch_tokens=16, max_sequences=4)
    source = random.Random(steps)
    for number in range(6):
        engine.submit(request(number, random_ids(source, 40), max_tokens=30, n=1 + number % 3))
    answers: dict[bytes, Answer] = {}
    for _ in range(steps):
        collect(answers, engine.step())
    for number in range(6):
        engine.abort(number.to_bytes(16, "big"))
        engine.abort(number.to_bytes(16, "big"))
    collect(answers, engine.step())
    assert not engine.has_work
    assert len(answers) == 6
    for answer in answers.values():
        assert answer.account.finish_reason == "abort"
        assert answer.account.usage.output_tokens == sum(len(one.token_ids) for one in answer.choices.values())


def test_an_aborted_prompt_is_billed_for_what_was_computed(llama, make_engine):
    engine = make_engine(llama.path, max_batch_tokens=16)
    engine.submit(request(1, random_ids(random.Random(1), 60)))
    engine.step()
    engine.step()
    engine.abort(KEY)
    (account,) = engine.step()
    assert isinstance(account, Finished)
    assert (account.usage.input_tokens, account.usage.output_tokens) == (32, 0)


def test_an_abort_of_a_request_not_begun_costs_nothing(engine):
    engine.submit(request(1, [5] * 20))
    engine.abort(KEY)
    (account,) = engine.step()
    assert isinstance(account, Finished)
    assert account.usage.total_tokens == 0
    assert account.queue_ns is None


def test_an_abort_that_overtakes_its_request_is_not_lost(engine, monkeypatch):
    accept = engine._intake.accept

    def slowly(*arguments: Any) -> Any:
        engine.abort(KEY)
        assert engine.step() == []
        return accept(*arguments)

    with monkeypatch.context() as slow:
        slow.setattr(type(engine._intake), "accept", lambda _self, *arguments: slowly(*arguments))
        engine.submit(request(1, [5] * 20))
    answers = run(engine, [])
    assert answers[KEY].account.finish_reason == "abort"
    assert run(engine, [request(1, [5, 6], max_tokens=2)])[KEY].account.finish_reason == "length"


def test_an_abort_of_nobody_is_ignored(engine):
    engine.abort(b"nobody")
    assert engine.step() == []
    assert not engine.has_work


def test_a_deadline_ends_a_request_with_its_name(engine):
    engine.submit(request(1, [5] * 20, deadline_ns=1))
    engine.submit(request(2, [5] * 20, deadline_ns=2**62, max_tokens=3))
    answers = run(engine, [])
    assert answers[KEY].account.error_code == "upstream_timeout"
    assert answers[(2).to_bytes(16, "big")].account.finish_reason == "length"


def test_a_step_that_fails_ends_its_requests_and_no_others(llama, make_engine, monkeypatch):
    engine = make_engine(llama.path, max_sequences=2)
    for number in (1, 2, 3):
        engine.submit(request(number, [5] * 20, max_tokens=4))
    engine.step()

    def fail(_rows: object) -> object:
        raise torch.OutOfMemoryError("no memory")

    with monkeypatch.context() as broken:
        broken.setattr(engine._runner, "execute", fail)
        events = engine.step()
    assert [event.error_code for event in events if isinstance(event, Finished)] == ["engine_failure"] * 2
    assert run(engine, [])[(3).to_bytes(16, "big")].account.finish_reason == "length"


def test_a_request_id_in_use_does_not_disturb_the_one_being_served(engine):
    engine.submit(request(1, [5] * 20, max_tokens=4))
    engine.submit(request(1, [6] * 20, max_tokens=9))
    answers = run(engine, [])
    assert len(answers[KEY].token_ids) == 4
    assert len(run(engine, [request(1, [6] * 20, max_tokens=9)])[KEY].token_ids) == 9


def test_stop_strings_end_the_text_but_every_token_is_counted(llama, engine):
    prompt = llama.tokenizer.encode(TEXT).ids
    bias = {token: 30.0 - 2.0 * place for place, token in enumerate(llama.tokenizer.encode("abc<stop>").ids)}
    options: dict[str, Any] = {"logit_bias": bias, "frequency_penalty": 2.0, "max_tokens": 40}
    plain = run(engine, [request(1, prompt, **options)])[KEY]
    assert len(plain.text) > 6
    for begin in range(len(plain.text) - 3):
        stop = plain.text[begin : begin + 3]
        answer = run(engine, [request(1, prompt, stop=[stop], **options)])[KEY]
        assert answer.text == plain.text[: plain.text.index(stop)]
        assert answer.account.finish_reason == "stop"
        assert answer.account.usage.output_tokens == len(answer.token_ids)
        assert plain.token_ids[: len(answer.token_ids)] == answer.token_ids


def test_deltas_carry_times_and_the_first_one_the_cached_tokens(engine):
    prompt = random_ids(random.Random(1), 40)
    run(engine, [request(2, prompt)])
    engine.submit(request(1, prompt, max_tokens=5, n=2))
    deltas = []
    while engine.has_work:
        deltas += [event for event in engine.step() if isinstance(event, Delta)]
    assert [one.cached_tokens for one in deltas] == [32] + [None] * 9
    times = [time for one in deltas for time in one.times_ns]
    assert times == sorted(times)
    assert [one.finish_reason for one in deltas if one.finish_reason] == ["length", "length"]


def test_requests_may_come_from_many_threads_while_it_steps(engine):
    def ask(base: int) -> None:
        for number in range(10):
            engine.submit(request(base + number, [5, 6, 7, base % VOCABULARY], max_tokens=3))
            if number % 3 == 0:
                engine.abort((base + number).to_bytes(16, "big"))

    threads = [threading.Thread(target=ask, args=(100 * place,)) for place in range(1, 5)]
    for thread in threads:
        thread.start()
    answers: dict[bytes, Answer] = {}
    while any(thread.is_alive() for thread in threads) or engine.has_work:
        collect(answers, engine.step())
    assert len(answers) == 40
    assert {answer.account.finish_reason for answer in answers.values()} <= {"length", "abort"}


BAD = [
    ({"token_ids": []}, "invalid_request", "prompt is empty"),
    ({"token_ids": [5] * CONTEXT}, "context_length_exceeded", f"{CONTEXT} tokens"),
    ({"token_ids": [5], "generated_ids": [5] * (CONTEXT - 1)}, "context_length_exceeded", f"{CONTEXT} tokens"),
    ({"token_ids": [VOCABULARY]}, "token_out_of_range", str(VOCABULARY)),
    ({"token_ids": [-1]}, "token_out_of_range", "-1"),
    ({"generated_ids": [VOCABULARY]}, "token_out_of_range", str(VOCABULARY)),
    ({"logit_bias": {VOCABULARY: 1.0}}, "token_out_of_range", str(VOCABULARY)),
    ({"logit_bias": {5: float("nan")}}, "invalid_request", "logit_bias"),
    ({"stop_token_ids": [99999]}, "token_out_of_range", "99999"),
    ({"adapter": "missing"}, "unknown_adapter", "'missing'"),
    ({"model": "other"}, "model_not_found", "'other'"),
    ({"tokenizer_hash": "ab" * 32}, "tokenizer_mismatch", "tokenizer"),
    ({"template_hash": "ab" * 32}, "tokenizer_mismatch", "template"),
    ({"images": [Image(data=b"x", sha256=b"y")]}, "invalid_request", "images"),
    ({"max_tokens": 0}, "invalid_request", "max_tokens"),
    ({"temperature": -1.0}, "invalid_request", "temperature"),
    ({"temperature": float("nan")}, "invalid_request", "temperature"),
    ({"top_p": 0.0}, "invalid_request", "top_p"),
    ({"min_p": 1.5}, "invalid_request", "min_p"),
    ({"top_k": -1}, "invalid_request", "top_k"),
    ({"n": 0}, "invalid_request", "n is 0"),
    ({"n": 2, "generated_ids": [5]}, "invalid_request", "choices"),
    ({"min_tokens": 17}, "invalid_request", "min_tokens"),
    ({"repetition_penalty": 0.0}, "invalid_request", "repetition_penalty"),
    ({"presence_penalty": 3.0}, "invalid_request", "presence_penalty"),
    ({"logprobs": 500}, "invalid_request", "logprobs"),
    ({"stop": ["x"] * 65}, "invalid_request", "stop"),
]


@pytest.mark.parametrize(("change", "code", "named"), BAD)
def test_bad_input_is_refused_by_name_and_costs_nothing(engine, change, code, named):
    options: dict[str, Any] = {"token_ids": [5, 6, 7], "max_tokens": 16} | change
    account = run(engine, [request(1, **options)])[KEY].account
    assert (account.finish_reason, account.error_code) == ("error", code)
    assert named in account.error_message
    assert account.usage.total_tokens == 0
    assert run(engine, [request(1, [5, 6], max_tokens=2)])[KEY].account.finish_reason == "length"


def test_the_longest_prompt_that_fits_gets_one_token(engine):
    account = run(engine, [request(1, [5] * (CONTEXT - 1), max_tokens=50)])[KEY].account
    assert (account.finish_reason, account.usage.output_tokens) == ("length", 1)
