"""What leaves its plan, or fails under it: nothing stays taken, nothing is written twice, someone answers."""

import asyncio
import gc
from dataclasses import replace

import pytest

from tests.gateway.request.pair import counters, requests_in_memory


@pytest.mark.interpreted
async def test_a_fault_of_a_plan_is_an_answer_and_not_a_lost_connection(pair, upstream, monkeypatch, caplog):
    both = await pair()
    upstream.always(upstream.whole(upstream.completion()))

    def broken(*_):
        raise RuntimeError("a bug")

    monkeypatch.setattr("gateway.replies.reply.served_headers", broken)
    answer = await both.short.chat(model="mock")
    assert (answer.status, answer.error["code"]) == (500, "internal_error")
    assert both.short.requests()[-1].outcome == "error"
    assert both.short.gateway.admission.in_flight == both.short.gateway._dispatcher.open_grants == 0
    monkeypatch.undo()
    monkeypatch.setattr("gateway.request.plans.plans.Plans.plan_for", broken)
    assert (await both.short.chat(model="mock")).status == 200
    assert "a request's plan failed" in caplog.text


@pytest.mark.interpreted
@pytest.mark.parametrize(
    ("step", "status", "held"),
    # What is held is given back by the step that charges: if that fails, nothing else can.
    [("_price", 500, 0), ("_charge", 500, 1), ("_prepare", 500, 0), ("_record", 200, 0)],
)
async def test_a_request_whose_end_fails_is_answered_and_keeps_nothing(
    pair, upstream, monkeypatch, caplog, step, status, held
):
    both = await pair()
    upstream.always(upstream.whole(upstream.completion()))

    def broken(*_):
        raise RuntimeError("a bug")

    for one in (both.short, both.long):  # with a plan, and in a task
        monkeypatch.setattr(one.gateway._dispatcher.finish, step, broken)
        async with asyncio.timeout(30):
            assert (await one.chat(model="mock")).status == status
        assert one.gateway._dispatcher.open_grants == one.gateway.admission.in_flight == held
    assert "a bug" in caplog.text
    monkeypatch.undo()
    assert [(await one.chat(model="mock")).status for one in (both.short, both.long)] == [200, 200]


@pytest.mark.interpreted
async def test_what_fails_after_an_answer_takes_nothing_from_it(pair, upstream, monkeypatch, caplog):
    both = await pair()
    upstream.always(upstream.whole(upstream.completion()))

    def broken(*_):
        raise RuntimeError("a bug")

    monkeypatch.setattr("gateway.request.plans.forecast.learn_ratio", broken)
    assert [(await both.short.chat(model="mock")).status for _ in range(2)] == [200, 200]
    assert [record.outcome for record in both.short.requests()[-2:]] == ["ok", "ok"]
    assert "a request could not be counted" in caplog.text


async def test_a_client_that_leaves_as_its_request_is_handed_over_is_recorded_all_the_same(
    pair, upstream, monkeypatch, eventually
):
    both = await pair()
    dispatcher = both.short.gateway._dispatcher
    start, dispatcher.lives = dispatcher.start, []

    def started_and_left(serving):
        asyncio.get_running_loop().call_soon(lambda: dispatcher.lives[-1].cancel())  # before the task's first step
        return start(serving)

    monkeypatch.setattr(dispatcher, "start", started_and_left)
    for answer in (upstream.whole(upstream.completion(error={"message": "no"}, choices=None)), "reset"):
        upstream.always(answer)
        known = len(both.short.requests())
        client = await both.short.connect()
        await client.send(both.short.request(model="mock"))
        await eventually(lambda known=known: len(both.short.requests()) > known)
        client.close()
    assert both.short.gateway.admission.in_flight == both.short.gateway._dispatcher.open_grants == 0
    records = both.short.requests()[1:]
    assert [record.outcome for record in records] == ["cancelled", "cancelled"]
    assert all(reserved == 0 for _, reserved in counters(both.short).values())


@pytest.mark.parametrize("depth", [900, 946, 947, 948, 949])
async def test_a_reply_at_the_readers_end_of_depth_has_an_answer(pair, upstream, depth):
    both = await pair()
    said = '{"choices":[{"index":0,"message":{"content":' + "[" * depth + "]" * depth + '},"finish_reason":"stop"}]}'
    upstream.always(upstream.whole(said.encode()))
    assert (await both.short.chat(model="mock")).status in (200, 502)  # where the end is depends on who reads
    assert both.short.gateway.admission.in_flight == both.short.gateway._dispatcher.open_grants == 0
    assert len(both.short.requests()) == 2


@pytest.mark.interpreted
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

    def broken(record, life):
        raise RuntimeError("a bug")

    monkeypatch.setattr(both.short.gateway.recorder, "_emit_spans", broken)
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
    plans, directory = both.short.gateway._dispatcher.plans, both.short.gateway.directory
    for number in range(3):
        await both.short.chat(model="mock", headers={"Authorization": f"Bearer tk-{number}" + "x" * 42})
    assert not plans.known
    await both.short.chat(model="mock")
    assert len(plans.known) == 1
    directory.snapshot = replace(directory.snapshot)
    await both.short.chat(model="mock", headers={"Authorization": "Bearer tk-" + "y" * 43})
    assert not plans.known


async def test_a_request_leaves_nothing_to_the_cycle_collector(pair, upstream):
    both = await pair()
    upstream.always(upstream.whole(upstream.completion()))
    await both.short.chat(model="mock")
    gc.freeze()  # what other tests left is not looked at
    gc.disable()
    try:
        for reply in (upstream.completion(), upstream.completion(usage=None)):
            upstream.always(upstream.whole(reply))
            for _ in range(3):
                await both.short.chat(model="mock")
        await asyncio.sleep(0.01)
        assert requests_in_memory() == 0
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
