"""Streams by a plan: sent before there is a task, and answered, charged and recorded as without one."""

import asyncio
import gc

import pytest

from contracts.metering.gaps import unpack_gaps
from gateway.replies.relays import ChunkRelay
from tests.gateway.conftest import KEY
from tests.gateway.request.pair import counters, facts, requests_in_memory, told, without_id

TIMED = ("gaps", "ttft_ns", "response_bytes")  # the head tells of times


@pytest.fixture
async def streams(pair, upstream):
    """Provide a pair that asks for streams, each of whose chunks comes by itself."""

    async def start(*urls, **more):
        both = await pair(*urls, **more)

        async def ask(**fields):
            short, long = [await each.chat(model="mock", stream=True, **fields) for each in (both.short, both.long)]
            assert (short.status, told(short)) == (long.status, told(long))
            assert without_id(short.body) == without_id(long.body)
            return short

        def compare():
            for side in ("requests", "attempts"):
                ours, theirs = (
                    [{name: value for name, value in facts(one).items() if name not in TIMED} for one in found]
                    for found in (getattr(each, side)() for each in (both.short, both.long))
                )
                assert len(ours) == len(theirs)
                for one, other in zip(ours, theirs, strict=True):
                    assert {name: (one[name], other[name]) for name in one if one[name] != other[name]} == {}
                counts = [
                    [(len(unpack_gaps(one.gaps)), one.ttft_ns is None) for one in getattr(each, side)()]
                    for each in (both.short, both.long)
                ]
                assert counts[0] == counts[1]
            assert counters(both.short) == counters(both.long)
            for each in (both.short, both.long):
                gateway = each.gateway
                assert gateway.admission.in_flight == 0
                assert gateway._dispatcher.open_grants == 0

        both.stream, both.compare_streams = ask, compare
        return both

    return start


def slowly(up, *events, end=True, apart=0.004):
    """Return a stream whose chunks are so far apart that each is read by itself."""
    steps = [up.stream_head()]
    for event in events:
        steps += [up.piece(event), apart]
    return [*steps, up.END] if end else steps


def good(up, texts=("Hel", "lo", ' "quoted" \n', " \u4e16", "!"), usage=(10, 5)):
    return [
        up.chunk("", model="served-1"),
        *(up.chunk(text, model="served-1") for text in texts),
        up.chunk(finish="stop", model="served-1"),
        *([up.usage(*usage)] if usage else []),
        up.event(b"[DONE]"),
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"max_tokens": 64, "temperature": 0.5},
        {"stream_options": {"include_usage": True}},
        {"stream_options": {"include_usage": False, "vendor": 1}},
        {"stream_options": None},
        {"n": 2},
    ],
)
async def test_a_plain_stream_goes_by_a_plan_and_is_accounted_for_alike(streams, upstream, fields):
    both = await streams()
    upstream.always(*slowly(upstream, *good(upstream)))
    for _ in range(2):
        answer = await both.stream(**fields)
        assert answer.body.count(b"data: ") == 7 + 1 + (fields.get("stream_options") or {}).get("include_usage", False)
    assert both.taken == [True] * 2
    assert upstream.requests[-1].json == upstream.requests[-2].json
    assert upstream.requests[-1].json["stream_options"]["include_usage"] is True
    both.compare_streams()
    record = both.short.requests()[-1]
    assert (record.usage.input_tokens, record.usage.output_tokens, len(unpack_gaps(record.gaps))) == (10, 5, 4)
    assert record.cost_pico_usd == record.charged_pico_usd == 10 * 1_000_000 + 5 * 2_000_000


async def test_a_plain_stream_needs_no_task(streams, upstream, monkeypatch):
    both = await streams()
    upstream.always(*slowly(upstream, *good(upstream)))
    dispatcher, started = both.short.gateway._dispatcher, []
    start = dispatcher.start

    def noted(serving):
        started.append(serving)
        return start(serving)

    monkeypatch.setattr(dispatcher, "start", noted)
    for _ in range(2):
        assert (await both.stream()).status == 200
    assert (both.taken, started) == ([True] * 2, [])
    await both.stream(n=2)
    assert started == []
    both.compare_streams()


