"""A late first token is asked for twice: one answer, both calls on the ledger, never more than a share of requests."""

import asyncio

import pytest

from contracts.errors import UpstreamError, UpstreamRejected
from contracts.metering.gaps import unpack_gaps
from gateway.routing.attempts.retry_budget import RetryBudget

HEDGED = {"hedge": {"least_seconds": 0.03, "share": 1.0}}


def hedged(kit, *targets, **failures):
    config = kit.configuration(("scripted-1", list(targets)))
    config["pools"][0]["failures"] = {**HEDGED, **failures}
    return config


def warm(gateway, seconds=0.001, times=20):
    """Let the pool have seen first tokens."""
    pool = gateway.gateway.health_book.pool("scripted-1")
    for _ in range(times):
        pool.firsts.add(round(seconds * 1e9))
    return pool


@pytest.mark.parametrize("streamed", [True, False])
async def test_the_second_answers_where_the_first_is_late_and_the_first_is_cancelled(
    start_gateway, kit, eventually, streamed
):
    slow = kit.scripted("slow", weight=1000, first_ms=60_000)
    gateway = await start_gateway(hedged(kit, slow, kit.scripted("quick", tokens=4)))
    pool = warm(gateway)
    answer = await gateway.chat(stream=streamed)
    assert answer.status == 200
    lost, won = gateway.attempts()
    assert (lost.replica, lost.number, lost.reason, lost.outcome) == ("slow", 1, "first", "cancelled")
    assert (won.replica, won.number, won.reason, won.outcome) == ("quick", 2, "hedge", "ok")
    assert lost.cost_pico_usd == 3 * 1_000_000, "the prompt that it had read, on its own row"
    [record] = gateway.requests()
    assert (record.replica, record.outcome, record.attempts) == ("quick", "ok", 2)
    assert record.cost_pico_usd == won.cost_pico_usd == 3 * 1_000_000 + 4 * 2_000_000
    assert len(unpack_gaps(record.gaps)) == 3
    assert (pool.hedges_won, pool.hedges_lost) == (1, 0)
    assert gateway.target("scripted-1", "slow").running == 0


async def test_nobody_is_asked_twice_where_the_pool_does_not_say_so(start_gateway, kit):
    targets = kit.scripted("first", weight=1000, first_ms=400, tokens=1), kit.scripted("second", tokens=1)
    gateway = await start_gateway(kit.configuration(("scripted-1", list(targets))))
    warm(gateway)
    assert (await gateway.chat(stream=True)).status == 200
    assert [(one.replica, one.attempts) for one in gateway.requests()] == [("first", 1)]


async def test_the_first_answers_where_it_is_ahead_after_all(start_gateway, kit):
    first = kit.scripted("first", weight=1000, first_ms=400, tokens=2)
    gateway = await start_gateway(hedged(kit, first, kit.scripted("second", first_ms=60_000)))
    pool = warm(gateway)
    assert (await gateway.chat(stream=True)).events[-1] == b"data: [DONE]"
    lost, won = gateway.attempts()
    assert (lost.replica, lost.reason, lost.outcome) == ("second", "hedge", "cancelled")
    assert (won.replica, won.reason, won.outcome) == ("first", "first", "ok")
    assert gateway.requests()[0].replica == "first"
    assert (pool.hedges_won, pool.hedges_lost) == (0, 1)


@pytest.mark.parametrize(("times", "second_is_asked"), [(19, False), (20, True)])
async def test_nobody_is_late_before_enough_first_tokens_were_seen(start_gateway, kit, times, second_is_asked):
    first = kit.scripted("first", weight=1000, first_ms=400, tokens=1)
    gateway = await start_gateway(hedged(kit, first, kit.scripted("second", tokens=1)))
    warm(gateway, times=times)
    await gateway.chat(stream=True)
    assert gateway.requests()[0].attempts == 1 + second_is_asked


async def test_a_first_token_within_the_quantile_is_not_late(start_gateway, kit):
    first = kit.scripted("first", weight=1000, first_ms=400, tokens=1)
    gateway = await start_gateway(hedged(kit, first, kit.scripted("second", tokens=1)))
    warm(gateway, seconds=5.0)
    await gateway.chat(stream=True)
    assert gateway.requests()[0].attempts == 1


async def test_a_client_that_leaves_ends_both_calls(start_gateway, kit, eventually):
    targets = [kit.scripted("first", weight=1000, first_ms=60_000), kit.scripted("second", first_ms=60_000)]
    gateway = await start_gateway(hedged(kit, *targets))
    warm(gateway)
    client = await gateway.connect()
    await client.send(kit.request(stream=True))
    both = [gateway.target("scripted-1", name) for name in ("first", "second")]
    await eventually(lambda: all(target.running for target in both))
    client.close()
    await eventually(lambda: not any(target.running for target in both) and gateway.requests())
    assert gateway.requests()[0].outcome == "cancelled"
    assert [attempt.outcome for attempt in gateway.attempts()] == ["cancelled", "cancelled"]


