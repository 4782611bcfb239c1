"""Times of a target count from the begin of its attempt, by a plan and without one."""

from typing import Any

import pytest

from gateway.request.clock import Clock

TICK_NS = 1_000_000


@pytest.fixture
def ticking_clock(monkeypatch):
    """Let a millisecond pass whenever a gateway asks for the time."""
    now = [10**18]

    def tick() -> int:
        now[0] += TICK_NS
        return now[0]

    monkeypatch.setattr("gateway.process.app.Clock", lambda: Clock(wall_ns=tick, monotonic_ns=tick))


def health_of(gateway):
    """Return what the gateway knows of its only target."""
    [spec] = gateway.gateway.directory.snapshot.pools["mock"].targets
    return gateway.gateway.health_book.of(spec)


async def ask_twice(gateway, **fields) -> Any:
    """Send two chats, of which the first connects, and return their records."""
    for _ in range(2):
        assert (await gateway.chat(model="mock", **fields)).status == 200
    return gateway.requests()


async def test_whole_answers_count_from_their_attempts(start_gateway, kit, upstream, ticking_clock):
    upstream.always(upstream.whole(upstream.completion()))
    gateway = await start_gateway(kit.configuration(("mock", [kit.http_target(upstream.url)])))
    await ask_twice(gateway)
    before = health_of(gateway).wholes_ns
    *_, record = await ask_twice(gateway)
    last_two = gateway.requests()[-2:]
    assert health_of(gateway).wholes_ns - before == sum(one.duration_ns - one.admission_ns for one in last_two)
    assert record.admission_ns > 0


@pytest.mark.parametrize("is_reported", [True, False], ids=["reported", "handed over"])
async def test_streams_count_from_their_attempts(start_gateway, kit, upstream, ticking_clock, is_reported):
    events = [upstream.chunk("one "), upstream.chunk("two"), upstream.chunk(finish="stop")]
    events += [upstream.usage(3, 2)] if is_reported else []
    upstream.always(upstream.streamed(*events, upstream.event(b"[DONE]")))
    gateway = await start_gateway(kit.configuration(("mock", [kit.http_target(upstream.url)])))
    await ask_twice(gateway, stream=True)
    before = health_of(gateway).firsts_ns
    await ask_twice(gateway, stream=True)
    last_two = gateway.requests()[-2:]
    assert health_of(gateway).firsts_ns - before == sum(one.ttft_ns - one.admission_ns for one in last_two)


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_routes_learn_a_model_s_pace_from_every_way(pair, upstream, is_streamed):
    both = await pair(routes=[{"name": "chat", "choose": [{"model": "mock"}]}])
    upstream.always(upstream.whole(upstream.completion("Hello", prompt=3, output=2)))
    fields = {}
    if is_streamed:
        events = [upstream.chunk("one "), upstream.chunk("two"), upstream.chunk(finish="stop"), upstream.usage(3, 2)]
        upstream.always(upstream.streamed(*events, upstream.event(b"[DONE]")))
        fields = {"stream": True}
    for _ in range(4):
        assert (await both.ask(**fields)).status == 200
    assert both.taken == [True] * 4
    for each in (both.short, both.long):
        paces = each.gateway._dispatcher.stages.guide.paces
        assert paces.answer_seconds("mock", 100) is not None
        assert (paces.ttft_seconds("mock") is not None) is is_streamed