async def test_a_plain_streams_first_token_is_counted(streams, upstream):
    both = await streams()
    upstream.always(*slowly(upstream, *good(upstream)))
    await both.stream()
    for each in (both.short, both.long):
        [series] = [one for one in each.gateway.recorder._counts.series.values() if one.requests]
        assert (series.requests, series.first_token.count) == (2, 1)
        assert series.first_token.sum_ns == each.requests()[-1].ttft_ns > 0


@pytest.mark.interpreted
async def test_each_chunk_leaves_as_it_comes(streams, upstream, monkeypatch):
    both, taken = await streams(), []
    take = ChunkRelay.take

    def seen(relay, chunk):
        taken.append(chunk)
        return take(relay, chunk)

    monkeypatch.setattr(ChunkRelay, "take", seen)
    events = good(upstream)
    upstream.always(*slowly(upstream, *events))
    client = await both.short.connect()
    await client.send(both.short.request(model="mock", stream=True))
    await client.head()
    pieces = [piece async for piece in client.pieces()]
    assert pieces == [*events[:7], b"data: [DONE]\n\n"]
    assert taken == [upstream.piece(event) for event in (events[2], *events[4:6])], "one of several words is read"


async def test_a_stream_that_begins_with_a_text_is_known_by_the_streams_before_it(streams, upstream):
    both = await streams()
    events = good(upstream)[1:]
    for created in (1, 2, 3):
        told = [event.replace(b'"id": "x"', b'"id": "c%d", "created": %d' % (created, created)) for event in events]
        upstream.always(*slowly(upstream, *told))
        answer = await both.stream()
        assert answer.body == b"".join(told[:-2]) + b"data: [DONE]\n\n"
    assert both.taken == [True] * 3
    both.compare_streams()


