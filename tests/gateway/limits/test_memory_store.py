"""What only the store in memory does: it forgets what is idle, and nothing that anybody still has in hand."""

import asyncio

import pytest

from contracts.rules.limits import BudgetSpec, LimitSpec
from gateway.limits.counters.memory_store import MemoryStore
from tests.gateway.limits.counting import SECOND_NS, ManualClock, budget, conversation, limit, slots

START_NS = 1_773_480_413 * SECOND_NS


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START_NS)


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock=clock.now_ns)


@pytest.mark.parametrize("rule", [limit(10), slots(10), conversation(10), budget(10)])
def test_an_idle_counter_is_forgotten(store: MemoryStore, rule: LimitSpec | BudgetSpec):
    store.open(rule, "a")
    store.open(rule, "b").take(1, START_NS)
    assert store.status()["counters"] == 2
    store.forget_idle(2)
    assert store.status()["counters"] == 1
    assert store.open(rule, "b").state(START_NS).used == 1


def test_a_counter_in_hand_is_never_doubled(store: MemoryStore):
    rule = limit(10)
    in_hand = store.open(rule, "a")
    store.forget_idle(1)
    in_hand.take(10, START_NS)
    assert store.open(rule, "a") is in_hand


async def test_idle_counters_in_hand_are_asked_back_every_ten_minutes(store: MemoryStore, clock: ManualClock):
    in_hand = store.open(limit(10), "a")
    store.forget_idle(1)
    assert store.generation == 0
    await clock.advance(600)
    store.forget_idle(1)
    assert store.generation == 1
    store.forget_idle(1)
    assert store.generation == 1
    del in_hand
    store.forget_idle(1)
    assert store.status()["counters"] == 0
    await clock.advance(6000)
    store.open(limit(10), "b")
    store.forget_idle(1)
    assert store.generation == 2  # for the one above, seen once more in hand before it was let go
    store.open(limit(10), "c")
    await clock.advance(6000)
    store.forget_idle(1)
    assert store.generation == 2


async def test_places_held_are_counted_until_they_lapse(store: MemoryStore, clock: ManualClock):
    counter = store.open(limit(10), "a")
    counter.take(10, START_NS)
    await store.seek_room([(counter, 5)], "key", START_NS)
    assert store.status() == {"kind": "memory", "counters": 1, "retry_slots": 1}
    await clock.advance(5)
    assert store.status()["retry_slots"] == 0
    del counter
    store.forget_idle(1)
    assert store.status()["counters"] == 0


def test_budgets_are_told_one_by_one_and_limits_not(store: MemoryStore):
    store.open(limit(10), "a")
    store.open(budget(10), "a")
    store.open(budget(10), "b")
    assert [counter.subject for counter in store.budgets()] == ["a", "b"]


def test_a_limit_and_a_budget_of_the_same_name_are_two(store: MemoryStore):
    store.open(limit(10, name="x"), "a").take(10, START_NS)
    assert store.open(budget(10, name="x"), "a").room(START_NS) == 10


def test_a_rule_that_counts_something_else_now_counts_anew(store: MemoryStore):
    store.open(limit(10, "minute"), "a").take(10, START_NS)
    assert store.open(limit(10, "minute", metric="requests"), "a").room(START_NS) == 10
    assert store.open(slots(10, name="lim"), "a").room(START_NS) == 10
    assert store.status()["counters"] == 1


async def test_the_background_forgets_many_counters_without_stalling_the_loop(store: MemoryStore):
    rule = limit(10)
    for number in range(5000):
        store.open(rule, str(number))
    running = asyncio.create_task(store.run())
    turns = 0
    while store.status()["counters"] == 5000 and turns < 1000:
        turns += 1
        await asyncio.sleep(0)
    running.cancel()
    left = store.status()["counters"]
    assert isinstance(left, int)
    assert 4000 <= left < 5000  # a bounded number in one turn