async def test_where_both_fail_a_third_is_asked(start_gateway, kit):
    first = kit.scripted("first", weight=1000, first_ms=300, fault="error")
    second = kit.scripted("second", weight=500, first_ms=300, fault="break")
    gateway = await start_gateway(hedged(kit, first, second, kit.scripted("third", tokens=1)))
    warm(gateway)
    assert (await gateway.chat(stream=True)).status == 200
    assert [(one.replica, one.reason) for one in gateway.attempts()] == [
        ("first", "first"),
        ("second", "hedge"),
        ("third", "fallback"),
    ]


async def test_no_more_than_a_share_of_requests_is_asked_twice(start_gateway, kit):
    first = kit.scripted("first", weight=1000, first_ms=400, tokens=1)
    gateway = await start_gateway(hedged(kit, first, kit.scripted("second", tokens=1)))
    pool = warm(gateway)
    pool.hedging = RetryBudget(share=0.1, per_second=0.0)
    await asyncio.gather(*[gateway.chat(stream=True) for _ in range(10)])
    assert (pool.hedging.spent, pool.hedging.refused) == (1, 9)


async def test_a_target_that_is_away_is_no_second(start_gateway, kit):
    first = kit.scripted("first", weight=1000, first_ms=400, tokens=1)
    gateway = await start_gateway(hedged(kit, first, kit.scripted("second", tokens=1)))
    warm(gateway)
    health = gateway.gateway.health_book.pool("scripted-1").targets["second"]
    health.breaker.open(gateway.gateway._clock.monotonic_ns(), "a test")
    health.look(gateway.gateway._clock.monotonic_ns())
    await gateway.chat(stream=True)
    assert gateway.requests()[0].attempts == 1


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_bug_at_a_racer_is_no_empty_answer(start_gateway, kit, monkeypatch, streamed):
    gateway = await start_gateway(hedged(kit, kit.scripted("first", weight=1000), kit.scripted("second")))
    warm(gateway)

    async def fail(target, call, sink):
        raise RuntimeError("a bug")

    monkeypatch.setattr(type(gateway.target("scripted-1", "first")), "call", fail)
    answer = await gateway.chat(stream=streamed)
    assert (answer.status, answer.error["code"]) == (500, "internal_error")
    assert gateway.requests()[0].outcome == "error"


def both_end(monkeypatch, gateway, first, second):
    """Let the first target raise `first` once the second is asked, and the second raise or do `second` after that."""
    is_asked, has_failed = asyncio.Event(), asyncio.Event()
    kind = type(gateway.target("scripted-1", "first"))
    answer = kind.call

    async def call(target, call, sink):
        if target.spec.id == "first":
            await is_asked.wait()
            has_failed.set()
            raise first
        is_asked.set()
        await has_failed.wait()
        if second is not None:
            raise second
        return await answer(target, call, sink)

    monkeypatch.setattr(kind, "call", call)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (UpstreamRejected("too long"), UpstreamError("it failed")),
        (UpstreamError("it failed"), UpstreamRejected("too long")),
    ],
)
async def test_what_no_other_target_can_mend_decides_a_race_that_nobody_wins(
    start_gateway, kit, monkeypatch, first, second
):
    targets = [kit.scripted("first", weight=1000), kit.scripted("second", weight=500), kit.scripted("third")]
    gateway = await start_gateway(hedged(kit, *targets))
    warm(gateway)
    both_end(monkeypatch, gateway, first, second)
    answer = await gateway.chat(stream=True)
    assert (answer.status, answer.error["code"]) == (400, UpstreamRejected.code)
    [record] = gateway.requests()
    assert record.attempts == 2 and record.replica == ("first" if isinstance(first, UpstreamRejected) else "second")


async def test_a_bug_at_the_loser_is_told_and_the_request_is_answered(start_gateway, kit, monkeypatch, caplog):
    gateway = await start_gateway(hedged(kit, kit.scripted("first", weight=1000), kit.scripted("second", tokens=1)))
    warm(gateway)
    both_end(monkeypatch, gateway, RuntimeError("a bug"), None)
    assert (await gateway.chat(stream=True)).status == 200
    assert [(one.replica, one.outcome) for one in gateway.attempts()] == [("first", "error"), ("second", "ok")]
    assert "a hedged call failed because of a fault of the gateway" in caplog.text


async def test_one_that_has_just_failed_the_request_is_no_second(start_gateway, kit):
    targets = [kit.scripted("failed", weight=1000, fault="error"), kit.scripted("slow", first_ms=400, tokens=1)]
    gateway = await start_gateway(hedged(kit, *targets))
    warm(gateway)
    assert (await gateway.chat(stream=True)).status == 200
    assert [(one.replica, one.reason) for one in gateway.attempts()] == [
        ("failed", "first"),
        ("slow", "fallback"),
    ]


async def test_one_whose_probes_keep_losing_is_not_waited_for_for_ever(start_gateway, kit):
    slow = kit.scripted("slow", weight=1000, first_ms=60_000)
    gateway = await start_gateway(hedged(kit, slow, kit.scripted("quick", tokens=1)))
    pool = warm(gateway)
    health = pool.targets["slow"]
    health.breaker.suspect("a test")
    health.look(gateway.gateway._clock.monotonic_ns())
    for number in range(3):
        assert health.breaker.state == "half_open"
        assert (await gateway.chat(stream=True)).status == 200
        assert gateway.requests()[-1].attempts == 2, number
    assert health.breaker.state == "open"
    await gateway.chat(stream=True)
    assert gateway.requests()[-1].attempts == 1