async def test_a_client_of_http_1_0_is_sent_a_stream_without_framing(streams, upstream):
    both = await streams(limits=[], budgets=[])  # which tell times in the head, that count among a stream's bytes
    events = good(upstream)[1:]
    upstream.always(*slowly(upstream, *events))
    await both.stream()
    body = both.short.request(model="mock", stream=True).partition(b"\r\n\r\n")[2]
    head = b"POST /v1/chat/completions HTTP/1.0\r\nauthorization: Bearer %b\r\n" % KEY.encode()
    for each in (both.short, both.long):
        client = await each.connect()
        await client.send(head + b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        _, sent = await client.head()
        assert sent["connection"] == "close" and "transfer-encoding" not in sent
        assert await client.reader.read() == b"".join(events[:-2]) + b"data: [DONE]\n\n"
        client.close()
    assert both.taken == [True] * 2
    both.compare_streams()


ANSWERS = {
    "no usage": lambda up: slowly(up, *good(up, usage=None)),
    "usage of another kind": lambda up: slowly(
        up, *good(up, usage=None)[:-1], up.event({"usage": {"prompt_tokens": "a"}})
    ),
    "more than was reserved": lambda up: slowly(up, *good(up, usage=(5000, 70_000))),
    "nothing generated": lambda up: slowly(up, *good(up, texts=(), usage=(10, 0))),
    "all at once": lambda up: [up.streamed(*good(up))],
    "an error at once": lambda up: slowly(up, up.event({"error": {"message": "overloaded"}})),
    "an error after two chunks": lambda up: slowly(up, *good(up)[:4], up.event({"error": {"message": "overloaded"}})),
    "garbage after four chunks": lambda up: slowly(up, *good(up)[:5], b"data: {\n\n"),
    "broken framing": lambda up: [*slowly(up, *good(up)[:5], end=False), b"zz\r\n"],
    "closed before the first": lambda up: [up.stream_head(), "close"],
    "closed after four": lambda up: [*slowly(up, *good(up)[:5], end=False), "close"],
    "reset after four": lambda up: [*slowly(up, *good(up)[:5], end=False), "reset"],
    "silent after four": lambda up: [*slowly(up, *good(up)[:5], end=False), "stall"],
    "no end": lambda up: slowly(up, *good(up)[:5]),
    "another content type": lambda up: [up.whole(up.completion())],
    "400": lambda up: [up.whole({"error": {"message": "too long"}}, 400)],
    "401": lambda up: [up.whole({"error": {"message": "bad key"}}, 401)],
    "429": lambda up: [up.whole({"error": {"message": "slow down"}}, 429, headers="retry-after: 3\r\n")],
    "500": lambda up: [up.whole({"error": {"message": "out of memory"}}, 500)],
    "closed": lambda up: ["close"],
    "silent": lambda up: ["stall"],
    "no HTTP": lambda up: [b"not HTTP at all\r\n\r\n"],
}


@pytest.mark.parametrize("answer", ANSWERS)
async def test_whatever_a_server_streams_it_is_told_and_charged_alike(streams, upstream, answer):
    both = await streams()
    upstream.always(*ANSWERS[answer](upstream))
    await both.stream()
    assert both.taken == [True]
    both.compare_streams()
    upstream.always(*slowly(upstream, *good(upstream)))
    assert (await both.stream()).status == 200
    both.compare_streams()


@pytest.mark.parametrize("answer", ["429", "500", "401", "closed", "an error at once", "silent"])
async def test_the_next_server_takes_over_alike(streams, new_upstream, upstream, answer):
    second = await new_upstream()
    second.always(*slowly(second, *good(second)))
    both = await streams(upstream.url, second.url)
    upstream.always(*ANSWERS[answer](upstream))
    for _ in range(2):
        assert (await both.stream()).status == 200
    assert any(both.taken)
    both.compare_streams()


@pytest.mark.parametrize("chunks", [0, 1, 4])
async def test_a_client_that_leaves_ends_the_stream_at_once_and_is_charged_alike(streams, upstream, eventually, chunks):
    both = await streams()
    upstream.always(*(slowly(upstream, *good(upstream)[: chunks + 1], end=False) if chunks else ()), "stall")
    before = len(upstream.lost_at)
    for each in (both.short, both.long):
        client, asked = await each.connect(), len(upstream.requests)
        await client.send(each.request(model="mock", stream=True))
        await eventually(lambda asked=asked: len(upstream.requests) > asked)
        if chunks:
            await client.head()
            pieces = client.pieces()
            for _ in range(chunks + 1):
                await anext(pieces)
        await asyncio.sleep(0.01)
        client.close()
    await eventually(lambda: len(upstream.lost_at) == before + 2)
    await eventually(lambda: len(both.short.requests()) == len(both.long.requests()) == 2)
    assert both.taken == [True]
    both.compare_streams()
    record = both.short.requests()[-1]
    assert (record.outcome, len(unpack_gaps(record.gaps))) == ("cancelled", max(chunks - 1, 0))


async def test_a_client_that_leaves_before_the_tasks_first_step_is_recorded(streams, upstream, monkeypatch, eventually):
    both = await streams()
    upstream.always("stall")
    dispatcher = both.short.gateway._dispatcher
    start, dispatcher.lives = dispatcher.start, []

    def started_and_left(serving):
        asyncio.get_running_loop().call_soon(lambda: dispatcher.lives[-1].cancel())
        return start(serving)

    monkeypatch.setattr(dispatcher, "start", started_and_left)
    both.short.target("mock", "u0")._pool.drop_idle()  # so that it has to wait
    known = len(both.short.requests())
    client = await both.short.connect()
    await client.send(both.short.request(model="mock", stream=True))
    await eventually(lambda: len(both.short.requests()) > known)
    client.close()
    assert both.short.requests()[-1].outcome == "cancelled"
    assert both.short.gateway.admission.in_flight == both.short.gateway._dispatcher.open_grants == 0
    assert all(reserved == 0 for _, reserved in counters(both.short).values())


async def test_a_connection_that_the_server_has_just_closed_costs_nobody_a_stream(streams, upstream):
    both = await streams()
    upstream.then("close")
    upstream.always(*slowly(upstream, *good(upstream)))
    assert (await both.short.chat(model="mock", stream=True)).status == 200
    assert both.taken == [True]
    assert [record.attempts for record in both.short.requests()] == [1, 1]


async def test_a_stream_without_an_idle_connection_gets_a_fresh_one(streams, upstream):
    both = await streams()
    upstream.always(*slowly(upstream, *good(upstream)))
    both.short.target("mock", "u0")._pool.drop_idle()
    assert (await both.short.chat(model="mock", stream=True)).status == 200
    assert both.taken == [True]


@pytest.mark.interpreted
async def test_an_answer_that_outgrows_what_others_have_left_ends_as_length_alike(streams, upstream, monkeypatch):
    both = await streams()

    async def extend(grant, more):
        return False

    for each in (both.short, both.long):  # others have taken what there was when it was let in
        limiter = each.gateway._dispatcher.stages.limiter
        monkeypatch.setattr(limiter, "extend_now", lambda grant, more: False)
        monkeypatch.setattr(limiter, "extend", extend)
    texts = [f"t{number} " for number in range(800)]
    upstream.always(*slowly(upstream, *good(upstream, texts, usage=(10, 800)), apart=0.0))
    for each in (both.short, both.long):
        answer = await each.chat(model="mock", stream=True, max_tokens=2_000)
        assert b'"finish_reason":"length"' in answer.body and b"t799" not in answer.body
        record = each.requests()[-1]
        assert (record.outcome, record.finish_reason) == ("ok", "length")
        assert record.usage.output_tokens == len(unpack_gaps(record.gaps)) + 1
        assert not any(reserved for _, reserved in counters(each).values())
    assert both.taken == [True]


@pytest.mark.interpreted
async def test_an_answer_that_is_complete_as_its_limit_is_reached_has_one_end(streams, upstream, monkeypatch):
    both = await streams()
    monkeypatch.setattr(both.short.gateway._dispatcher.stages.limiter, "extend_now", lambda grant, more: False)
    up = upstream
    texts = [up.piece(up.chunk(f"t{number} ", model="served-1")) for number in range(512)]  # as many as are reserved
    finish = up.piece(up.chunk(finish="stop", model="served-1"))
    first = [up.stream_head(), up.piece(up.chunk("", model="served-1")), 0.004]
    rest = [up.piece(up.usage(10, 512)), up.piece(up.event(b"[DONE]")), up.END]
    upstream.always(*first, b"".join(texts[:500]), 0.02, b"".join([*texts[500:], finish]), 0.02, *rest)
    answer = await both.short.chat(model="mock", stream=True, max_tokens=2_000)
    assert (both.taken, answer.body.count(b'"stop"'), answer.body.count(b'"length"')) == ([True], 1, 0)
    record = both.short.requests()[-1]
    assert (record.outcome, record.finish_reason, record.usage.output_tokens) == ("ok", "stop", 512)


@pytest.mark.interpreted
@pytest.mark.parametrize("choices", [1, 2])
async def test_a_fault_of_sending_at_once_is_made_good_in_a_task(streams, upstream, monkeypatch, choices, caplog):
    both = await streams()
    upstream.always(*slowly(upstream, *good(upstream)))

    def broken(*_):
        monkeypatch.undo()
        raise RuntimeError("a bug")

    monkeypatch.setattr(both.short.target("mock", "u0"), "send_at_once", broken)
    answer = await both.short.chat(model="mock", stream=True, n=choices)
    assert answer.status == 200 and answer.body.endswith(b"data: [DONE]\n\n")
    assert "a request could not be sent at once" in caplog.text
    gateway = both.short.gateway
    assert gateway.admission.in_flight == gateway._dispatcher.open_grants == 0
    assert all(reserved == 0 for _, reserved in counters(both.short).values())


async def test_a_stream_leaves_nothing_to_the_cycle_collector(streams, upstream):
    both = await streams()
    upstream.always(*slowly(upstream, *good(upstream)))
    await both.short.chat(model="mock", stream=True)
    gc.freeze()  # what other tests left is not looked at
    gc.disable()
    try:
        for _ in range(3):
            await both.short.chat(model="mock", stream=True)
        await asyncio.sleep(0.01)
        assert requests_in_memory() == 0
    finally:
        gc.enable()
