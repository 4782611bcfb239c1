"""The short way of whole chats: what it answers, charges and records is what the long way would."""

import asyncio
import gc
import json
import re
from dataclasses import replace

import msgspec
import pytest

from contracts.records import RequestRecord
from gateway.lane.quick_call import QuickCall
from gateway.lane.quick_lane import QuickLane

LEVELS = ({"level": "tenant"}, {"level": "team", "subject": "*"}, {"level": "key", "subject": "*"})
RULES = {
    "limits": [
        {"tenant": "acme", "metric": metric, "window": "minute", "amount": 1_000_000, **level}
        for level in LEVELS
        for metric in ("requests", "tokens")
    ],
    "budgets": [{"tenant": "acme", "period": "month", "amount_usd": "100", **level} for level in LEVELS],
}
# What differs from one run to the next.
OWN = ("request_id", "started_at_ns", "duration_ns", "admission_ns", "charge_offsets_ns", "wait_ns", "gateway")
TIMED = (*OWN, "number", "ttft_ns")


class Pair:
    """Two gateways that are asked the same, one of which has no short way."""

    def __init__(self, short, long, monkeypatch):
        self.short, self.long = short, long
        self.taken: list[bool] = []
        lane, take = short.gateway._lane, short.gateway._lane.take

        def seen(exchange):
            call = take(exchange)
            self.taken.append(call is not None)
            return call

        monkeypatch.setattr(lane, "take", seen)
        monkeypatch.setattr(long.gateway._lane, "take", lambda exchange: None)

    async def ask(self, **fields):
        """Ask both; give the shorter way's answer, which must be the other's but for ids and times."""
        short, long = [await each.chat(model="mock", **fields) for each in (self.short, self.long)]
        assert (short.status, told(short)) == (long.status, told(long))
        if short.status == 200:
            assert short.body == long.body
        else:
            assert without_times(short.error) == without_times(long.error)
        return short

    def compare_books(self):
        """Hold the two journals, and the counters, against each other."""
        for side in ("requests", "attempts"):
            ours, theirs = (list(map(facts, getattr(each, side)())) for each in (self.short, self.long))
            assert ours == theirs
        assert counters(self.short) == counters(self.long)
        for each in (self.short, self.long):
            gateway = each.gateway
            assert gateway.admission.in_flight == 0
            assert gateway._lane.open_grants == gateway._dispatcher.open_grants == 0


def told(answer):
    """Give an answer's headers, without what tells the time."""
    timed = ["x-request-id", "retry-after", "retry-after-ms"] + ["content-length"] * (answer.status != 200)
    return {name: value for name, value in answer.headers.items() if name not in timed and "-reset-" not in name}


def without_times(error):
    """Give an error without the wait that its message tells."""
    return {**error, "message": re.sub(r"in [\d.hms]+$", "", error["message"])}


def facts(record):
    given = msgspec.to_builtins(msgspec.structs.asdict(record))
    left_out = OWN if isinstance(record, RequestRecord) else TIMED
    return {name: value for name, value in given.items() if name not in left_out}


def counters(running):
    """Give what every counter says is used and reserved, by rule and subject."""
    gateway = running.gateway
    snapshot, now_ns = gateway.directory.snapshot, gateway._clock.wall_ns()
    [entry] = snapshot.keys.values()
    lines = gateway._lane.stages.limiter.plans.plan_for(entry.identity, "mock", snapshot).fixed
    found = {}
    for counter, _ in lines.all:
        state = counter.state(now_ns)
        found[counter.rule.scope.level, counter.rule.metric, counter.subject] = (state.used, state.reserved)
    return found


@pytest.fixture
async def pair(start_gateway, kit, upstream, monkeypatch):
    """A pair before one server, each with a connection that is idle and a key that is known."""

    async def start(*urls, **more):
        names = [f"u{number}" for number in range(len(urls) or 1)]
        targets = [
            kit.http_target(url, name, timeouts={"first_byte": 0.2, "between": 0.2})
            for url, name in zip(urls or (upstream.url,), names, strict=True)
        ]
        config = kit.configuration(("mock", targets), **{**RULES, **more})
        found = Pair(await start_gateway(config), await start_gateway(config), monkeypatch)
        upstream.then(upstream.whole(upstream.completion()))
        upstream.then(upstream.whole(upstream.completion()))
        await found.ask()
        assert found.taken == [False], "the first of a key goes the long way"
        found.taken.clear()
        return found

    return start


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"max_tokens": 64, "temperature": 0.5},
        {"max_completion_tokens": 5, "n": 3, "seed": 7, "stop": ["a"]},
        {"messages": [{"role": "user", "content": "h\u00e9llo \U0001f600" * 400}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}], "vendor": {"a": [1]}},
    ],
)
async def test_a_plain_chat_goes_the_short_way_and_is_accounted_for_alike(pair, upstream, fields):
    both = await pair()
    upstream.always(upstream.whole(upstream.completion("Hello", prompt=17, output=9)))
    for _ in range(3):
        assert (await both.ask(**fields)).status == 200
    assert both.taken == [True] * 3
    assert upstream.requests[-1].body == upstream.requests[-2].body
    both.compare_books()
    record = both.short.requests()[-1]
    assert (record.usage.input_tokens, record.usage.output_tokens) == (17, 9)
    assert record.cost_pico_usd == record.charged_pico_usd == 17 * 1_000_000 + 9 * 2_000_000
    assert (record.route, record.replica, record.model_version) == ("mock", "u0", "served-1")


