"""Cache hits by a plan: they are answered, charged, counted and recorded as all stages would do."""

import json
import random
from dataclasses import replace
from typing import Any, cast

import pytest

from gateway.request.plans.cache_hits import KnownQuestions, Question
from tests.gateway.conftest import KEY
from tests.gateway.request.pair import RULES, Pair, facts, told

MODEL_RULES = {
    "limits": [*RULES["limits"], {"tenant": "acme", "metric": "concurrency", "amount": 4, "level": "tenant"}],
    "budgets": RULES["budgets"],
}
COUNTED = ("hits", "semantic_hits", "misses", "bypasses", "kept", "not_kept", "unreadable", "saved_pico_usd", "entries")


class CachedPair(Pair):
    """A pair before one server, whose model keeps answers."""

    async def ask(self, body=None, headers=None, **fields):
        """Ask both; return the shorter way's answer, which must be the other's but for ids and times."""
        short, long = [await each.chat(body, headers, model="mock", **fields) for each in (self.short, self.long)]
        seen = [{name: value for name, value in told(one).items() if name != "age"} for one in (short, long)]
        assert (short.status, seen[0], short.body) == (long.status, seen[1], long.body)
        assert ("age" in short.headers) is ("age" in long.headers)
        return short

    def compare_books(self):
        """Hold the journals, the counters, the caches and the metrics against each other."""
        states = [{name: one.gateway.health()["answer_cache"][name] for name in COUNTED} for one in self.both]
        assert states[0] == states[1]
        assert metrics_of(self.short) == metrics_of(self.long)
        if self.short.gateway.directory.snapshot.limits:
            super().compare_books()
            return
        ours, theirs = (list(map(facts, each.requests())) for each in self.both)
        assert ours == theirs

    @property
    def both(self):
        return (self.short, self.long)


def metrics_of(running):
    """Return what is counted of requests, without their times."""
    return {
        key: (one.requests, one.tokens, one.cost_pico_usd, one.unpriced, one.tool_calls, one.schema_judged)
        for key, one in running.gateway._books.counts.series.items()
    }


@pytest.fixture
def cached(start_gateway, kit, upstream, monkeypatch):
    async def start(cache=None, *, prices=True, **more):
        upstream.always(upstream.whole(upstream.completion("Hello", prompt=17, output=9)))
        config = kit.configuration(("mock", [kit.http_target(upstream.url, "u0")]), **{**RULES, **more})
        config["models"][0]["cache"] = cache or {"mode": "exact", "hit_price": "0.1"}
        if not prices:
            del config["prices"]
        return CachedPair(await start_gateway(config), await start_gateway(config), monkeypatch)

    return start


@pytest.mark.parametrize("rules", [RULES, MODEL_RULES, {"limits": [], "budgets": []}])
@pytest.mark.parametrize("cache", [{"hit_price": "0.1"}, {"hit_price": "0"}, {"share": "key"}, {"share": "project"}])
async def test_a_hit_is_answered_charged_and_recorded_alike(cached, upstream, rules, cache):
    both = await cached(cache, **rules)
    for _ in range(4):
        answer = await both.ask(max_tokens=64, temperature=0.5, n=1)
    assert both.taken == [False, True, True, True] and answer.headers["x-cache"] == "hit"
    assert len(upstream.requests) == 2  # one of each gateway
    both.compare_books()
    record = both.short.requests()[-1]
    assert (record.cache, record.attempts, record.price_version) == ("hit", 0, "t/1#hit")
    assert (record.max_tokens, record.temperature, record.usage.input_tokens) == (64, 0.5, 0)


