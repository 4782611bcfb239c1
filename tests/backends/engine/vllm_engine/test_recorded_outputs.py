"""What vLLM 0.25.1 said on an H200, played to the host's code: the contract between the two, without a GPU.

Each line of the recording is a request as the engine passed it on, every output that vLLM gave for it, and what the
host told its gateway of it then. Recorded on 2026-11-21 with the built-in model, bfloat16.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from contracts.engine.wire import Delta, Finished
from contracts.errors import TollkeeperError
from tests.backends.engine.vllm_engine.driving import ask, drive, end, text
from tests.backends.engine.vllm_engine.played_llm import Choice, Output, Score, Times

_LINES = gzip.decompress((Path(__file__).parent / "recorded_outputs.jsonl.gz").read_bytes()).decode().splitlines()
CASES: list[dict[str, Any]] = [json.loads(line) for line in _LINES]
ANSWERS = [case for case in CASES if case["case"] not in ("bad schema", "abort", "deadline")]
END_TOKEN = 2


def output(entry: dict[str, Any]) -> Output:
    queued, scheduled, first, last = entry["times"]
    choices = [
        Choice(
            one["index"],
            one["token_ids"],
            one["finish_reason"],
            one["stop_reason"],
            one["logprobs"]
            and [{int(token): Score(*score) for token, score in scores.items()} for scores in one["logprobs"]],
        )
        for one in entry["outputs"]
    ]
    return Output(choices, entry["finished"], entry["cached"], Times(queued, scheduled, first, last))


def played(case: dict[str, Any], make_engine: Any) -> list[Any]:
    request = case["request"]
    engine, _ = make_engine(
        lambda _: [ValueError(one["text"]) if "error" in one else output(one) for one in case["outputs"]]
    )
    sampling = request["sampling"]
    submit = ask(
        token_ids=[5] * min(request["prompt"], 200),
        max_tokens=sampling["max_tokens"],
        n=sampling["n"],
        temperature=1.0,
        logprobs=sampling["logprobs"],
        stop=case["stop"],
    )
    return drive(engine, submit)


def named(case: dict[str, Any]) -> str:
    return f"{case['case']}, {len(case['outputs'])} outputs"


@pytest.mark.parametrize("case", ANSWERS, ids=named)
def test_a_recorded_answer_is_told_as_it_was_on_the_gpu(case, make_engine, vocabulary):
    events = played(case, make_engine)
    for index, said in case["text"].items():
        assert text(events, int(index)) == said
    reasons = {str(one.index): one.finish_reason for one in events if isinstance(one, Delta) and one.finish_reason}
    assert reasons == case["reasons"]
    finished = end(events)
    assert finished is events[-1] and finished.error_code == ""
    assert finished.queue_ns is not None and finished.prefill_ns is not None
    told = sum(len(one.token_ids) for one in events if isinstance(one, Delta))
    usage = finished.usage
    assert usage.output_text == told and usage.input_text is not None
    if not case["stop"]:  # the tokenizer's own words, without ours in between
        for index in map(int, case["text"]):
            ids = [token for one in events if isinstance(one, Delta) and one.index == index for token in one.token_ids]
            ids = ids[:-1] if ids[-1] == END_TOKEN else ids
            assert vocabulary.tokenizer.decode(ids) == case["text"][str(index)]


@pytest.mark.parametrize("case", ANSWERS, ids=named)
def test_every_token_has_the_time_at_which_vllm_made_it(case, make_engine):
    events = [one for one in played(case, make_engine) if isinstance(one, Delta)]
    recorded = {(one["index"], round(entry["times"][3] * 1e9)) for entry in case["outputs"] for one in entry["outputs"]}
    assert all(len(one.times_ns) == len(one.token_ids) for one in events)
    assert {(one.index, time) for one in events for time in one.times_ns} <= recorded


def test_a_prefix_that_was_cached_is_told_once_and_paid_as_such(make_engine):
    (case,) = [one for one in CASES if one["case"] == "prefix cache again"]
    events = played(case, make_engine)
    assert [one.cached_tokens for one in events if isinstance(one, Delta)][:2] == [304, None]
    usage = end(events).usage
    assert usage.cache_read_text == 200 and usage.input_text == 0, "the prompt here is shorter than that of the GPU"


def test_the_likeliest_tokens_come_with_their_texts(make_engine):
    (case,) = [one for one in CASES if one["case"] == "logprobs"]
    events = [one for one in played(case, make_engine) if isinstance(one, Delta)]
    (score,) = events[-1].logprobs
    assert score.text == " is" and score.logprob <= 0
    assert len(score.top) == 3 and score.top[0][1] == " is"
    assert [value for *_, value in score.top] == sorted((value for *_, value in score.top), reverse=True)


@pytest.mark.parametrize("case", [one for one in CASES if one["case"] == "bad schema"], ids=named)
def test_what_vllm_refuses_was_the_request_s_fault_and_cost_nothing(case, make_engine):
    (finished,) = played(case, make_engine)
    assert isinstance(finished, Finished)
    assert finished.error_code == "invalid_grammar" and finished.error_message.startswith("vLLM refuses the request: ")
    assert finished.usage.input_text == finished.usage.output_text == 0
    assert issubclass(TollkeeperError, Exception) and "Traceback" not in finished.error_message
