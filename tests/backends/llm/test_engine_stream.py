"""What an engine host's frames tell a sink: the prompt before the first words, and which stop string ended a choice."""

import asyncio

import pytest

from backends.llm.host.engine_stream import EngineStream
from contracts.api.generation import Delta, Result
from contracts.engine.wire import Delta as WireDelta
from contracts.engine.wire import Finished
from contracts.errors import UpstreamBroken
from contracts.metering.usage import Usage
from contracts.recording.records import CountMethod


class Told:
    """A sink that writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def delta(self, delta: Delta) -> None:
        self.told.append(delta)

    def account(self, result: Result) -> None:
        self.told.append(result)

    def attach_flow(self, pause: object, resume: object) -> None:
        self.told.append((pause, resume))

    def report(self, usage: Usage, count_method: CountMethod) -> None:
        self.told.append((usage, count_method))


def frame(content: str, **more: object) -> WireDelta:
    return WireDelta(request_id=b"r" * 16, token_ids=[1], content=content, **more)  # type: ignore[arg-type]


async def test_the_prompt_is_reported_before_the_first_words_and_once():
    sink = Told()
    stream = EngineStream(sink, prompt_tokens=100, choices=1)
    stream.on_delta(frame("a", cached_tokens=64))
    stream.on_delta(frame("b"))
    assert sink.told[0] == (Usage(input_text=36, cache_read_text=64), "exact")
    assert [one.text for one in sink.told if isinstance(one, Delta)] == ["a", "b"] and len(sink.told) == 3
    assert stream.usage_so_far() == Usage(input_text=36, cache_read_text=64, output_text=2)


async def test_the_stop_string_is_told_also_where_the_end_was_held_back():
    sink = Told()
    stream = EngineStream(sink, prompt_tokens=3, choices=1)
    stream.on_delta(frame("a", cached_tokens=0, finish_reason="stop", stop="END"))
    held = EngineStream(sink, prompt_tokens=3, choices=1)
    held.pause()
    held.on_delta(frame("a"))
    held.on_delta(frame("b", finish_reason="stop", stop="END"))
    held.resume()
    ends = [(one.text, one.finish_reason, one.stop) for one in sink.told if isinstance(one, Delta)]
    assert ends == [("a", "stop", "END"), ("ab", "stop", "END")]


async def test_an_end_that_comes_before_a_cancelled_wait_is_over_is_not_lost():
    stream = EngineStream(Told(), prompt_tokens=3, choices=1)
    waiting = asyncio.create_task(stream.finished())
    await asyncio.sleep(0)
    waiting.cancel()
    stream.on_finished(Finished(request_id=b"r" * 16, finish_reason="abort"))  # the task has not run since
    with pytest.raises(asyncio.CancelledError):
        await waiting
    found = await stream.finished_within(1.0)
    assert found is not None and found.finish_reason == "abort"


async def test_an_end_may_be_waited_for_after_a_wait_was_cancelled():
    stream = EngineStream(Told(), prompt_tokens=3, choices=1)
    waiting = asyncio.create_task(stream.finished())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await stream.finished_within(0) is None
    stream.fail(UpstreamBroken("gone"))
    assert await stream.finished_within(0) is None
    with pytest.raises(UpstreamBroken):
        await stream.finished()