async def test_a_stream_s_hit_is_the_same_stream_with_the_same_record(cached, upstream):
    both = await cached(limits=[], budgets=[])  # which tell times in the head, that count among a stream's bytes
    events = [upstream.chunk("one "), upstream.chunk("two"), upstream.chunk(finish="stop"), upstream.usage(3, 2)]
    upstream.always(upstream.streamed(*events, upstream.event(b"[DONE]")))
    for _ in range(3):
        answer = await both.ask(stream=True)
    assert both.taken == [False, True, True] and answer.events[-1] == b"data: [DONE]"
    hits = [[facts(one) for one in each.requests() if one.cache == "hit"] for each in both.both]
    assert len(hits[0]) == 2 and hits[0] == hits[1]
    head = b"POST /v1/chat/completions HTTP/1.0\r\nauthorization: Bearer %b\r\n" % KEY.encode()
    body = both.short.request(model="mock", stream=True).partition(b"\r\n\r\n")[2]
    old = head + b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    for each in both.both:
        client = await each.connect()
        await client.send(old)
        _, sent = await client.head()
        assert sent["x-cache"] == "hit" and sent["connection"] == "close"
        assert b"[DONE]" in await client.reader.read()
        client.close()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_key_in_another_header_gets_the_same_hit(cached, upstream, stream, caplog):
    both = await cached(limits=[], budgets=[])
    if stream:
        events = [upstream.chunk("one"), upstream.chunk(finish="stop"), upstream.event(b"[DONE]")]
        upstream.always(upstream.streamed(*events))
    for _ in range(3):
        answer = await both.ask(headers={"Authorization": "", "x-api-key": KEY}, stream=stream)
    assert both.taken == [False, True, True] and answer.headers["x-cache"] == "hit"
    assert "plan failed" not in caplog.text and len(upstream.requests) == 2
    if not stream:
        both.compare_books()


@pytest.mark.parametrize(
    ("header", "taken"),
    [("no-store", False), ("no-cache", False), ("max-age=0", False), ("max-age=3600", True), ("private", True)],
)
async def test_what_a_caller_wants_of_the_cache_holds_alike(cached, header, taken):
    both = await cached()
    for headers in ({}, {}, {"Cache-Control": header}, {}):
        await both.ask(headers=headers)
    assert both.taken == [False, True, taken, True]
    both.compare_books()


@pytest.mark.parametrize(
    "fields",
    [
        {"user": "someone"},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"response_format": {"type": "json_object"}},
        {"headers": {"x-tollkeeper-tags": "a=b"}},
        {"headers": {"traceparent": "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"}},
    ],
)
async def test_what_asks_for_more_is_a_hit_on_the_long_way(cached, fields):
    both = await cached()
    for _ in range(3):
        answer = await both.ask(**fields)
    assert both.taken == [False] * 3 and answer.headers["x-cache"] == "hit"


@pytest.mark.parametrize("metric", ["requests", "concurrency"])
async def test_a_hit_that_a_limit_has_no_room_for_is_refused_alike(cached, metric):
    amount = {"requests": 2, "concurrency": 1}[metric]
    window = {"window": "minute"} if metric == "requests" else {}
    both = await cached(limits=[{"tenant": "acme", "metric": metric, "amount": amount, "level": "tenant", **window}])
    await both.ask()
    await both.ask()
    if metric == "concurrency":
        assert both.taken == [False, True]
        return
    both.taken.clear()
    answers = [await each.chat(model="mock") for each in both.both]
    assert [answer.status for answer in answers] == [429, 429] and both.taken == [False]
    assert both.short.gateway.admission.in_flight == 0


async def test_a_hit_that_a_budget_does_not_pay_is_refused_alike(cached):
    both = await cached(
        {"hit_price": "1"},
        limits=[],
        budgets=[{"tenant": "acme", "period": "month", "amount_usd": "0.000100", "level": "tenant"}],
    )
    for _ in range(2):
        assert (await both.ask(max_tokens=9)).status == 200
    answers = [await each.chat(model="mock", max_tokens=9) for each in both.both]
    assert [answer.error["code"] for answer in answers] == ["insufficient_quota"] * 2
    assert both.taken == [False, True, False]
    assert [one.charged_pico_usd for one in both.short.requests()] == [35_000_000, 35_000_000, 0]


async def test_without_a_price_a_hit_costs_what_its_answer_did_which_nobody_knows(cached):
    both = await cached(prices=False, limits=[], budgets=[])
    for _ in range(3):
        await both.ask()
    assert both.taken == [False, True, True]
    assert both.short.requests()[-1].cost_pico_usd is None
    both.compare_books()


