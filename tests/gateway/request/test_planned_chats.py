"""Whole chats by a plan: what they are answered, charged and recorded as is what all stages would do."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from tests.gateway.request.pair import facts


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
async def test_a_plain_chat_goes_by_a_plan_and_is_accounted_for_alike(pair, upstream, fields):
    both = await pair()
    upstream.always(upstream.whole(upstream.completion("Hello", prompt=17, output=9)))
    for _ in range(3):
        assert (await both.ask(**fields)).status == 200
    assert both.taken == [True] * 3
    assert upstream.requests[-1].body == upstream.requests[-2].body
    both.compare_books()
    for record in both.short.requests():  # whichever of the two packed it: the pair does not compare times
        assert 0 < record.admission_ns < record.duration_ns < 60 * 10**9 < record.started_at_ns
    assert (record.usage.input_tokens, record.usage.output_tokens) == (17, 9)
    assert record.cost_pico_usd == record.charged_pico_usd == 17 * 1_000_000 + 9 * 2_000_000
    assert (record.route, record.replica, record.model_version) == ("mock", "u0", "served-1")


TRACE = {"traceparent": "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01", "tracestate": "vendor=1"}
SAID: dict[str, dict[str, Any]] = {
    "a trace": {"headers": TRACE},
    "a trace that is not sampled": {"headers": {"traceparent": "00-" + "ab" * 16 + "-" + "cd" * 8 + "-00"}},
    "a trace that is none": {"headers": {"traceparent": "00-" + "zz" * 16 + "-" + "cd" * 8 + "-01"}},
    "tags": {"headers": {"x-tollkeeper-tags": "feature=search, team=eu"}},
    "its end user": {"user": "someone"},
    "an end user with a long name": {"user": "u" * 256},
    "a class": {"headers": {"x-tollkeeper-priority": "batch"}},
    "a better class than its key may have": {"headers": {"x-tollkeeper-priority": "interactive"}},
    "a run and a conversation": {
        "headers": {"x-tollkeeper-run-id": "r" * 120, "x-tollkeeper-conversation-id": "talk"},
    },
    "everything at once": {
        "user": "ada",
        "headers": {
            **TRACE,
            "x-tollkeeper-tags": "a=b",
            "x-tollkeeper-priority": "standard",
            "x-tollkeeper-run-id": "r",
            "x-tollkeeper-conversation-id": "c",
        },
    },
}


@pytest.mark.parametrize("choices", [1, 2])
@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("said", SAID)
async def test_what_a_caller_says_of_a_request_is_recorded_and_passed_on_alike(
    pair, upstream, said, is_streamed, choices
):
    both = await pair()
    upstream.always(upstream.whole(upstream.completion()))
    fields = {**SAID[said], "n": choices}
    if is_streamed:
        chunks = [upstream.chunk("Hi", index=index) for index in range(choices)]
        ends = [upstream.chunk(finish="stop", index=index) for index in range(choices)]
        upstream.always(upstream.streamed(*chunks, *ends, upstream.usage(3, 1), upstream.event(b"[DONE]")))
        fields["stream"] = True
    for _ in range(2):
        await both.ask(**fields)
    assert both.taken == [True] * 2
    compare(both)
    for each in (both.short, both.long):
        record = each.requests()[-1]
        assert record.span_id == (record.request_id[8:] if record.trace_id else b"")
    sent = [{name: asked.headers.get(name, "") for name in TRACE} for asked in upstream.requests[-4:]]
    traces = [one["traceparent"][:36] + one["traceparent"][52:] for one in sent]
    assert len(set(traces)) == len({one["tracestate"] for one in sent}) == 1
    assert bool(traces[0]) == bool(record.trace_id)


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tokens": 0},
        {"messages": []},
        {"headers": {"x-tollkeeper-tags": "a"}},
        {"headers": {"x-tollkeeper-priority": "urgent"}},
        {"headers": {"x-tollkeeper-latency-budget-ms": "100"}},
        {"headers": {"Content-Type": "text/plain"}},
        {"headers": {"Authorization": "Bearer tk-" + "x" * 43}},
        {"headers": {"Authorization": ""}},
    ],
)
async def test_what_asks_for_more_goes_the_long_way(pair, upstream, fields):
    both = await pair()
    upstream.always(upstream.whole(upstream.completion()))
    await both.ask(**fields)
    assert both.taken == [False]
    for each in (both.short, both.long):
        assert each.gateway.admission.in_flight == 0
    compare(both)


def compare(both):
    """Hold the records of two gateways against each other, but for what is each one's own or is timed."""
    own = ("span_id", "gaps", "ttft_ns", "response_bytes")
    ours, theirs = (
        [{name: value for name, value in facts(one).items() if name not in own} for one in each.requests()]
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
async def test_a_limit_holds_with_a_plan_below_at_and_above_it(pair, upstream, amount, statuses):
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


async def test_what_a_second_of_requests_share_is_made_again_before_one_has_to_wait_for_it(pair, upstream):
    both = await pair()
    upstream.always(upstream.whole(upstream.completion("Hello")))
    assert (await both.ask()).status == 200
    plans = both.short.gateway._dispatcher.plans
    [(name, plan)] = plans.known.items()
    plans.freshen(*name, plan.stale_ns - 1)
    assert plans.known[name] is plan
    plans.freshen(*name, plan.stale_ns)
    fresh = plans.known[name]
    assert fresh is not plan and fresh.until_ns > plan.until_ns
    [before], [after] = plan.plan.targets.values(), fresh.plan.targets.values()
    assert after.template is before.template, "what packs records stays"
    plans.known.clear()
    plans.freshen(*name, fresh.stale_ns)
    assert not plans.known, "nobody has asked since the configuration changed"


async def test_a_stale_plan_is_made_again_once_a_request_that_met_it_has_ended(pair, upstream, eventually):
    both = await pair()
    upstream.always(upstream.whole(upstream.completion("Hello")))
    assert (await both.ask()).status == 200
    plans = both.short.gateway._dispatcher.plans
    [(name, plan)] = plans.known.items()
    assert (await both.ask()).status == 200
    assert plans.known[name] is plan or plan.until_ns <= both.short.gateway._clock.wall_ns()
    plans.known[name].stale_ns = 0
    met = plans.known[name]
    assert (await both.ask()).status == 200
    await eventually(lambda: plans.known[name] is not met)


async def test_plans_let_counters_go_once_a_request_has_ended_after_these_were_looked_through(
    pair, upstream, eventually
):
    both = await pair()
    upstream.always(upstream.whole(upstream.completion("Hello")))
    assert (await both.ask()).status == 200
    plans, store = both.short.gateway._dispatcher.plans, both.short.gateway._dispatcher.stages.limiter.store
    await eventually(lambda: plans.generation == store.generation)
    assert plans.known
    store.generation += 1
    assert (await both.ask()).status == 200
    await eventually(lambda: not plans.known and plans.generation == store.generation)
    assert (await both.ask()).status == 200
    assert plans.known and both.taken == [True, True, True]
