"""The whole engine on a GPU, with vLLM itself: what the played one of the other tests stands for."""

import importlib.util
import json
import shutil
import time

import pytest

from backends.engine.base import ModelOrder
from backends.engine.settings import BUILTIN_PATH, EngineHostSettings
from contracts.engine.wire import Grammar
from contracts.errors import ConfigurationError
from tests.backends.engine.vllm_engine.driving import ask, deltas, drive, end, rest, text

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        shutil.which("nvidia-smi") is None or importlib.util.find_spec("vllm") is None, reason="needs a GPU and vLLM"
    ),
]

WORDS = "--enforce-eager --max-model-len 2048 --gpu-memory-utilization 0.2 --max-num-seqs 16 --enable-sleep-mode"
ORDER = ModelOrder("m", str(BUILTIN_PATH), engine="e/1")


def build(words: str = WORDS, order: ModelOrder = ORDER):
    from backends.engine.vllm_builder import build as build_vllm  # vLLM is imported in there

    return build_vllm(EngineHostSettings(engine_kind="vllm", engine_vllm_arguments=words), order, BUILTIN_PATH)


@pytest.fixture(scope="module")
def engine():
    made = build()
    made.warm_up()
    yield made
    made.close()


def test_greedy_answers_repeat_and_are_measured(engine):
    first, second = (drive(engine, ask(number, max_tokens=24, temperature=0.0)) for number in (1, 2))
    assert text(first) == text(second) != ""
    share = end(second).gpu
    assert share is not None and share.decode_ns > 0 and share.method == "steptime-as/1"
    times = [time for one in deltas(second) for time in one.times_ns]
    assert times == sorted(times) and times[-1] <= time.monotonic_ns()


def test_a_schema_holds(engine):
    schema = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 9}}, "required": ["a"]}
    grammar = Grammar(kind="json_schema", text=json.dumps(schema | {"additionalProperties": False}))
    assert json.loads(text(drive(engine, ask(3, max_tokens=40, temperature=0.0, grammar=grammar))))["a"] <= 9


def test_a_prefix_is_cached_within_a_tenant_and_not_across(engine):
    prompt = list(range(100, 420))
    cached = [
        deltas(drive(engine, ask(number, prompt, max_tokens=1, temperature=0.0, cache_salt=salt)))[0].cached_tokens
        for number, salt in ((4, "a"), (5, "a"), (6, "b"))
    ]
    assert cached == [0, 304, 0]


def test_an_abort_frees_its_place(engine):
    engine.submit(ask(7, max_tokens=1500, ignore_eos=True))
    engine.step()
    engine.abort(ask(7).request_id)
    assert end(rest(engine)).finish_reason == "abort" and engine.stats()["requests_at_vllm"] == 0


def test_a_continuation_says_what_the_whole_answer_says(engine):
    whole = [token for one in deltas(drive(engine, ask(8, max_tokens=20, temperature=0.0))) for token in one.token_ids]
    rest_of_it = deltas(drive(engine, ask(9, max_tokens=20, temperature=0.0, generated_ids=whole[:8])))
    assert whole[8:] == [token for one in rest_of_it for token in one.token_ids]


def test_it_sleeps_and_answers_as_before(engine):
    before = text(drive(engine, ask(10, max_tokens=16, temperature=0.0)))
    for level in (1, 2):
        engine.sleep(level)
        engine.wake()
        assert text(drive(engine, ask(10 + level, max_tokens=16, temperature=0.0))) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [("--no-such-thing 3", "unrecognized arguments"), ("--max-model-len 999999", "max_model_len")],
)
def test_what_vllm_refuses_is_told_in_its_words(words, message):
    with pytest.raises(ConfigurationError, match=message):
        build(words)
