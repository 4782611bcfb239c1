"""What admission asks of an engine host's target: counts before the call, caps on it, and a tally while it runs."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from backends.llm.base import ModelCall
from backends.llm.host import engine_target
from backends.llm.host.engine_stream import EngineStream
from backends.llm.host_inputs.engine_prompt import prompt_of
from backends.tokenization.tokenizer import PromptFormat
from contracts.api.embedding import EmbeddingRequest
from contracts.engine.wire import Delta, Embed, Submit
from contracts.errors import InvalidRequest
from contracts.metering.usage import Usage
from gateway.apis.reading import read_chat
from tests.backends.llm.engine_fake import FakeHost, Play, builtin_hello


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[FakeHost]:
    models = [builtin_hello(), builtin_hello("embedder", kind="embed", context_tokens=8)]
    made = await FakeHost(tmp_path / "h.sock", models=models).start()
    yield made
    await made.stop()


def body(**fields: Any) -> bytes:
    return msgspec.json.encode({"model": "tiny", "messages": [{"role": "user", "content": "one two"}], **fields})


def embedding(text: str) -> ModelCall:
    request = EmbeddingRequest(model="embedder", input=[text, "two"])
    return ModelCall(UUID(int=8), "/embeddings", request, b"{}", "acme", "salt")


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was rendered and encoded, by kind."""
    done: list[str] = []
    for name in ("prompt_of", "inputs_of"):
        real = getattr(engine_target, name)

        def counted(*given: Any, real: Any = real, name: str = name, **more: Any) -> Any:
            done.append(name)
            return real(*given, **more)

        monkeypatch.setattr(engine_target, name, counted)
    return done


async def test_a_prompt_that_was_counted_is_not_encoded_again(host, target, sink, call_of, prepared):
    call = call_of(body())
    counted = await target.count_input(call)
    await target.call(call, sink)
    [submit] = host.of(Submit)
    assert counted == len(submit.token_ids) and prepared == ["prompt_of"]


async def test_inputs_to_embed_are_counted_and_encoded_once_too(host, target, sink, prepared):
    call = embedding("one two")
    counted = await target.count_input(call)
    result = await target.call(call, sink)
    [embed] = host.of(Embed)
    assert counted == sum(map(len, embed.inputs)) == result.usage.input_text and prepared == ["inputs_of"]


async def test_caps_set_after_the_count_leave_the_prompt_as_it_is(host, target, sink, call_of, prepared):
    call = call_of(body())
    await target.count_input(call)
    await target.call(replace(call, max_output=3, priority=2), sink)
    assert prepared == ["prompt_of"] and host.of(Submit)[0].sampling.max_tokens == 3


@pytest.mark.parametrize("fields", [{"max_tokens": 9000}, {"n": 2, "functions": [{}]}, {"stop": [""]}])
async def test_a_count_refuses_what_the_call_would_refuse(target, sink, call_of, fields):
    with pytest.raises(InvalidRequest) as counted:
        await target.count_input(call_of(body(**fields)))
    with pytest.raises(InvalidRequest) as called:
        await target.call(call_of(body(**fields)), sink)
    assert (counted.value.message, counted.value.param) == (called.value.message, called.value.param)
    with pytest.raises(InvalidRequest, match="at most 8"):
        await target.count_input(embedding("one two " * 9))


async def test_there_is_no_count_while_the_host_is_away(host, target, call_of, eventually):
    await host.stop()
    await eventually(lambda: target._host.status().state == "away")
    assert await target.count_input(call_of(body())) is None
    assert await target.count_input(embedding("one")) is None


@pytest.mark.parametrize(
    ("fields", "max_output", "max_tokens", "min_tokens"),
    [
        ({"max_tokens": 5}, None, 5, 0),
        ({"max_tokens": 5}, 6, 5, 0),
        ({"max_tokens": 5}, 5, 5, 0),
        ({"max_tokens": 5}, 4, 4, 0),
        ({}, 4, 4, 0),
        ({"max_tokens": 5, "min_tokens": 5}, 4, 4, 4),
        ({"max_tokens": 5, "min_tokens": 2}, 4, 4, 2),
    ],
)
async def test_the_engine_makes_no_more_than_the_cap(
    host, target, sink, call_of, fields, max_output, max_tokens, min_tokens
):
    host.play = Play(tokens=100)
    result = await target.call(replace(call_of(body(**fields)), max_output=max_output), sink)
    [submit] = host.of(Submit)
    assert (submit.sampling.max_tokens, submit.sampling.min_tokens) == (max_tokens, min_tokens)
    assert sink.tokens == max_tokens == result.usage.output_tokens and result.finish_reason == "length"


async def test_priority_and_deadline_reach_the_engine(host, target, sink, call_of):
    await target.call(replace(call_of(body()), priority=2, deadline_ns=123), sink)
    await target.call(replace(call_of(body()), request_id=UUID(int=9)), sink)
    first, second = host.of(Submit)
    assert (first.priority, first.deadline_ns) == (2, 123)
    assert (second.priority, second.deadline_ns) == (0, None)