@pytest.mark.parametrize(
    "fields",
    [
        {"stream": True},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"response_format": {"type": "json_object"}},
        {"user": "someone"},
        {"max_tokens": 0},
        {"messages": []},
        {"headers": {"x-tollkeeper-tags": "a=b"}},
        {"headers": {"traceparent": "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"}},
        {"headers": {"Content-Type": "text/plain"}},
        {"headers": {"Authorization": "Bearer tk-" + "x" * 43}},
        {"headers": {"Authorization": ""}},
    ],
)
async def test_what_asks_for_more_goes_the_long_way(pair, upstream, fields):
    both = await pair()
    upstream.always(upstream.whole(upstream.completion()))
    if fields.get("stream"):
        events = [upstream.chunk("Hi"), upstream.chunk(finish="stop"), upstream.usage(3, 1), upstream.event(b"[DONE]")]
        upstream.always(upstream.streamed(*events))
    await both.ask(**fields)
    assert both.taken == [False]
    asked = ("trace_id", "span_id", "gaps", "ttft_ns", "response_bytes")
    for each in (both.short, both.long):
        assert each.gateway.admission.in_flight == 0
    ours, theirs = (
        [{name: value for name, value in facts(one).items() if name not in asked} for one in each.requests()]
        for each in (both.short, both.long)
    )
    assert ours == theirs


