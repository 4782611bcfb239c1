"""Who is told to wait, and waits, is admitted: places are kept, for a while, and not for a flood."""

import pytest

from gateway.limits.counters.base import Shortage
from gateway.limits.counters.memory_store import MemoryStore
from tests.gateway.limits.counting import Counting, limit, slots

LATE_SECONDS = {"second": 0.05, "minute": 0.5, "hour": 0.5, "day": 0.5}


@pytest.mark.parametrize("window", ["second", "minute"])
@pytest.mark.parametrize("is_late", [False, True])
async def test_who_waits_as_told_is_admitted_at_the_first_retry(counting: Counting, window, is_late):
    counter = counting.store.open(limit(100, window), "")
    await counting.take(counter, 100)
    refused = await counting.refusal(counter, 80, "patient")
    assert refused.is_held
    assert refused.wait_seconds is not None
    if window == "second":
        await counting.advance(refused.wait_seconds + is_late * LATE_SECONDS[window])
    else:
        await counting.jump(refused.wait_seconds + is_late * LATE_SECONDS[window])
    for newcomer in range(5):  # they come first, and find only what is not kept
        assert isinstance(await counting.admit([(counter, 21)], f"new-{newcomer}"), Shortage)
    await counting.take(counter, 20, "new")
    await counting.take(counter, 80, "patient")


async def test_a_newcomer_waits_behind_the_places_that_are_kept(counting: Counting):
    counter = counting.store.open(limit(100), "")
    await counting.take(counter, 100)
    first = await counting.refusal(counter, 100, "first")
    second = await counting.refusal(counter, 100, "second")
    assert first.wait_seconds is not None
    assert second.wait_seconds is not None
    assert second.wait_seconds >= first.wait_seconds + 1
    await counting.advance(first.wait_seconds)
    await counting.take(counter, 100, "first")
    await counting.advance(second.wait_seconds - first.wait_seconds)
    await counting.take(counter, 100, "second")


async def test_what_fits_beside_a_kept_place_is_admitted_meanwhile(counting: Counting):
    counter = counting.store.open(limit(100), "")
    await counting.take(counter, 70)
    assert (await counting.refusal(counter, 60, "patient")).is_held
    await counting.take(counter, 30, "small")


async def test_a_place_nobody_comes_for_is_given_to_others(counting: Counting):
    counter = counting.store.open(limit(100), "")
    await counting.take(counter, 100)
    refused = await counting.refusal(counter, 100, "gone")
    assert refused.wait_seconds is not None
    await counting.advance(refused.wait_seconds + 0.6)
    await counting.take(counter, 100, "other")


async def test_without_a_claimant_nothing_is_kept(counting: Counting):
    counter = counting.store.open(limit(100), "")
    await counting.take(counter, 100)
    refused = await counting.refusal(counter, 100)
    assert not refused.is_held
    again = await counting.refusal(counter, 100)
    assert again.wait_seconds is not None
    assert refused.wait_seconds is not None
    assert again.wait_seconds <= refused.wait_seconds


async def test_a_place_is_kept_at_every_counter_of_the_request(counting: Counting):
    tokens = counting.store.open(limit(100, name="tokens"), "")
    requests = counting.store.open(limit(1, metric="requests", name="requests"), "")
    await counting.take(tokens, 100)
    refused = await counting.admit([(tokens, 50), (requests, 1)], "patient")
    assert isinstance(refused, Shortage)
    assert refused.is_held
    assert refused.counter is tokens
    assert refused.wait_seconds is not None
    await counting.advance(refused.wait_seconds)
    assert isinstance(await counting.admit([(requests, 1)], "other"), Shortage)
    assert not isinstance(await counting.admit([(tokens, 50), (requests, 1)], "patient"), Shortage)


async def test_clients_of_different_amounts_are_all_admitted_at_their_first_retry(counting: Counting):
    counter = counting.store.open(limit(100, "minute"), "")
    await counting.take(counter, 100)
    waits = []
    for number in range(12):
        amount = 7 + 5 * (number % 7)
        refused = await counting.refusal(counter, amount, f"key-{number}")
        assert refused.wait_seconds is not None
        if refused.is_held:
            waits.append((refused.wait_seconds, number, amount))
    assert len(waits) >= 5
    passed = 0.0
    for wait, number, amount in sorted(waits):
        await counting.jump(wait - passed)
        passed = wait
        await counting.take(counter, amount, f"key-{number}")


async def test_clients_of_one_key_are_all_admitted_at_their_first_retry(counting: Counting):
    counter = counting.store.open(limit(10, metric="requests"), "")
    await counting.take(counter, 10)
    waits = []
    for _ in range(50):
        refused = await counting.refusal(counter, 1, "key")
        assert refused.is_held
        assert refused.wait_seconds is not None
        waits.append(refused.wait_seconds)
    if max(waits) > 3 and not counting.can_jump:
        waits = [wait for wait in waits if wait < 3]
    passed = 0.0
    for wait in sorted(waits):
        await counting.advance(wait - passed)
        passed = wait
        await counting.take(counter, 1, "key")