async def test_a_configuration_that_changes_is_seen_at_once(cached, upstream):
    both = await cached(limits=[], budgets=[])
    for _ in range(3):
        await both.ask()
    directory = both.short.gateway.directory
    snapshot = directory.snapshot
    model = snapshot.models["mock"]
    for cache, expected in ((None, None), (model.cache, "hit")):
        directory.snapshot = replace(snapshot, models={**snapshot.models, "mock": replace(model, cache=cache)})
        answer = await both.short.chat(model="mock")
        assert (answer.status, answer.headers.get("x-cache")) == (200, expected)


async def test_a_key_finds_no_question_of_another_s(start_gateway, kit, upstream):
    upstream.always(upstream.whole(upstream.completion()))
    other = "tk-" + "B" * 43
    config = kit.configuration(("mock", [kit.http_target(upstream.url, "u0")]))
    config["models"][0]["cache"] = {"mode": "exact"}
    config["keys"].append({"key": other, "tenant": "globex", "id": "key_2"})
    gateway = await start_gateway(config)
    for _ in range(3):
        await gateway.chat(model="mock")
    said = [(await gateway.chat(headers={"Authorization": f"Bearer {other}"}, model="mock")).headers["x-cache"]]
    said += [(await gateway.chat(headers={"Authorization": f"Bearer {other}"}, model="mock")).headers["x-cache"]]
    assert said == ["miss", "hit"] and len(upstream.requests) == 2
    assert [one.who.tenant for one in gateway.requests()] == ["acme"] * 3 + ["globex"] * 2


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_is_asked_in_whatever_order_both_ways_say_and_count_the_same(cached, upstream, seed):
    draw = random.Random(seed)
    both = await cached({"hit_price": draw.choice(["0", "0.25", "1"])})
    stream = [upstream.chunk("a "), upstream.chunk(finish="stop"), upstream.usage(3, 2), upstream.event(b"[DONE]")]
    for _ in range(40):
        fields = {
            "model": "mock",
            "messages": [{"role": "user", "content": draw.choice(["a", "b", "h\u00e9", "x" * 3000])}],
            **({"stream": True} if draw.random() < 0.3 else {}),
            **({"max_tokens": draw.choice([4, 8])} if draw.random() < 0.3 else {}),
            **({"user": "someone"} if draw.random() < 0.1 else {}),
        }
        answer = upstream.streamed(*stream) if "stream" in fields else upstream.whole(upstream.completion("Hello"))
        upstream.always(answer)
        shuffled = dict(draw.sample(list(fields.items()), len(fields)))
        body = json.dumps(shuffled, ensure_ascii=draw.random() < 0.5, indent=draw.choice([None, 1])).encode()
        wish = draw.choice(["", "", "", "no-store", "no-cache", "max-age=60"])
        await both.ask(body, headers={"Cache-Control": wish} if wish else None)
    assert True in both.taken and False in both.taken
    timed = ("gaps", "ttft_ns", "response_bytes")  # times are told in a stream's head
    books = [[{n: v for n, v in facts(one).items() if n not in timed} for one in each.requests()] for each in both.both]
    assert books[0] == books[1]
    assert metrics_of(both.short) == metrics_of(both.long)


def test_questions_are_bounded_in_bytes_and_the_latest_stay():
    known, question = KnownQuestions(), Question(cast("Any", None), cast("Any", None), b"name")
    for number in range(400):
        known.note(b"key", b"%d" % number + b"x" * 40_000, question)
        assert known.find(b"key", b"0" + b"x" * 40_000) is question, "it is used all the time"
    assert known.find(b"key", b"399" + b"x" * 40_000) is question
    assert known.find(b"key", b"1" + b"x" * 40_000) is None
    assert known.find(b"other", b"399" + b"x" * 40_000) is None
    known.note(b"key", b"y" * 65_537, question)
    assert known.find(b"key", b"y" * 65_537) is None
