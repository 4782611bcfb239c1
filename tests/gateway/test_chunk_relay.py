"""Chunks that are passed on as they came: timed and counted as those that are read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.api.generation import Delta
from gateway.replies.allowance import Allowance
from gateway.replies.progress import Progress
from gateway.replies.relays import ChunkRelay
from gateway.request.clock import Clock
from gateway.wire.exchange import Exchange, RequestHead
from tests.gateway.quiet_line import QuietLine


class Line(QuietLine):
    """A client's connection that takes everything."""

    def __init__(self):
        self.sent = []

    def write(self, data):
        self.sent.append(data)


class Answer:
    """An answer in progress."""

    def __init__(self):
        self.has_ended = False


def reached_at(tokens):
    """Return an allowance that is reached at the given number of tokens."""
    allowance = Allowance(tokens, tokens, None, lambda error: None)
    allowance.next_at = tokens
    return allowance


def relay_of(progress, line, answer, *, allowance=None, on_tokens=None, is_reasoning=False, now_ns=lambda: 7):
    exchange = Exchange(line, RequestHead("POST", "/", "", "1.1", {}, True), b"", "")
    clock = Clock(monotonic_ns=now_ns)
    relay = ChunkRelay(
        answer, exchange, clock, progress, 0, is_reasoning=is_reasoning, on_tokens=on_tokens, allowance=allowance
    )
    return relay, exchange


@given(st.lists(st.integers(0, 10**9), min_size=2, max_size=20), st.lists(st.booleans(), min_size=20, max_size=20))
def test_what_is_relayed_is_timed_as_what_is_read(steps, looks):
    times = [sum(steps[: place + 1]) for place in range(len(steps))]
    read, relayed = Progress(), Progress()
    for at in times:
        read.take(Delta(1, "a"), at)
    relayed.take(Delta(1, "a"), times[0])
    moments: list[int] = []
    relay, _ = relay_of(relayed, Line(), Answer(), now_ns=lambda: moments.pop(0) if moments else 0)
    moments += times[1:-1]
    for look, _ in zip(looks, times[1:-1], strict=False):
        relay.take(b"chunk")
        if look:  # whoever asks in between sees what there is, and disturbs nothing
            assert len(relayed.gaps) == relayed.tokens - 1
    relayed.take(Delta(1, "a"), times[-1])
    assert relayed.gaps == read.gaps == relayed.gaps_for(None)
    assert (relayed.tokens, relayed.first_at_ns, relayed.last_at_ns) == (read.tokens, read.first_at_ns, read.last_at_ns)


def test_a_chunk_is_sent_as_it_came_and_counted_once():
    progress, line = Progress(), Line()
    told: list[int] = []
    progress.take(Delta(1, "", "hm", reasoning_tokens=1), 1)
    relay, exchange = relay_of(progress, line, Answer(), on_tokens=told.append, is_reasoning=True)
    relay.take(b"5\r\nchunk\r\n")
    relay.take(b"4\r\nmore\r\n")
    assert line.sent == [b"5\r\nchunk\r\n", b"4\r\nmore\r\n"]
    assert exchange.bytes_sent == 19
    assert (progress.tokens, progress.reasoning_tokens, told) == (3, 3, [1, 1])
    assert progress.last_at_ns == 7


@pytest.mark.parametrize(("next_at", "passed"), [(1, 0), (2, 0), (3, 1), (4, 2)])
def test_a_chunk_that_reaches_the_allowance_is_left_to_whoever_reads_it(next_at, passed):
    progress, answer = Progress(), Answer()
    progress.take(Delta(1, "a"), 1)
    relay, _ = relay_of(progress, Line(), answer, allowance=reached_at(next_at))
    taken = [relay.take(b"chunk"), relay.take(b"chunk")]
    assert (sum(taken), progress.tokens) == (passed, 1 + passed)


def test_nothing_passes_after_an_end_of_ours():
    progress, line, answer = Progress(), Line(), Answer()
    progress.take(Delta(1, "a"), 1)
    relay, _ = relay_of(progress, line, answer)
    answer.has_ended = True
    relay.take(b"chunk")
    assert (line.sent, progress.tokens) == ([], 1)


async def test_a_client_of_http_1_0_gets_the_events_without_framing(start_gateway, kit, upstream):
    gateway = await start_gateway(kit.configuration(("mock", [kit.http_target(upstream.url)])))
    events = [upstream.chunk(text) for text in ("", "a", "b", "c", "d")]
    steps = [part for event in events for part in (upstream.piece(event), 0.004)]
    end = [upstream.chunk(finish="stop"), upstream.event(b"[DONE]")]
    upstream.always(upstream.stream_head(), *steps, *map(upstream.piece, end), upstream.END)
    client = await gateway.connect()
    await client.send(gateway.request(model="mock", stream=True).replace(b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", 1))
    status, headers = await client.head()
    assert status == 200 and "transfer-encoding" not in headers
    assert await client.reader.read() == b"".join([*events, *end])


async def test_a_slow_reader_holds_relayed_chunks_back_and_loses_none(start_gateway, kit, upstream, eventually):
    gateway = await start_gateway(kit.configuration(("mock", [kit.http_target(upstream.url)])))
    events = [upstream.chunk("", model="m"), *(upstream.chunk("x" * 40_000, model="m") for _ in range(400))]
    end = [upstream.chunk(finish="stop", model="m"), upstream.usage(3, 400), upstream.event(b"[DONE]")]
    steps = [part for event in [*events, *end] for part in (upstream.piece(event), 0.0)]
    upstream.always(upstream.stream_head(), *steps, upstream.END)
    client = await gateway.connect()
    await client.send(gateway.request(model="mock", stream=True))
    await eventually(lambda: upstream.open and not all(side.may_write.is_set() for side in upstream.open))
    assert upstream.bytes_written < 400 * 40_000
    answer = await client.answer()
    assert answer.body == b"".join([*events, end[0], end[2]])
    [record] = gateway.requests()
    assert record.usage.output_tokens == 400
