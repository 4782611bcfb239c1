"""No sampling value and no logits end more than the one request they belong to."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.engine.torch_engine.engine import TorchEngine
from backends.engine.torch_engine.sampler import NO_TOKEN, choose
from backends.engine.torch_engine.sampling_state import SamplingState
from backends.engine.torch_engine.settings import EngineSettings
from bench.torch_driver import run
from contracts.engine.wire import Finished, Grammar, Sampling
from contracts.errors import Unavailable
from tests.backends.engine.torch_engine.tiny_models import TinyModel, request

KEY, OTHER = (1).to_bytes(16, "big"), (2).to_bytes(16, "big")
EXTREMES = [0.0, -0.0, 1e-300, 5e-324, 1e-45, 1e-38, 1e-37, 1e-6, 1e-5, 0.01, 1.0, 2.0, 100.0, 1e38, 1e300,
            math.inf, -math.inf, math.nan, -1e-300, -2.0, -100.0]  # fmt: skip
NUMBER = st.one_of(st.sampled_from(EXTREMES), st.floats())
WHOLE = st.sampled_from([0, 1, 2, 2**31 - 1, 2**31, 2**63 - 1, 2**63, -1, -(2**63) - 1])
FIELDS = {
    "temperature": NUMBER,
    "top_p": NUMBER,
    "min_p": NUMBER,
    "presence_penalty": NUMBER,
    "frequency_penalty": NUMBER,
    "repetition_penalty": NUMBER,
    "top_k": WHOLE,
    "seed": WHOLE,
    "min_tokens": WHOLE,
    "logit_bias": st.dictionaries(st.integers(0, 20), NUMBER, max_size=3),
    "logprobs": st.sampled_from([None, 0, 5]),
}


@pytest.fixture(scope="module")
def shared(llama: TinyModel) -> Iterator[TorchEngine]:
    engine = TorchEngine(EngineSettings(path=llama.path, model="tiny", kv_blocks=128, max_sequences=16, threads=1))
    yield engine
    engine.close()
    engine.blocks.check_integrity()


@settings(max_examples=150, deadline=None)
@given(options=st.fixed_dictionaries({}, optional=FIELDS))
def test_any_sampling_value_is_refused_by_name_or_served_and_disturbs_nobody(
    shared: TorchEngine, options: dict[str, Any]
) -> None:
    strange = request(1, [5, 6, 7], **({"max_tokens": 4} | options))
    answers = run(shared, [strange, request(2, [5, 6, 7], temperature=1.0, seed=4, max_tokens=4)])
    assert answers[OTHER].account.finish_reason == "length"
    account = answers[KEY].account
    if account.finish_reason == "error":
        assert account.error_code == "invalid_request"
        assert any(name in account.error_message for name in options), account.error_message
        assert "must be within" in account.error_message
    else:
        assert account.finish_reason == "length"


@pytest.mark.parametrize(
    ("field", "value", "is_taken"),
    [
        ("repetition_penalty", 0.0099, False),
        ("repetition_penalty", 0.01, True),
        ("repetition_penalty", 100.0, True),
        ("repetition_penalty", 100.1, False),
        ("repetition_penalty", 1e-300, False),
        ("temperature", 1e-300, True),
        ("temperature", 100.0, True),
        ("temperature", 100.1, False),
        ("top_p", 1e-7, False),
        ("top_p", 1e-6, True),
        ("logit_bias", {5: 100.0}, True),
        ("logit_bias", {5: 100.1}, False),
        ("logit_bias", {5: -1e300}, False),
        ("top_k", 2**31 - 1, True),
        ("top_k", 2**31, False),
        ("seed", 2**63 - 1, True),
        ("seed", 2**63, False),
        ("frequency_penalty", 2.0, True),
        ("frequency_penalty", 2.1, False),
    ],
)
def test_the_limits_of_each_field(shared: TorchEngine, field: str, value: object, is_taken: bool) -> None:
    account = run(shared, [request(1, [5, 6], max_tokens=3, **{field: value})])[KEY].account
    assert account.finish_reason == ("length" if is_taken else "error")
    assert is_taken or (field in account.error_message and "must be within" in account.error_message)


LOGITS = st.lists(
    st.one_of(st.floats(width=32), st.sampled_from([0.0, 3e38, -3e38, math.inf, -math.inf, math.nan])),
    min_size=8, max_size=8,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(
    row=LOGITS,
    options=st.fixed_dictionaries({}, optional={name: FIELDS[name] for name in FIELDS if name != "logit_bias"}),
)
def test_a_row_of_any_logits_gets_a_token_or_none_and_changes_no_other_row(
    row: list[float], options: dict[str, Any]
) -> None:
    """Values that no request may have as well: the sampler holds without the check before it."""

    def state(**fields: Any) -> SamplingState:
        sampling = Sampling(max_tokens=4, **fields)
        return SamplingState(sampling, index=0, prompt=[1], given=[2], end_ids=[0], vocabulary=8)

    plain = torch.tensor([0.5, 1.0, 0.2, 0.0, 2.0, 1.5, -1.0, 0.0])
    neighbour = {"seed": 9, "temperature": 0.9, "top_p": 0.9}
    alone = choose(plain.clone()[None], [state(**neighbour)], [None]).token_ids
    logits = torch.stack([torch.tensor(row), plain])
    chosen = choose(logits, [state(**options), state(**neighbour)], [None, None])
    assert chosen.token_ids[1:] == alone
    assert chosen.token_ids[0] == NO_TOKEN or 0 <= chosen.token_ids[0] < 8
    if "repetition_penalty" not in options and any(
        math.isnan(one) or one == math.inf for one in row[1:]
    ):  # row[0] may be masked
        assert chosen.token_ids[0] == NO_TOKEN


def test_a_request_whose_logits_are_not_finite_ends_alone(shared: TorchEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    execute = shared._runner.execute

    def broken(rows: Any) -> Any:
        sampling, logits = execute(rows)
        logits = logits.clone()
        for place, row in enumerate(sampling):
            if row.sequence.request.submit.request_id == KEY:
                logits[place] = torch.nan
        return sampling, logits

    monkeypatch.setattr(shared._runner, "execute", broken)
    answers = run(shared, [request(1, [5, 6, 7], n=2, temperature=1.0), request(2, [5, 6, 7], max_tokens=4)])
    assert answers[KEY].account.error_code == "engine_failure"
    assert "finite" in answers[KEY].account.error_message
    assert answers[OTHER].account.finish_reason == "length"
    stats = shared.stats()
    assert (stats["running"], stats["kv_blocks_held"]) == (0, 0)


@pytest.mark.parametrize("error", [IndexError("of a list"), ZeroDivisionError(), AssertionError(), KeyError(5)])
def test_any_error_in_a_step_ends_its_requests_and_not_the_engine(
    shared: TorchEngine, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as broken:
        broken.setattr("backends.engine.torch_engine.engine.choose", fail)
        answers = run(shared, [request(1, [5, 6, 7], n=3), request(2, [5, 6])])
    assert {one.account.error_code for one in answers.values()} == {"engine_failure"}
    assert run(shared, [request(1, [5, 6, 7], max_tokens=2)])[KEY].account.finish_reason == "length"


def test_an_error_in_one_answers_text_ends_that_request_alone(
    shared: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance = type(shared._output).advance

    def fail(maker: Any, sequence: Any, *rest: Any) -> Any:
        if sequence.request.submit.request_id == KEY:
            raise IndexError("of a parser")
        return advance(maker, sequence, *rest)

    monkeypatch.setattr(type(shared._output), "advance", fail)
    answers = run(shared, [request(1, [5, 6, 7], n=2), request(2, [5, 6], max_tokens=3)])
    assert answers[KEY].account.error_code == "engine_failure"
    assert answers[OTHER].account.finish_reason == "length"


def test_an_engine_whose_every_step_fails_ends_after_eight(llama: TinyModel, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = TorchEngine(EngineSettings(path=llama.path, model="tiny", kv_blocks=128, max_sequences=16, threads=1))

    def fail(*_: object) -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(engine._runner, "execute", fail)
    for number in range(1, 8):
        engine.submit(request(number, [5, 6]))
        (account,) = engine.step()
        assert isinstance(account, Finished) and account.error_code == "engine_failure"
    engine.submit(request(8, [5, 6]))
    with pytest.raises(Unavailable, match="8 steps in a row failed"):
        engine.step()
    engine.close()


def test_choices_that_leave_their_grammar_in_the_same_step_end_their_request_once(shared: TorchEngine) -> None:
    fields = ",".join(f'"p{number}":{{}}' for number in range(1000))
    grammar = Grammar("json_schema", f'{{"type":"object","properties":{{{fields}}}}}')
    answers = run(shared, [request(1, [5, 6], grammar=grammar, n=3, ignore_eos=False, temperature=1.0)])
    assert answers[KEY].account.error_code == "invalid_grammar"
    assert run(shared, [request(1, [5, 6, 7], max_tokens=2)])[KEY].account.finish_reason == "length"
