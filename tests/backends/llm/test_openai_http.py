"""The adapter for OpenAI-compatible servers, against a server that plays bytes."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, cast

import pytest

from backends.http_client.http_connection import ReplyEndListener
from backends.http_client.http_origin import Origin
from backends.http_client.http_pool import HttpPool
from backends.http_client.http_timeouts import Timeouts
from backends.llm.http.openai_http import OpenAIHttpTarget, _SentOnIdle
from contracts.errors import ConfigurationError, UpstreamBroken, UpstreamError, UpstreamRejected
from contracts.metering.usage import Usage
from contracts.serving.configuration import TargetSpec

WHOLE = json.dumps({"model": "m", "messages": [{"role": "user", "content": "a"}]}).encode()
STREAM = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "a"}]}).encode()


@pytest.fixture
async def new_target():
    made = []

    def make(url, **fields):
        spec = TargetSpec("t", "p", "openai_http", url=url, **fields)
        made.append(OpenAIHttpTarget(spec, lambda reference: reference.removeprefix("literal:")))
        return made[-1]

    yield make
    for target in made:
        await target.close()


@pytest.fixture
def target(new_target, upstream):
    return new_target(upstream.url)


async def test_a_stream_cut_at_every_byte_gives_the_same_events_and_counts(
    upstream, target, call_of, new_sink, eventually
):
    events = [
        b": hello\n\n",
        upstream.chunk("Gr\u00fc\u00dfe "),
        upstream.chunk("\U0001f44b").replace(b"\n\n", b"\r\n\r\n"),
        upstream.chunk(finish="stop"),
        upstream.usage(4, 2),
        upstream.event(b"[DONE]"),
    ]
    stream = b"".join(events)
    for offset in range(1, len(stream)):
        head, first = upstream.stream_head(), upstream.piece(stream[:offset])
        upstream.always(head + first, 0.0, upstream.piece(stream[offset:]) + upstream.END)
        sink = new_sink()
        result = await target.call(call_of(STREAM), sink)
        assert sink.events == events[1:4] and sink.usage_events == [events[4]]
        assert (sink.tokens, sink.text) == (2, "Gr\u00fc\u00dfe \U0001f44b")
        assert (result.usage, result.finish_reason) == (Usage(4, output_text=2), "stop")
    assert upstream.accepted == 1


async def test_content_in_parts_passes_through_and_counts(upstream, target, call_of, sink):
    def parts(*content):
        return upstream.event(json.dumps({"choices": [{"index": 0, "delta": {"content": content}}]}).encode())

    thinking = parts({"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]})
    both = parts({"type": "thinking", "thinking": []}, {"type": "text", "text": "four"})
    events = [thinking, both, upstream.chunk(finish="stop")]
    upstream.always(upstream.stream_head() + b"".join(map(upstream.piece, events)) + upstream.END)
    await target.call(call_of(STREAM), sink)
    assert (sink.events, sink.tokens, sink.text) == (events, 2, "four")


async def test_events_that_come_in_one_piece_are_told_apart(upstream, target, call_of, sink):
    events = [upstream.chunk(f"t{number}") for number in range(500)]
    stream = b"".join(events) + upstream.chunk(finish="length") + upstream.event(b"[DONE]")
    upstream.always(upstream.stream_head() + upstream.piece(stream) + upstream.END)
    result = await target.call(call_of(STREAM), sink)
    assert sink.events[:500] == events and sink.tokens == 500
    assert result.finish_reason == "length" and result.count_method == "none"


@pytest.mark.parametrize(
    ("delta", "tokens"),
    [
        ({"role": "assistant"}, 0),
        ({"role": "assistant", "content": ""}, 0),
        ({"content": None}, 0),
        ({"content": "x"}, 1),
        ({"reasoning_content": "x"}, 1),
        ({"reasoning": "x"}, 1),
        ({"refusal": "x"}, 1),
        ({"tool_calls": []}, 0),
        ({"tool_calls": None}, 0),
        ({"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}, 1),
    ],
)
async def test_a_delta_counts_as_a_token_when_it_carries_output(upstream, target, call_of, sink, delta, tokens):
    event = upstream.event({"choices": [{"index": 0, "delta": delta}]})
    upstream.always(upstream.streamed(event, upstream.chunk(finish="stop")))
    await target.call(call_of(STREAM), sink)
    assert sink.tokens == tokens and sink.events[0] == event


@pytest.mark.parametrize(
    ("delta", "reasoning"),
    [
        ({"reasoning_content": "x"}, 1),
        ({"reasoning": "x", "content": ""}, 1),
        ({"reasoning": "x", "content": None, "tool_calls": []}, 1),
        ({"reasoning_content": "x", "content": "y"}, 0),
        ({"reasoning_content": "x", "refusal": "y"}, 0),
        ({"reasoning": "x", "tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}, 0),
        ({"reasoning_content": "", "content": "y"}, 0),
        ({"role": "assistant", "reasoning_content": ""}, 0),
        ({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "x"}]}]}, 1),
        ({"content": [{"type": "thinking", "thinking": "x"}, {"type": "text", "text": "y"}]}, 0),
        ({"content": [{"type": "text", "text": "y"}]}, 0),
        ({"content": []}, 0),
    ],
)
async def test_a_delta_is_reasoning_when_it_carries_nothing_else(upstream, target, call_of, sink, delta, reasoning):
    event = upstream.event({"choices": [{"index": 0, "delta": delta}]})
    upstream.always(upstream.streamed(event, upstream.chunk(finish="stop")))
    await target.call(call_of(STREAM), sink)
    assert sink.deltas[0].reasoning_tokens == reasoning <= sink.deltas[0].tokens


async def test_what_follows_done_is_not_passed_on(upstream, target, call_of, sink):
    upstream.always(upstream.streamed(upstream.chunk("a"), upstream.event(b"[DONE]"), upstream.chunk("late")))
    await target.call(call_of(STREAM), sink)
    assert sink.text == "a"


async def test_a_stream_without_length_or_chunks_ends_with_its_connection(upstream, target, call_of, sink):
    head = b"HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream\r\n\r\n"
    upstream.always(head + upstream.chunk("a") + upstream.chunk(finish="stop"), upstream.CLOSE)
    assert (await target.call(call_of(STREAM), sink)).finish_reason == "stop"


async def test_such_a_stream_that_is_reset_is_not_complete(upstream, target, call_of, sink):
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    upstream.always(head + upstream.chunk("a") + upstream.chunk(finish="stop"), 0.02, upstream.RESET)
    with pytest.raises(UpstreamBroken):
        await target.call(call_of(STREAM), sink)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"error": {"message": "too long", "code": 400}}, "too long"),
        ({"error": "too long"}, "too long"),
        ({"object": "error", "message": "too long"}, "too long"),
        ({"detail": "too long"}, ""),
        (b"<html>too long", ""),
        ({"error": {"message": "x" * 10_000}}, "x" * 500),
    ],
)
async def test_a_refusal_says_what_the_server_said_in_every_dialect(upstream, target, call_of, sink, body, said):
    upstream.always(upstream.whole(body, 422))
    with pytest.raises(UpstreamRejected) as refused:
        await target.call(call_of(WHOLE), sink)
    assert refused.value.message == "the model's server refused the request (422)" + (f": {said}" if said else "")
    assert not refused.value.retryable


@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [("3", 3.0), ("0.5", 0.5), ("0", 0.0), ("-1", 1.0), ("soon", 1.0), ("nan", 1.0), ("1e9", 1.0), (None, 1.0)],
)
async def test_a_rate_limit_is_retryable_elsewhere_and_carries_its_wait(
    upstream, target, call_of, sink, retry_after, seconds
):
    headers = f"retry-after: {retry_after}\r\n" if retry_after else ""
    upstream.always(upstream.whole({}, 429, headers=headers))
    with pytest.raises(UpstreamError) as limited:
        await target.call(call_of(WHOLE), sink)
    assert (limited.value.retryable, limited.value.retry_after_seconds) == (True, seconds)
    assert limited.value.status == 429


async def test_a_cancelled_call_closes_its_connection(upstream, target, call_of, sink, eventually):
    calling = asyncio.create_task(target.call(call_of(WHOLE), sink))
    await eventually(lambda: upstream.requests)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await eventually(lambda: not upstream.open, 0.1)


@pytest.mark.interpreted
async def test_a_reply_over_the_bound_is_cut_off(upstream, target, call_of, sink, monkeypatch):
    monkeypatch.setattr("backends.llm.http.http_reply._MAX_GENERATED_BODY", 1000)
    upstream.always(upstream.whole(upstream.completion("x" * 1000)))
    with pytest.raises(UpstreamBroken, match="more than 1000 bytes"):
        await target.call(call_of(WHOLE), sink)


@pytest.mark.parametrize("key", ["sk-1\r\nx: y", "sk 1", "sk-\u00e9", "sk-1\n"])
def test_a_key_that_would_break_the_request_is_refused_without_showing_it(new_target, key):
    with pytest.raises(ConfigurationError) as refused:
        new_target("http://127.0.0.1:1/v1", key_ref=f"literal:{key}")
    assert "contains a space" in refused.value.message or "line end" in refused.value.message


class _Ended(ReplyEndListener):
    """Is told of a reply's end, and lets go of its connection there."""

    def __init__(self, at_end: Callable[[], None]) -> None:
        self.ended = asyncio.Event()
        self._at_end = at_end

    def reply_ended(self, error: Exception | None) -> None:
        self._at_end()
        self.ended.set()


@pytest.mark.interpreted
async def test_a_connection_that_was_released_is_not_paused_for_its_next_request(upstream):
    upstream.always(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
    pool = HttpPool(Origin.parse(upstream.url), Timeouts())
    head = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"
    await (await pool.send(head, b"", KeptReply())).finished()

    def release_and_pause() -> None:  # a slow client's connection is full just then
        sent.release()
        sent.pause()

    asker = _Ended(release_and_pause)
    connection = pool.send_at_once(head, b"", asker)
    assert connection is not None
    sent = _SentOnIdle(cast(Any, None), connection, pool, cast(Any, None))
    connection.receiver = KeptReply()
    await asker.ended.wait()
    async with asyncio.timeout(20):
        await (await pool.send(head, b"", KeptReply())).finished()
    assert upstream.accepted == 1
    await pool.close()


class KeptReply:
    """Keeps a reply's body."""

    def __init__(self) -> None:
        self.body = b""

    def on_head(self, status: int, headers: dict[bytes, bytes]) -> None: ...

    def on_body(self, data: bytes) -> None:
        self.body += data