ANSWERS = {
    "no usage": lambda up: up.whole(up.completion(usage=None)),
    "usage of another kind": lambda up: up.whole(up.completion(usage={"prompt_tokens": "many"})),
    "usage that contradicts itself": lambda up: up.whole(
        up.completion(usage={"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 9}})
    ),
    "no prompt counted": lambda up: up.whole(up.completion(prompt=0)),
    "nothing generated": lambda up: up.whole(up.completion("", output=0)),
    "cached and thought": lambda up: up.whole(
        up.completion(
            usage={
                "prompt_tokens": 30,
                "completion_tokens": 20,
                "total_tokens": 50,
                "prompt_tokens_details": {"cached_tokens": 10},
                "completion_tokens_details": {"reasoning_tokens": 5},
            }
        )
    ),
    "more than was reserved": lambda up: up.whole(up.completion(prompt=5000, output=70_000)),
    "cut": lambda up: up.whole(
        up.completion(choices=[{"index": 0, "message": {"content": "a"}, "finish_reason": "length"}])
    ),
    "in chunks": lambda up: (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
        + up.piece(json.dumps(up.completion()).encode())
        + up.END
    ),
    "and closed": lambda up: up.whole(up.completion(), headers="connection: close\r\n"),
    "400": lambda up: up.whole({"error": {"message": "too long"}}, 400),
    "401": lambda up: up.whole({"error": {"message": "bad key"}}, 401),
    "404": lambda up: up.whole({"error": {"message": "no such model"}}, 404),
    "429": lambda up: up.whole({"error": {"message": "slow down"}}, 429, headers="retry-after: 3\r\n"),
    "500": lambda up: up.whole({"error": {"message": "out of memory"}}, 500),
    "307": lambda up: up.whole({}, 307),
    "200 with an error": lambda up: up.whole({"error": {"message": "overloaded"}}),
    "no JSON": lambda up: up.whole(b"{"),
    "closed": lambda up: "close",
    "reset": lambda up: "reset",
    "silent": lambda up: "stall",
    "garbage": lambda up: b"not HTTP at all\r\n\r\n",
}


@pytest.mark.parametrize("answer", ANSWERS)
async def test_whatever_a_server_answers_it_is_told_and_charged_alike(pair, upstream, answer):
    both = await pair()
    upstream.always(ANSWERS[answer](upstream))
    await both.ask()
    assert both.taken == [True]
    both.compare_books()
    upstream.always(upstream.whole(upstream.completion()))
    assert (await both.ask()).status == 200
    both.compare_books()


@pytest.mark.parametrize("answer", ["429", "500", "401", "200 with an error", "closed", "reset", "silent", "garbage"])
async def test_the_next_server_takes_over_alike(pair, new_upstream, upstream, answer):
    second = await new_upstream()
    second.always(second.whole(second.completion("from the second")))
    both = await pair(upstream.url, second.url)
    upstream.always(ANSWERS[answer](upstream))
    for _ in range(4):  # each is first twice
        assert (await both.ask()).status == 200
    assert any(both.taken)
    both.compare_books()


async def test_a_client_that_leaves_ends_the_call_at_once_and_is_charged_alike(pair, upstream, eventually):
    both = await pair()
    upstream.always("stall")
    before = len(upstream.lost_at)
    for each in (both.short, both.long):
        client = await each.connect()
        await client.send(each.request(model="mock"))
        asked = len(upstream.requests)
        await eventually(lambda asked=asked: len(upstream.requests) > asked - 1)
        await asyncio.sleep(0.02)
        client.close()
    await eventually(lambda: len(upstream.lost_at) == before + 2)
    await eventually(lambda: len(both.short.requests()) == len(both.long.requests()) == 2)
    assert both.taken == [True]
    both.compare_books()
    assert both.short.requests()[-1].outcome == "cancelled"


async def test_a_connection_that_the_server_has_just_closed_costs_nobody_an_answer(pair, upstream):
    both = await pair()
    upstream.then("close")
    upstream.always(upstream.whole(upstream.completion()))
    assert (await both.short.chat(model="mock")).status == 200
    assert both.taken == [True]
    assert [record.attempts for record in both.short.requests()] == [1, 1]


@pytest.mark.parametrize(("amount", "statuses"), [(2, [200, 429, 429]), (3, [200, 200, 429])])
async def test_a_limit_holds_on_the_short_way_below_at_and_above_it(pair, upstream, amount, statuses):
    limits = [{"tenant": "acme", "level": "tenant", "metric": "requests", "window": "hour", "amount": amount}]
    both = await pair(limits=limits, budgets=[])
    upstream.always(upstream.whole(upstream.completion()))
    assert [(await both.ask()).status for _ in range(3)] == statuses
    both.compare_books()


async def test_a_budget_that_is_nearly_spent_is_left_to_the_long_way(pair, upstream):
    budgets = [{"tenant": "acme", "level": "tenant", "period": "month", "amount_usd": "0.0001"}]
    both = await pair(limits=[], budgets=budgets)
    upstream.always(upstream.whole(upstream.completion(prompt=3, output=10)))
    statuses = [(await both.ask()).status for _ in range(6)]
    assert statuses[0] == 200 and statuses[-1] == 429
    assert not any(both.taken), "what could cut an answer is not there whole"
    both.compare_books()


async def test_without_any_rule_there_is_nothing_to_charge(pair, upstream):
    both = await pair(limits=[], budgets=[])
    upstream.always(upstream.whole(upstream.completion()))
    await both.ask()
    assert both.taken == [True]
    ours, theirs = ([facts(one) for one in each.requests()] for each in (both.short, both.long))
    assert ours == theirs
    assert both.short.requests()[-1].reserved_tokens is None


async def test_a_key_that_is_revoked_is_refused_at_the_next_request(pair, upstream):
    both = await pair()
    upstream.always(upstream.whole(upstream.completion()))
    await both.ask()
    for each in (both.short, both.long):
        directory = each.gateway.directory
        directory.snapshot = replace(directory.snapshot, keys={})
    assert (await both.ask()).status == 401
    assert both.taken == [True, False]


async def test_a_fault_of_the_short_way_is_an_answer_and_not_a_lost_connection(pair, upstream, monkeypatch, caplog):
    both = await pair()
    upstream.always(upstream.whole(upstream.completion()))

    def broken(*_):
        raise RuntimeError("a bug")

    monkeypatch.setattr("gateway.lane.quick_call.learn_ratio", broken)
    answer = await both.short.chat(model="mock")
    assert (answer.status, answer.error["code"]) == (500, "internal_error")
    assert both.short.requests()[-1].outcome == "error"
    assert both.short.gateway.admission.in_flight == both.short.gateway._lane.open_grants == 0
    monkeypatch.setattr(QuickLane, "_lane_for", broken)
    assert (await both.short.chat(model="mock")).status == 200
    assert "the short way failed" in caplog.text


async def test_a_client_that_leaves_as_its_request_is_handed_over_is_recorded_all_the_same(
    pair, upstream, monkeypatch, eventually
):
    both = await pair()
    lane, calls = both.short.gateway._lane, []
    take, start = lane.take, lane.start

    def seen(exchange):
        calls.append(take(exchange))
        return calls[-1]

    def started_and_left(serving):
        asyncio.get_running_loop().call_soon(lambda: calls[-1].cancel())  # before the task's first step
        return start(serving)

    monkeypatch.setattr(lane, "take", seen)
    monkeypatch.setattr(lane, "start", started_and_left)
    for answer in ({"usage": None}, {"error": {"message": "no"}, "choices": None}):
        upstream.always(upstream.whole(upstream.completion(**answer)))
        known = len(both.short.requests())
        client = await both.short.connect()
        await client.send(both.short.request(model="mock"))
        await eventually(lambda known=known: len(both.short.requests()) > known)
        client.close()
    assert both.short.gateway.admission.in_flight == both.short.gateway._lane.open_grants == 0
    records = both.short.requests()[1:]
    assert [record.outcome for record in records] == ["cancelled", "cancelled"]
    assert all(reserved == 0 for _, reserved in counters(both.short).values())


@pytest.mark.parametrize("depth", [900, 946, 947, 948, 949])
async def test_a_reply_at_the_readers_end_of_depth_has_an_answer(pair, upstream, depth):
    both = await pair()
    said = '{"choices":[{"index":0,"message":{"content":' + "[" * depth + "]" * depth + '},"finish_reason":"stop"}]}'
    upstream.always(upstream.whole(said.encode()))
    assert (await both.short.chat(model="mock")).status in (200, 502)  # where the end is depends on who reads
    assert both.short.gateway.admission.in_flight == both.short.gateway._lane.open_grants == 0
    assert len(both.short.requests()) == 2


async def test_what_cannot_be_sent_is_given_back_before_the_long_way_takes_it(pair, upstream, monkeypatch):
    both = await pair()
    upstream.always(upstream.whole(upstream.completion()))

    def broken(*_):
        raise RuntimeError("a bug")

    monkeypatch.setattr(both.short.target("mock", "u0"), "send_at_once", broken)
    assert (await both.ask()).status == 200
    both.compare_books()


async def test_a_record_is_written_once_whatever_is_told_of_it(pair, upstream, monkeypatch):
    both = await pair()
    upstream.always(upstream.whole(upstream.completion()))

    def broken(record):
        raise RuntimeError("a bug")

    monkeypatch.setattr(both.short.gateway.recorder, "_emit_span", broken)
    assert (await both.ask()).status == 200
    both.compare_books()


async def test_the_headers_of_limits_tell_of_the_moment_the_request_was_let_in(pair, upstream):
    limits = [{"tenant": "acme", "level": "tenant", "metric": "requests", "window": "second", "amount": 100}]
    both = await pair(limits=limits, budgets=[])
    upstream.always(0.15, upstream.whole(upstream.completion()))
    slow = asyncio.create_task(both.short.chat(model="mock"))
    await asyncio.sleep(0.1)
    await both.short.chat(model="mock")
    told_seconds = (await slow).headers["x-ratelimit-reset-requests"].removesuffix("s")
    assert float(told_seconds) <= 1.025, "a window and a bucket, whenever the reply came"


async def test_only_plans_in_force_of_known_keys_are_kept(pair, upstream):
    both = await pair()
    upstream.always(upstream.whole(upstream.completion()))
    lane, directory = both.short.gateway._lane, both.short.gateway.directory
    for number in range(3):
        await both.short.chat(model="mock", headers={"Authorization": f"Bearer tk-{number}" + "x" * 42})
    assert not lane._plans
    await both.short.chat(model="mock")
    assert len(lane._plans) == 1
    directory.snapshot = replace(directory.snapshot)
    await both.short.chat(model="mock", headers={"Authorization": "Bearer tk-" + "y" * 43})
    assert not lane._plans


async def test_a_request_leaves_nothing_to_the_cycle_collector(pair, upstream):
    both = await pair()
    upstream.always(upstream.whole(upstream.completion()))
    await both.short.chat(model="mock")
    gc.collect()
    gc.disable()
    try:
        for reply in (upstream.completion(), upstream.completion(usage=None)):
            upstream.always(upstream.whole(reply))
            for _ in range(3):
                await both.short.chat(model="mock")
        await asyncio.sleep(0.01)
        assert not [one for one in gc.get_objects() if isinstance(one, QuickCall)]
    finally:
        gc.enable()


@pytest.mark.parametrize("status", [401, 403])
async def test_credentials_that_are_refused_and_the_same_are_not_tried_again(pair, upstream, status):
    both = await pair()
    upstream.always(upstream.whole({"error": {"message": "no"}}, status))
    before = len(upstream.requests)
    await both.ask()
    assert len(upstream.requests) == before + 2, "one of each gateway"
    both.compare_books()


async def test_a_request_that_makes_a_server_close_is_sent_twice_at_the_most(pair, upstream):
    both = await pair()
    upstream.always(upstream.whole(upstream.completion()))
    await asyncio.gather(*(both.short.chat(model="mock") for _ in range(4)))  # so many connections are idle
    upstream.always("close")
    before = len(upstream.requests)
    assert (await both.short.chat(model="mock")).status == 502
    assert len(upstream.requests) == before + 2
