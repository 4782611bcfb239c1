"""The scripted model: what it plays is what a test can count by hand."""

import json
from dataclasses import replace

import pytest

from backends.llm.scripted import ScriptedTarget
from contracts.errors import ConfigurationError, InvalidRequest, UpstreamBroken, UpstreamError, UpstreamUnreachable
from contracts.metering.usage import Usage
from contracts.serving.configuration import TargetSpec


def target(**script) -> ScriptedTarget:
    return ScriptedTarget(TargetSpec("s", "p", "scripted", settings={"script": script}), str)


def body(content: object = "one two", **fields) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": content}], **fields}).encode()


@pytest.mark.parametrize("tokens", [0, 1, 2, 3, 4, 5, 6, 7, 100])
@pytest.mark.parametrize("burst", [1, 2, 5])
async def test_it_makes_exactly_as_many_tokens_as_it_is_told_to(call_of, sink, tokens, burst):
    result = await target(reply="a b c", tokens=tokens, burst=burst).call(call_of(body()), sink)
    assert sink.tokens == tokens == result.usage.output_text == result.engine_output_tokens
    assert sink.text.split() == (["a", "b", "c"] * 34)[:tokens]


async def test_it_counts_the_words_of_all_messages_and_their_parts(call_of, sink):
    parts = [{"type": "text", "text": "three four"}, {"type": "image_url", "image_url": {"url": "x"}}]
    result = await target(tokens=1, cached=3).call(call_of(body(parts)), sink)
    assert result.usage == Usage(0, cache_read_text=2, output_text=1)


async def test_part_of_the_script_may_stand_in_the_last_message(call_of, sink):
    result = await target(tokens=9).call(call_of(body("please [[script tokens=2 burst=2]] now")), sink)
    assert result.usage.output_text == 2 and len(sink.deltas) == 2


@pytest.mark.parametrize("directive", ["speed=1", "tokens=-1", "fault=explode", "gap_ms=x"])
async def test_a_wrong_script_in_a_message_is_the_callers_mistake(call_of, sink, directive):
    with pytest.raises(InvalidRequest, match="script"):
        await target().call(call_of(body(f"[[script {directive}]]")), sink)


@pytest.mark.parametrize("script", [{"speed": 1}, {"tokens": -1}, {"burst": 0}, {"fault": "explode"}])
def test_a_wrong_script_in_the_configuration_is_refused_at_the_start(script):
    with pytest.raises(ConfigurationError, match="script"):
        target(**script)


@pytest.mark.parametrize(
    ("fault", "error"), [("refuse", UpstreamUnreachable), ("error", UpstreamError), ("break", UpstreamBroken)]
)
async def test_its_faults_are_those_of_a_real_server(call_of, sink, fault, error):
    scripted = target(fault=fault, after=2)
    with pytest.raises(error) as raised:
        await scripted.call(call_of(body()), sink)
    assert raised.value.retryable and scripted.running == 0
    assert sink.tokens == (0 if fault == "refuse" else 2)


async def test_its_count_is_what_its_usage_says(call_of, sink):
    scripted, call = target(tokens=1), call_of(body("one two three"))
    assert await scripted.count_input(call) == 3
    assert (await scripted.call(call, sink)).usage.input_tokens == 3


@pytest.mark.parametrize(
    ("asked", "cap", "made", "reason"),
    [
        (None, None, 9, "stop"),
        (None, 10, 9, "stop"),
        (None, 9, 9, "stop"),
        (None, 8, 8, "length"),
        (5, 8, 5, "length"),
        (8, 5, 5, "length"),
    ],
)
async def test_it_stops_at_the_lower_of_the_callers_limit_and_the_cap(call_of, sink, asked, cap, made, reason):
    fields = {} if asked is None else {"max_tokens": asked}
    result = await target(tokens=9).call(replace(call_of(body(**fields)), max_output=cap), sink)
    assert (result.usage.output_tokens, sink.tokens, result.finish_reason) == (made, made, reason)


async def test_it_can_think_before_it_answers(call_of, sink):
    result = await target(reply="a b c d e", reasoning=3, burst=2).call(call_of(body(n=2)), sink)
    assert result.usage == Usage(2, cache_read_text=0, output_text=4, output_reasoning=6)
    mine = [delta for delta in sink.deltas if delta.index == 1]
    assert [(delta.tokens, delta.reasoning_tokens) for delta in mine] == [(2, 2), (1, 1), (2, 0), (0, 0)]
    assert ["".join(getattr(delta, part) for delta in mine).split() for part in ("reasoning", "text")] == [
        ["a", "b", "c"],
        ["d", "e"],
    ]


async def test_it_does_not_think_where_the_effort_is_none(call_of, sink):
    scripted = target(reply="a b c d e", reasoning=3)
    asked = await scripted.call(call_of(body(reasoning_effort="none")), sink)
    clipped = await scripted.call(replace(call_of(body(reasoning_effort="high")), reasoning_effort="none"), sink)
    assert asked.usage.output_reasoning is clipped.usage.output_reasoning is None