async def test_a_remote_hosts_deadline_is_on_its_own_clock(host, target):
    target._host.address = replace(target._host.address, path="", host="far", port=1)
    hello = msgspec.structs.replace(host.hello(), clock_ns=time.monotonic_ns() + 10**15)
    target._host._greet(object.__new__(_Line), hello)
    assert 0 <= 10**15 - (target._host.host_time_ns(5) - 5) < 10**10


class _Line:
    def send(self, message: object) -> None: ...
    def greet(self) -> None: ...


EFFORT_TEMPLATE = "{{ reasoning_effort }}{% if enable_thinking is defined %} {{ enable_thinking }}{% endif %}"


@pytest.mark.parametrize(
    ("fields", "effort", "text"),
    [
        ({"reasoning_effort": "high"}, None, "high"),
        ({"reasoning_effort": "high"}, "low", "low"),
        ({"chat_template_kwargs": {"reasoning_effort": "high"}}, "low", "low"),
        ({"chat_template_kwargs": {"enable_thinking": True}}, "none", "none False"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "low", "low False"),
        ({}, "low", "low"),
    ],
)
async def test_an_effort_replaces_what_the_chat_template_would_be_told(fields, effort, text):
    hello = builtin_hello()
    form = PromptFormat(hello.tokenizer, EFFORT_TEMPLATE, hello.special_tokens)
    sent = body(**fields)
    prompt = await prompt_of(read_chat("application/json", sent), sent, hello, form, effort)
    assert prompt.token_ids == form.encode(text)


async def test_a_prompt_prepared_with_one_effort_is_not_used_with_another(target, call_of, prepared):
    call = call_of(body(reasoning_effort="high"))
    for effort in (None, "low", "low", None):
        await target.count_input(replace(call, reasoning_effort=effort))
    assert prepared == ["prompt_of"] * 2


def piece(count: int = 1, **fields: Any) -> Delta:
    return Delta(request_id=b"r", token_ids=[1] * count, times_ns=[1] * count, **fields)


@pytest.mark.parametrize(
    ("fields", "reasoning"),
    [
        ({"reasoning": "hm"}, 2),
        ({"reasoning": "hm", "content": "so"}, 0),
        ({"reasoning": "hm", "tool_calls": b"[{}]"}, 0),
        ({"content": "so"}, 0),
        ({}, 0),
    ],
)
async def test_tokens_of_a_piece_are_reasoning_when_it_is_nothing_else(sink, fields, reasoning):
    stream = EngineStream(sink, 3, 1)
    stream.on_delta(piece(2, **fields))
    assert [delta.reasoning_tokens for delta in sink.deltas] == [reasoning]
    stream.fail(InvalidRequest("over"))
    await asyncio.gather(stream._done, return_exceptions=True)


async def test_usage_without_the_hosts_account_tells_reasoning_apart(sink):
    stream = EngineStream(sink, 3, 1)
    stream.on_delta(piece(cached_tokens=1, reasoning="hm"))
    stream.on_delta(piece(content="so"))
    assert stream.usage_so_far() == Usage(2, cache_read_text=1, output_text=1, output_reasoning=1)
    stream._done.cancel()


async def test_what_a_slow_client_has_not_taken_is_told_of_and_comes_with_its_counts(sink):
    held: list[tuple[int, int]] = []
    stream = EngineStream(sink, 3, 1, (), lambda tokens, reasoning: held.append((tokens, reasoning)))
    stream.on_delta(piece(reasoning="a"))
    stream.pause()
    for delta in (piece(reasoning="b"), piece(reasoning="c"), piece(content="d")):
        stream.on_delta(delta)
    assert held == [(1, 1), (2, 2), (3, 2)] and sink.tokens == 1
    stream.resume()
    assert held[-1] == (0, 0)
    assert [(delta.tokens, delta.reasoning_tokens) for delta in sink.deltas] == [(1, 1), (3, 2)]
    stream.pause()
    stream.on_delta(piece(content="e"))
    assert held[-1] == (1, 0)
    stream._done.cancel()


async def test_a_call_tells_of_what_is_held_while_its_client_is_slow(host, target, sink, call_of, eventually):
    host.play = Play(tokens=40, gap_seconds=0.002)
    held: list[tuple[int, int]] = []
    call = replace(call_of(body()), on_held=lambda *counts: held.append(counts))
    running = asyncio.create_task(target.call(call, sink))
    await eventually(lambda: sink.tokens >= 3)
    sink.flow[0]()
    before = sink.tokens
    await eventually(lambda: held and held[-1][0] >= 5)
    assert sink.tokens == before
    await running
    assert held[-1] == (0, 0) and sink.tokens == 40
