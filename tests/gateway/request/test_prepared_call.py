"""Chats for an engine host of ours begin by a plan, and are counted, charged and recorded as without one."""

import asyncio
import gc
import json
import re
from functools import partial

import msgspec
import pytest

from tests.gateway.host_process import MODEL
from tests.gateway.request.pair import OWN, RULES, Pair, requests_in_memory, told

# What the host measures again each time, and what differs with the length of the head.
MEASURED = (*OWN, "ttft_ns", "gaps", "gpu", "queue_ns", "response_bytes", "model")


@pytest.fixture
async def engines(start_gateway, kit, engine_host, eventually, monkeypatch):
    """A pair before one engine host, with a key that is known."""

    async def start(**more):
        targets = [{"name": "e1", "kind": "engine", "url": engine_host.url}]
        config = kit.configuration((MODEL, targets), **{**RULES, **more})
        both = Pair(await start_gateway(config), await start_gateway(config), monkeypatch)
        for each in (both.short, both.long):
            await eventually(partial(is_ready, each), 60.0)
            await each.chat(model=MODEL, max_tokens=1)
        both.taken.clear()
        return both

    def is_ready(running):
        engines = running.gateway.health()["engines"].values()
        return engines and all(one["state"] == "ready" for one in engines)

    return start


async def ask(both, **fields):
    """Ask both; return the shorter way's answer, which must be the other's but for ids and times."""
    given = {"model": MODEL, "temperature": 0, "max_tokens": 12, **fields}
    short, long = [await each.chat(**given) for each in (both.short, both.long)]
    assert (short.status, told(short)) == (long.status, told(long))
    assert said(short) == said(long)
    return short


def said(answer):
    """Return a body without its id, its time, and the wait that an error's message tells."""
    text = re.sub(r'"id":"[^"]*"|"created":\d+', "", answer.body.decode())
    return re.sub(r"after [\d.hms]+", "", text)


def compare(both):
    """Hold the two journals, and the counters, against each other."""
    for side in ("requests", "attempts"):
        ours, theirs = [
            [
                {name: value for name, value in msgspec.structs.asdict(one).items() if name not in MEASURED}
                for one in getattr(each, side)()
            ]
            for each in (both.short, both.long)
        ]
        assert ours == theirs
    counts = []
    for each in (both.short, both.long):
        gateway = each.gateway
        assert gateway.admission.in_flight == 0
        assert gateway._dispatcher.open_grants == 0
        snapshot, now_ns = gateway.directory.snapshot, gateway._clock.wall_ns()
        [entry] = snapshot.keys.values()
        lines = gateway._dispatcher.stages.limiter.plans.plan_for(entry.identity, MODEL, snapshot).fixed
        states = [counter.state(now_ns) for counter, _ in lines.all]
        counts.append([(state.used, state.reserved) for state in states])
    assert counts[0] == counts[1]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"max_tokens": None},
        {"n": 2, "seed": 7, "temperature": 1.0},
        {"stop": ["."], "max_tokens": 40},
        {"logprobs": True, "top_logprobs": 2},
        {"stream": True},
        {"stream": True, "stream_options": {"include_usage": True}},
    ],
    ids=["plain", "unbounded", "choices", "stop", "logprobs", "stream", "stream_usage"],
)
async def test_a_chat_that_begins_with_a_plan_is_answered_and_accounted_for_alike(engines, fields):
    both = await engines()
    answer = await ask(both, **fields)
    assert answer.status == 200 and both.taken == [True]
    compare(both)
    [*_, record] = both.short.requests()
    assert record.count_method == "exact" and record.gap_clock == ("engine" if record.gaps else "none")
    assert record.reserved_tokens >= record.usage.input_tokens and record.ttft_ns > 0


@pytest.mark.parametrize(
    "fields",
    [
        {"top_logprobs": 2},
        {"messages": [{"role": "user", "content": "word " * 1000}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]},
        {"response_format": {"type": "json_object"}, "max_tokens": 4},
    ],
    ids=["refused", "long", "image", "judged"],
)
async def test_what_takes_longer_or_is_refused_goes_the_long_way_with_nothing_taken(engines, fields):
    both = await engines()
    await ask(both, **fields)
    assert both.taken == [False]
    compare(both)


async def test_without_room_for_a_prompt_of_that_many_tokens_the_long_way_refuses_it(engines):
    limits = [{"tenant": "acme", "metric": "tokens", "window": "minute", "amount": 60, "level": "tenant"}]
    both = await engines(limits=limits, budgets=[])
    answers = [await ask(both, max_tokens=8) for _ in range(6)]
    assert {answer.status for answer in answers} == {200, 429}
    compare(both)


async def test_a_client_that_leaves_ends_it_and_pays_for_what_was_made(engines, eventually):
    both = await engines()
    client = await both.short.connect()
    await client.send(both.short.request(model=MODEL, stream=True, max_tokens=400, temperature=0))
    await client.head()
    assert both.taken == [True]
    client.reset()
    await eventually(lambda: both.short.requests()[-1].outcome == "cancelled", 10.0)
    record = both.short.requests()[-1]
    assert record.count_method == "exact" and record.charged_pico_usd is not None
    gateway = both.short.gateway
    assert gateway.admission.in_flight == gateway._dispatcher.open_grants == 0


async def test_many_at_once_are_each_answered_with_their_own(engines):
    both = await engines()
    prompts = [[{"role": "user", "content": f"Count to {number}."}] for number in range(8)]
    answers = await asyncio.gather(
        *(both.short.chat(model=MODEL, messages=prompt, temperature=0, max_tokens=6) for prompt in prompts)
    )
    assert both.taken == [True] * 8
    tokens = [json.loads(answer.body)["usage"]["prompt_tokens"] for answer in answers]
    records = both.short.requests()[-8:]
    assert sorted(tokens) == sorted(record.usage.input_tokens for record in records)


async def test_a_prepared_chat_leaves_nothing_to_the_cycle_collector(engines):
    both = await engines()
    await ask(both)
    gc.freeze()  # what other tests left is not looked at
    gc.disable()
    try:
        for _ in range(3):
            await ask(both)
        await asyncio.sleep(0.01)
        assert all(both.taken) and requests_in_memory() == 0
    finally:
        gc.enable()
