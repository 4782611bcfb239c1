"""Slots and conversations in memory: what is learned of waits, and when a conversation is over."""

from gateway.limits.counters.escrow import ConcurrencyCounter, ConversationCounter
from tests.gateway.limits.counting import SECOND_NS, conversation, slots

START_NS = 1_773_480_413 * SECOND_NS
DAY_NS = 86_400 * SECOND_NS


def test_the_wait_for_a_slot_is_the_mean_holding_time_over_the_limit():
    counter = ConcurrencyCounter(slots(4), "")
    now_ns = START_NS
    for _ in range(200):
        mark = counter.take(1, now_ns)
        now_ns += 2 * SECOND_NS
        counter.settle(mark, 1, 0, now_ns)
    for _ in range(4):
        counter.take(1, now_ns)
    assert counter.earliest(1, now_ns, now_ns) == now_ns + SECOND_NS // 2
    assert counter.earliest(2, now_ns, now_ns) == now_ns + SECOND_NS


def test_the_wait_for_a_slot_is_never_so_short_that_it_is_polling():
    counter = ConcurrencyCounter(slots(1), "")
    counter.take(1, START_NS)
    assert counter.earliest(1, START_NS, START_NS) == START_NS + SECOND_NS // 20


def test_where_nothing_has_ended_yet_the_wait_grows_with_the_time_it_takes():
    counter = ConcurrencyCounter(slots(1), "")
    counter.take(1, START_NS)
    now_ns = START_NS + 10 * SECOND_NS
    assert counter.earliest(1, now_ns, now_ns) == now_ns + 10 * SECOND_NS


def test_more_slots_than_there_are_cannot_be_waited_for():
    assert ConcurrencyCounter(slots(1), "").earliest(2, START_NS, START_NS) is None
    assert ConcurrencyCounter(slots(0), "").earliest(1, START_NS, START_NS) is None


def test_a_slot_in_use_keeps_its_counter():
    counter = ConcurrencyCounter(slots(1), "")
    assert counter.is_idle(START_NS)
    mark = counter.take(1, START_NS)
    assert not counter.is_idle(START_NS + 30 * DAY_NS)
    counter.settle(mark, 1, 0, START_NS)
    assert counter.is_idle(START_NS)


def test_a_conversation_is_over_a_day_after_its_last_charge():
    counter = ConversationCounter(conversation(100), "")
    mark = counter.take(60, START_NS)
    counter.settle(mark, 60, 50, START_NS + SECOND_NS)
    last_ns = START_NS + SECOND_NS + DAY_NS
    assert counter.room(last_ns - 1) == 50
    assert not counter.is_idle(last_ns - 1)
    assert counter.room(last_ns) == 100
    assert counter.is_idle(last_ns)


def test_what_is_taken_at_once_and_taken_back_prolongs_no_conversation():
    counter = ConversationCounter(conversation(100), "")
    counter.settle(counter.take(60, START_NS), 60, 60, START_NS)
    taken = counter.take_at_once(10, START_NS + DAY_NS - 1)
    assert taken is not None and taken[0] == 30
    counter.undo(taken[1], 10)
    assert counter.room(START_NS + DAY_NS) == 100


def test_a_request_that_runs_for_days_keeps_its_conversation():
    counter = ConversationCounter(conversation(100), "")
    mark = counter.take(60, START_NS)
    assert counter.room(START_NS + 3 * DAY_NS) == 40
    counter.settle(mark, 60, 60, START_NS + 3 * DAY_NS)
    assert counter.room(START_NS + 4 * DAY_NS - 1) == 40
