"""Gateways that share counters through Redis: together they never charge more than the rules allow."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from contracts.errors import ConfigurationError
from contracts.rules.limits import MAX_AMOUNT, BudgetAdjustment, Rule
from gateway.limits.counters.base import Shortage
from tests.backends.counters.redis_server import RedisServer, happens
from tests.gateway.limits.counting import budget, conversation, limit, slots
from tests.gateway.limits.redis_gateways import Gateways, admit, monotonic_ns, now_ns, now_seconds

pytestmark = pytest.mark.service

SECOND_NS = 1_000_000_000
EXPIRY_SECONDS = 4.0  # of `Gateways`, unless told otherwise
LEASE_SECONDS = 90.0  # of a budget, of time in which Redis answers: it covers a minute without


@pytest.fixture
async def gateways(redis_server: RedisServer) -> AsyncIterator[Gateways]:
    opened = Gateways(redis_server)
    yield opened
    await opened.close()


async def test_no_window_of_four_gateways_is_overcharged_and_little_is_left(gateways: Gateways):
    rule = limit(4000, "second")
    stores = [await gateways.start(name) for name in ("a", "b", "c", "d")]
    charges: list[tuple[int, int]] = []
    rng = random.Random(7)
    began_ns = monotonic_ns()
    until_ns = began_ns + 4 * SECOND_NS

    async def client(number: int) -> None:
        store = stores[number % 4]
        while monotonic_ns() < until_ns:
            amount = rng.randint(1, 120)
            taken = await admit(store, [(store.open(rule, ""), amount)])
            if isinstance(taken, Shortage):
                assert taken.wait_seconds is not None and not taken.reason, taken
                await asyncio.sleep(min(taken.wait_seconds, 0.05))
            else:
                charges.append((monotonic_ns(), amount))
                await asyncio.sleep(0)

    await asyncio.gather(*(client(number) for number in range(40)))
    charges.sort()
    first, used, most = 0, 0, 0
    for at_ns, amount in charges:
        used += amount
        # A charge is timed by the test some microseconds after the store has: as much is left open at the window's end.
        while charges[first][0] <= at_ns - SECOND_NS + 1_000_000:
            used -= charges[first][1]
            first += 1
        most = max(most, used)
    assert most <= rule.amount
    settled = [amount for at_ns, amount in charges if began_ns + SECOND_NS <= at_ns < began_ns + 4 * SECOND_NS]
    assert sum(settled) >= 0.85 * 3 * rule.amount


async def test_a_hard_budget_is_spent_by_four_gateways_to_the_last_and_never_above(gateways: Gateways):
    rule = budget(10_000_000_000_000_000_000 // 17, "month")
    stores = [await gateways.start(name) for name in ("a", "b", "c", "d")]
    rng = random.Random(11)
    spent, held, refused = 0, 0, 0
    until = now_seconds() + 30

    async def client(number: int) -> None:
        nonlocal spent, held, refused
        store = stores[number % 4]
        counter = store.open(rule, "team")
        while now_seconds() < until and spent < 0.998 * rule.amount:
            amount = rng.randint(1, rule.amount // 500)
            taken = await admit(store, [(counter, amount)])
            if isinstance(taken, Shortage):
                refused += 1
                await asyncio.sleep(0.02)
                continue
            held += amount
            assert spent + held <= rule.amount
            await asyncio.sleep(rng.random() * 0.02)
            charged = rng.randint(0, amount)
            counter.settle(taken[0], amount, charged, now_ns())
            held, spent = held - amount, spent + charged

    await asyncio.gather(*(client(number) for number in range(24)))
    assert spent <= rule.amount
    assert spent >= 0.98 * rule.amount


async def test_slots_of_several_gateways_are_never_more_than_the_limit(gateways: Gateways):
    rule = slots(7)
    stores = [await gateways.start(name) for name in ("a", "b", "c")]
    running, most, served = 0, 0, 0
    until = now_seconds() + 1.5
    patience = until + 30

    async def client(number: int) -> None:
        nonlocal running, most, served
        store = stores[number % 3]
        counter = store.open(rule, "")
        while now_seconds() < until or (served <= 100 and now_seconds() < patience):
            taken = await admit(store, [(counter, 1)])
            if isinstance(taken, Shortage):
                await asyncio.sleep(0.01)
                continue
            running += 1
            most, served = max(most, running), served + 1
            await asyncio.sleep(0.01)
            running -= 1
            counter.settle(taken[0], 1, 0, now_ns())
            await asyncio.sleep(0)

    await asyncio.gather(*(client(number) for number in range(20)))
    assert most <= 7
    assert served > 100


async def test_most_requests_make_no_round_trip_at_a_steady_load(gateways: Gateways):
    store = await gateways.start("a")
    rules: list[Rule] = [
        limit(10_000_000, "minute"),
        limit(100_000, "minute", metric="requests", name="rpm"),
        limit(100_000_000, "day", name="tpd"),
        slots(500),
        budget(10**15),
    ]
    lines = [(store.open(rule, ""), amount) for rule, amount in zip(rules, (900, 1, 900, 1, 10**9), strict=True)]
    began = now_seconds()
    asked: object = 0
    for number in range(1000):
        if number == 200:
            asked = store.status()["requests_with_round_trip"]  # the rates are known by now
        taken = await admit(store, lines)
        assert not isinstance(taken, Shortage)
        for (counter, amount), mark in zip(lines, taken, strict=True):
            counter.settle(mark, amount, amount // 2, now_ns())
        await asyncio.sleep(max(began + number / 500 - now_seconds(), 0))
    now_asked = store.status()["requests_with_round_trip"]
    assert isinstance(asked, int) and isinstance(now_asked, int)
    assert now_asked - asked <= 80


async def test_who_waits_as_told_is_admitted_by_whichever_gateway(gateways: Gateways):
    rule = limit(10, "second")
    first, second = await gateways.start("a"), await gateways.start("b")
    assert not isinstance(await admit(first, [(first.open(rule, ""), 10)]), Shortage)
    refused = await admit(first, [(first.open(rule, ""), 10)], "key")
    assert isinstance(refused, Shortage)
    assert refused.is_held and refused.wait_seconds is not None
    await asyncio.sleep(refused.wait_seconds)
    assert isinstance(await admit(first, [(first.open(rule, ""), 10)], "another"), Shortage)
    assert not isinstance(await admit(second, [(second.open(rule, ""), 10)], "key"), Shortage)


async def test_a_conversation_is_guarded_across_gateways(gateways: Gateways):
    rule = conversation(100)
    first, second = await gateways.start("a"), await gateways.start("b")
    counter = first.open(rule, "key/chat")
    taken = await admit(first, [(counter, 60)])
    assert not isinstance(taken, Shortage)
    counter.settle(taken[0], 60, 60, now_ns())
    assert isinstance(await admit(second, [(second.open(rule, "key/chat"), 41)]), Shortage)
    assert not isinstance(await admit(second, [(second.open(rule, "key/chat"), 40)]), Shortage)


@pytest.mark.parametrize(
    ("rules", "held_seconds"),
    [([slots(5), conversation(50)], EXPIRY_SECONDS), ([budget(1000)], LEASE_SECONDS)],
    ids=["slots and conversations", "budgets"],
)
async def test_a_killed_gateway_holds_nothing_after_its_expiry(
    redis_server: RedisServer, rules: list[Rule], held_seconds: float
):
    gateways = Gateways(redis_server)
    first, second = await gateways.start("a"), await gateways.start("b")
    lost = [(first.open(rule, "c"), rule.amount) for rule in rules]
    taken = await admit(first, lost)
    assert not isinstance(taken, Shortage)
    wanted = [(second.open(rule, "c"), rule.amount) for rule in rules]
    for line in wanted:
        assert isinstance(await admit(second, [line]), Shortage)
    await gateways.kill(first)
    began = now_seconds()
    while isinstance(await admit(second, wanted), Shortage):
        assert now_seconds() - began < held_seconds + 2.0
        await asyncio.sleep(0.05)
    await gateways.close()


async def test_what_a_killed_gateway_had_settled_stays_spent(redis_server: RedisServer):
    gateways = Gateways(redis_server)
    first, second = await gateways.start("a"), await gateways.start("b")
    counter = first.open(budget(1000), "")
    taken = await admit(first, [(counter, 700)])
    assert not isinstance(taken, Shortage)
    counter.settle(taken[0], 700, 600, now_ns())
    await asyncio.sleep(0.4)  # more than one report
    await gateways.kill(first)
    await asyncio.sleep(LEASE_SECONDS + 2.0)
    again = second.open(budget(1000), "")
    assert isinstance(await admit(second, [(again, 401)]), Shortage)
    assert not isinstance(await admit(second, [(again, 400)]), Shortage)
    await gateways.close()


async def test_a_gateway_that_comes_back_goes_on_with_what_it_had_settled(gateways: Gateways):
    first = await gateways.start("a")
    counter = first.open(budget(1000), "")
    taken = await admit(first, [(counter, 600)])
    assert not isinstance(taken, Shortage)
    counter.settle(taken[0], 600, 600, now_ns())
    await gateways.stop(first)
    back = await gateways.start("a")
    again = back.open(budget(1000), "")
    start_ns = next(iter(back.budgets())).period_start_ns
    assert isinstance(await admit(back, [(again, 401)]), Shortage)
    start_ns = next(iter(back.budgets())).period_start_ns
    assert start_ns is not None
    # Its own books may know more than it had told Redis, and never count twice.
    assert next(iter(back.budgets())).restore(start_ns, 650)
    assert isinstance(await admit(back, [(again, 351)]), Shortage)
    assert not isinstance(await admit(back, [(again, 350)]), Shortage)
    other = await gateways.start("b")
    assert isinstance(await admit(other, [(other.open(budget(1000), ""), 1)]), Shortage)


async def test_thresholds_are_told_of_what_all_gateways_have_settled(gateways: Gateways):
    told: list[tuple[int, int]] = []
    first = await gateways.start("a")
    second = await gateways.start("b", on_settled=lambda counter, before, after: told.append((before, after)))
    for store in (first, second):
        counter = store.open(budget(1000), "")
        taken = await admit(store, [(counter, 300)])
        assert not isinstance(taken, Shortage)
        counter.settle(taken[0], 300, 300, now_ns())
        await asyncio.sleep(0.3)
    assert told == [(300, 600)]


async def test_a_second_gateway_of_the_same_name_is_refused(gateways: Gateways):
    first = await gateways.start("a")
    with pytest.raises(ConfigurationError, match="another gateway runs under the name 'a'"):
        await gateways.start("a", expiry_seconds=1.0, timeout_seconds=0.2)
    await gateways.stop(first)
    await gateways.start("a")


async def test_a_gateway_started_again_under_the_name_of_one_that_was_killed_waits_until_that_has_expired(
    redis_server: RedisServer,
):
    gateways = Gateways(redis_server)
    await gateways.kill(await gateways.start("a"))
    began = now_seconds()
    await gateways.start("a")
    assert EXPIRY_SECONDS - 0.5 < now_seconds() - began < EXPIRY_SECONDS + 1.0
    await gateways.close()


async def test_a_gateway_that_leaves_gives_back_all_it_has_not_used(gateways: Gateways):
    first, second = await gateways.start("a"), await gateways.start("b")
    rules: list[Rule] = [limit(1000, "hour"), slots(10), budget(1000)]
    for rule in rules:
        counter = first.open(rule, "")
        for _ in range(5):
            taken = await admit(first, [(counter, 1)])
            assert not isinstance(taken, Shortage)
            counter.settle(taken[0], 1, 1, now_ns())
    await gateways.stop(first)
    for rule, left in zip(rules, (995, 10, 995), strict=True):
        assert not isinstance(await admit(second, [(second.open(rule, ""), left)]), Shortage)
        assert isinstance(await admit(second, [(second.open(rule, ""), 1)]), Shortage)


async def test_what_is_not_in_demand_is_given_back_in_the_background(gateways: Gateways):
    first, second = await gateways.start("a"), await gateways.start("b")
    rule = budget(1000)
    for _ in range(20):
        assert not isinstance(await admit(first, [(first.open(rule, ""), 10)]), Shortage)
    grant = first.open(rule, "").grant  # type: ignore[attr-defined]
    await happens(lambda: grant.spare > 100, "leasing for a minute", 2)
    await happens(lambda: grant.spare <= 8, "giving back all but a hundredth of what is left", 75)
    await admit(second, [(second.open(rule, ""), 800)])  # tells the first that others are short
    await happens(lambda: not grant.spare, "giving back the rest", 12)
    assert not isinstance(await admit(second, [(second.open(rule, ""), 800)]), Shortage)


@pytest.mark.parametrize(
    "rule", [limit(MAX_AMOUNT, "hour", metric="pico_usd"), budget(MAX_AMOUNT), conversation(MAX_AMOUNT)]
)
async def test_amounts_are_exact_up_to_the_greatest(gateways: Gateways, rule):
    first, second = await gateways.start("a"), await gateways.start("b")
    one, two = first.open(rule, "c"), second.open(rule, "c")
    assert isinstance(await admit(first, [(one, MAX_AMOUNT + 1)]), Shortage)
    taken = await admit(first, [(one, MAX_AMOUNT - 10**9 - 3)])
    assert not isinstance(taken, Shortage)
    assert isinstance(await admit(second, [(two, 10**9 + 4)]), Shortage)
    assert not isinstance(await admit(second, [(two, 10**9 + 2)]), Shortage)
    assert isinstance(await admit(first, [(one, 2)]), Shortage)
    assert not isinstance(await admit(first, [(one, 1)]), Shortage)
    for store, counter in ((first, one), (second, two)):
        assert isinstance(await admit(store, [(counter, 1)]), Shortage)
        assert counter.state(now_ns()).used == MAX_AMOUNT
    one.settle(taken[0], MAX_AMOUNT - 10**9 - 3, 7, now_ns())
    # The first gateway reports, hears that the second is short, and gives back what it had leased ahead.
    wanted = [(two, MAX_AMOUNT - 10**9 - 10)]
    until = now_seconds() + 10
    while isinstance(await admit(second, wanted), Shortage):
        assert now_seconds() < until
        await asyncio.sleep(0.05)
    assert isinstance(await admit(second, [(two, 1)]), Shortage)


async def test_idle_counters_are_forgotten_and_those_in_hand_are_not(gateways: Gateways):
    store = await gateways.start("a")
    rules: list[Rule] = [slots(10), limit(10, "second")]
    in_hand = [store.open(rule, "kept") for rule in rules]
    for rule in rules:
        for subject in ("one", "kept"):
            counter = store.open(rule, subject)
            taken = await admit(store, [(counter, 1)])
            assert not isinstance(taken, Shortage)
            counter.settle(taken[0], 1, 0, now_ns())
            del taken, counter
    assert store.status()["counters"] == 4
    await happens(lambda: store.status()["counters"] == 2, "forgetting", 15)
    assert [store.open(rule, "kept") for rule in rules] == in_hand


@pytest.mark.parametrize(("adjustment", "left"), [(-600, 600), (-1, 1), (0, 0)])
async def test_a_recount_gives_back_to_all_gateways_once(gateways: Gateways, adjustment: int, left: int):
    rule = budget(1000, "total")
    stores = [await gateways.start(name) for name in ("a", "b")]

    async def spend_all(spec: Rule) -> int:
        total = 0
        for _ in range(3):
            for store in stores:
                for amount in (200, 50, 1):
                    while not isinstance(taken := await admit(store, [(store.open(spec, ""), amount)]), Shortage):
                        store.open(spec, "").settle(taken[0], amount, amount, now_ns())
                        total += amount
            await asyncio.sleep(3)
        return total

    assert await spend_all(rule) == 1000
    recounted = replace(rule, adjustments=(BudgetAdjustment("", 0, adjustment),))
    assert await spend_all(recounted) == left
    assert {store.open(recounted, "").state(now_ns()).used for store in stores} == {1000}