async def test_one_claimant_holds_a_bounded_number_of_places(counting: Counting):
    counter = counting.store.open(limit(1000), "")
    await counting.take(counter, 1000)
    refusals = [await counting.refusal(counter, 1, "flood", is_new=True) for _ in range(262)]
    assert [refused.is_held for refused in refusals] == [True] * 256 + [False] * 6
    assert all(refused.wait_seconds is not None for refused in refusals)
    assert (await counting.refusal(counter, 1, "other")).is_held


async def test_no_place_is_kept_for_later_than_two_minutes(counting: Counting):
    counter = counting.store.open(limit(100, "hour"), "")
    await counting.take(counter, 100)
    refused = await counting.refusal(counter, 1, "key")
    assert refused.wait_seconds is not None
    assert refused.wait_seconds > 3600
    assert not refused.is_held


async def test_a_place_is_not_promised_where_a_slot_is_what_is_short(counting: Counting):
    tokens, running = counting.store.open(limit(100), ""), counting.store.open(slots(1), "")
    await counting.admit([(tokens, 100), (running, 1)])
    refused = await counting.admit([(tokens, 10), (running, 1)], "key")
    assert isinstance(refused, Shortage)
    assert not refused.is_held
    assert refused.wait_seconds is not None
    assert refused.wait_seconds >= 0.9


async def test_a_new_request_takes_no_place_that_is_held_for_one_that_waits(counting: Counting):
    counter = counting.store.open(limit(100, "second"), "")
    await counting.take(counter, 100)
    waiting = await counting.refusal(counter, 100, "key")
    assert waiting.is_held and waiting.wait_seconds is not None
    await counting.advance(waiting.wait_seconds)
    await counting.refusal(counter, 100, "key", is_new=True)
    assert not isinstance(await counting.admit([(counter, 100)], "key"), Shortage)


async def test_who_asks_again_and_again_is_not_kept_out_by_its_own_places(counting: Counting):
    counter = counting.store.open(limit(100, "second"), "")
    await counting.take(counter, 60)
    for _ in range(4):
        await counting.refusal(counter, 60, "poller", most_places=8)
    await counting.advance(1.1)
    assert not isinstance(await counting.admit([(counter, 60)], "poller"), Shortage), "long before its last place"


async def test_others_are_still_kept_out_by_places_that_are_not_theirs(counting: Counting):
    counter = counting.store.open(limit(100, "minute"), "")
    await counting.take(counter, 60)
    await counting.refusal(counter, 60, "one")
    await counting.refusal(counter, 60, "other")


async def test_who_has_its_places_is_told_of_the_first_and_holds_no_more(counting: Counting):
    counter = counting.store.open(limit(100, "minute"), "")
    await counting.take(counter, 100)
    first = await counting.refusal(counter, 10, "key", most_places=1)
    again = await counting.refusal(counter, 10, "key", most_places=1)
    assert first.is_held and again.is_held
    assert first.wait_seconds is not None and again.wait_seconds is not None
    assert abs(first.wait_seconds - again.wait_seconds) < 1.1, "the same place"
    if isinstance(counting.store, MemoryStore):
        assert counting.store.status()["retry_slots"] == 1


async def test_who_asks_for_more_than_its_place_holds_begins_with_what_it_holds(counting: Counting):
    counter = counting.store.open(limit(100, "second"), "")
    await counting.take(counter, 100)
    refused = [await counting.refusal(counter, 50, "patient", is_new=True) for _ in range(2)]
    assert all(one.wait_seconds is not None for one in refused)
    await counting.advance(max(one.wait_seconds or 0 for one in refused))
    for _ in range(2):
        now_ns = counting.now_ns()
        shortage = await counting.store.seek_room([(counter, 60)], "patient", now_ns, least=[(counter, 40)])
        assert shortage is None or counter.room(now_ns, "patient") >= 60
        offered = min(counter.room(counting.now_ns(), "patient"), 50)
        assert offered >= 40
        counter.take(offered, counting.now_ns(), "patient")


async def test_a_place_too_small_for_the_least_is_refused(counting: Counting):
    counter = counting.store.open(limit(100, "second"), "")
    await counting.take(counter, 100)
    held = await counting.refusal(counter, 50, "patient", is_new=True)
    await counting.refusal(counter, 50, "other", is_new=True)
    assert held.wait_seconds is not None
    await counting.advance(held.wait_seconds)
    shortage = await counting.store.seek_room([(counter, 60)], "patient", counting.now_ns(), least=[(counter, 51)])
    assert shortage is not None
