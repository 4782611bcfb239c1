"""What every store of counters promises, whichever way it keeps them."""

from dataclasses import replace

import pytest

from contracts.rules.limits import BudgetSpec, LimitSpec
from gateway.limits.counters.base import Shortage
from tests.gateway.limits.counting import SECOND_NS, Counting, budget, conversation, limit, slots

MINUTE_NS = 60 * SECOND_NS
DAY_SECONDS = 86_400
WINDOW_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": DAY_SECONDS}


@pytest.mark.parametrize("window", ["second", "minute", "hour", "day"])
async def test_a_limit_admits_below_and_at_its_amount_and_refuses_above(counting: Counting, window):
    counter = counting.store.open(limit(100, window), "")
    await counting.take(counter, 99)
    await counting.take(counter, 1)
    refused = await counting.refusal(counter, 1)
    assert refused.counter is counter
    assert refused.asked == 1
    assert (refused.state.amount, refused.state.used, refused.state.remaining) == (100, 100, 0)


@pytest.mark.parametrize("window", ["second", "minute", "hour", "day"])
async def test_what_left_the_window_is_free_again(counting: Counting, window):
    if window != "second" and not counting.can_jump:
        pytest.skip("this store's clock cannot be moved")
    counter = counting.store.open(limit(100, window), "")
    await counting.take(counter, 100)
    refused = await counting.refusal(counter, 100)
    assert refused.wait_seconds is not None
    assert WINDOW_SECONDS[window] <= refused.wait_seconds <= WINDOW_SECONDS[window] * 1.05
    await counting.advance(refused.wait_seconds)
    await counting.take(counter, 100)


async def test_a_burst_at_the_end_of_a_minute_is_not_doubled_at_the_start_of_the_next(counting: Counting):
    counter = counting.store.open(limit(100, "minute"), "")
    next_minute_ns = (counting.now_ns() // MINUTE_NS + 1) * MINUTE_NS
    await counting.jump_to(next_minute_ns - SECOND_NS // 100)
    await counting.take(counter, 100)
    await counting.jump_to(next_minute_ns + SECOND_NS // 100)
    refused = await counting.refusal(counter, 1)
    assert refused.wait_seconds is not None
    assert refused.wait_seconds > 58


async def test_an_amount_above_the_limit_is_told_that_waiting_does_not_help(counting: Counting):
    counter = counting.store.open(limit(100), "")
    refused = await counting.refusal(counter, 101, "key")
    assert refused.wait_seconds is None
    assert not refused.is_held
    await counting.take(counter, 100)


async def test_a_limit_of_zero_refuses_everything(counting: Counting):
    refused = await counting.refusal(counting.store.open(limit(0), ""), 1, "key")
    assert refused.wait_seconds is None


async def test_what_was_not_used_is_given_back_to_its_window(counting: Counting):
    counter = counting.store.open(limit(100, "minute"), "")
    mark = await counting.take(counter, 100)
    counter.settle(mark, 100, 30, counting.now_ns())
    await counting.take(counter, 70)
    await counting.refusal(counter, 1)


async def test_each_extension_is_given_back_on_its_own(counting: Counting):
    counter = counting.store.open(limit(100, "minute"), "")
    first = await counting.take(counter, 60)
    await counting.advance(1.1)
    second = await counting.take(counter, 40)
    counter.settle(second, 40, 0, counting.now_ns())
    counter.settle(first, 60, 50, counting.now_ns())
    await counting.take(counter, 50)
    await counting.refusal(counter, 1)


async def test_a_refund_to_a_window_that_has_passed_does_nothing(counting: Counting):
    counter = counting.store.open(limit(100), "")
    early = await counting.take(counter, 100)
    await counting.advance(1.1)
    await counting.take(counter, 100)
    counter.settle(early, 100, 0, counting.now_ns())
    await counting.refusal(counter, 1)


async def test_nothing_is_taken_where_one_counter_of_several_is_short(counting: Counting):
    wide, narrow = counting.store.open(limit(100, name="wide"), ""), counting.store.open(limit(10, name="narrow"), "")
    running = counting.store.open(slots(1), "")
    refused = await counting.admit([(wide, 50), (narrow, 11), (running, 1)])
    assert isinstance(refused, Shortage)
    assert refused.counter is narrow
    assert not isinstance(await counting.admit([(wide, 100), (narrow, 10), (running, 1)]), Shortage)


async def test_the_counter_that_is_short_for_the_longest_is_named(counting: Counting):
    second = counting.store.open(limit(10, "second", name="second"), "")
    minute = counting.store.open(limit(10, "minute", name="minute"), "")
    await counting.admit([(second, 10), (minute, 10)])
    refused = await counting.admit([(second, 1), (minute, 1)])
    assert isinstance(refused, Shortage)
    assert refused.counter is minute
    assert refused.wait_seconds is not None
    assert refused.wait_seconds > 58


async def test_subjects_are_counted_apart(counting: Counting):
    rule = limit(10)
    await counting.take(counting.store.open(rule, "anna"), 10)
    await counting.take(counting.store.open(rule, "ben"), 10)


async def test_a_rule_and_a_subject_have_one_counter(counting: Counting):
    rule = limit(10)
    await counting.take(counting.store.open(rule, "anna"), 10)
    await counting.refusal(counting.store.open(rule, "anna"), 1)


@pytest.mark.parametrize("rule", [limit(100, "minute"), slots(100), conversation(100), budget(100)])
async def test_a_raised_amount_holds_at_once(counting: Counting, rule: LimitSpec | BudgetSpec):
    await counting.take(counting.store.open(rule, "c"), 100)
    raised = counting.store.open(replace(rule, amount=150), "c")
    await counting.take(raised, 50)
    await counting.refusal(raised, 1)


@pytest.mark.parametrize("rule", [limit(100, "minute"), slots(100), conversation(100), budget(100)])
async def test_a_lowered_amount_breaks_nothing_that_runs(counting: Counting, rule: LimitSpec | BudgetSpec):
    mark = await counting.take(counting.store.open(rule, "c"), 100)
    lowered = counting.store.open(replace(rule, amount=40), "c")
    assert lowered.room(counting.now_ns()) <= 0
    await counting.refusal(lowered, 1)
    lowered.settle(mark, 100, 0, counting.now_ns())
    await counting.take(lowered, 40)
    await counting.refusal(lowered, 1)


async def test_the_state_tells_used_reserved_and_reset(counting: Counting):
    counter = counting.store.open(limit(100, "minute"), "")
    assert counter.state(counting.now_ns()).used == 0
    first = await counting.take(counter, 30)
    await counting.take(counter, 20)
    counter.settle(first, 30, 10, counting.now_ns())
    state = counter.state(counting.now_ns())
    assert (state.amount, state.used, state.reserved, state.remaining) == (100, 30, 20, 70)
    assert state.reset_seconds is not None
    assert 59 < state.reset_seconds <= 61


# Slots


async def test_slots_are_admitted_below_and_at_the_limit_and_refused_above(counting: Counting):
    counter = counting.store.open(slots(2), "")
    first = await counting.take(counter, 1)
    await counting.take(counter, 1)
    refused = await counting.refusal(counter, 1, "key")
    assert refused.wait_seconds is not None
    assert refused.wait_seconds >= 0.05
    assert not refused.is_held
    counter.settle(first, 1, 1, counting.now_ns())  # whatever is charged, a slot is given back whole
    await counting.take(counter, 1)


# Budgets


async def test_a_hard_budget_is_spent_to_the_last_unit_and_no_further(counting: Counting):
    counter = counting.store.open(budget(1000), "")
    mark = await counting.take(counter, 600)
    counter.settle(mark, 600, 599, counting.now_ns())
    await counting.take(counter, 401)
    await counting.refusal(counter, 1)


async def test_a_soft_budget_counts_and_refuses_nothing(counting: Counting):
    counter = counting.store.open(budget(1000, is_hard=False), "")
    await counting.take(counter, 900)
    mark = await counting.take(counter, 900)
    counter.settle(mark, 900, 800, counting.now_ns())
    assert counter.state(counting.now_ns()).used == 1700


async def test_a_spent_budget_says_when_its_next_period_begins(counting: Counting):
    counter = counting.store.open(budget(1000), "")
    mark = await counting.take(counter, 1000)
    counter.settle(mark, 1000, 1000, counting.now_ns())
    refused = await counting.refusal(counter, 1, "key")
    assert not refused.is_held
    until_midnight = DAY_SECONDS - (counting.now_ns() / SECOND_NS) % DAY_SECONDS
    assert refused.wait_seconds is not None
    assert abs(refused.wait_seconds - until_midnight) < 1
    await counting.jump(refused.wait_seconds + 0.001)
    await counting.take(counter, 1000)


async def test_a_spent_total_says_that_waiting_does_not_help(counting: Counting):
    counter = counting.store.open(budget(1000, "total"), "")
    mark = await counting.take(counter, 1000)
    counter.settle(mark, 1000, 1000, counting.now_ns())
    assert (await counting.refusal(counter, 1)).wait_seconds is None


async def test_a_budget_that_is_merely_reserved_sends_nobody_away_until_its_next_period(counting: Counting):
    counter = counting.store.open(budget(1000), "")
    mark = await counting.take(counter, 1000)
    refused = await counting.refusal(counter, 400)
    assert refused.wait_seconds is not None and refused.wait_seconds <= 2 and not refused.is_held
    counter.settle(mark, 1000, 600, counting.now_ns())
    await counting.take(counter, 400)


async def test_a_reservation_is_settled_in_the_period_it_was_made_in(counting: Counting):
    counter = counting.store.open(budget(1000), "")
    early = await counting.take(counter, 1000)
    await counting.jump(DAY_SECONDS)
    await counting.take(counter, 600)
    counter.settle(early, 1000, 0, counting.now_ns())  # a refund of yesterday gives nothing today
    await counting.refusal(counter, 401)
    await counting.take(counter, 400)


async def test_what_is_charged_late_is_not_charged_to_the_new_period(counting: Counting):
    counter = counting.store.open(budget(1000), "")
    early = await counting.take(counter, 1000)
    await counting.jump(DAY_SECONDS)
    counter.settle(early, 1000, 1000, counting.now_ns())
    await counting.take(counter, 1000)


async def test_a_budget_binds_only_between_its_dates(counting: Counting):
    now_ns = counting.now_ns()
    dated = budget(10, "total", starts_at_ns=now_ns + 3600 * SECOND_NS, ends_at_ns=now_ns + 7200 * SECOND_NS)
    counter = counting.store.open(dated, "")
    await counting.take(counter, 1_000_000)
    assert counter.state(counting.now_ns()).used == 0
    await counting.jump(3601)
    mark = await counting.take(counter, 10)
    counter.settle(mark, 10, 10, counting.now_ns())
    refused = await counting.refusal(counter, 1)
    assert refused.wait_seconds is None
    await counting.jump(3600)
    await counting.take(counter, 1_000_000)


# Conversations


async def test_a_conversation_is_guarded_as_a_whole(counting: Counting):
    rule = conversation(100)
    counter = counting.store.open(rule, "key/chat-1")
    mark = await counting.take(counter, 90)
    counter.settle(mark, 90, 80, counting.now_ns())
    await counting.take(counter, 20)
    refused = await counting.refusal(counter, 1, "key")
    assert refused.wait_seconds is None
    await counting.take(counting.store.open(rule, "key/chat-2"), 100)


async def test_a_conversation_that_rested_for_a_day_begins_anew(counting: Counting):
    counter = counting.store.open(conversation(100), "key/chat-1")
    mark = await counting.take(counter, 100)
    counter.settle(mark, 100, 100, counting.now_ns())
    await counting.jump(DAY_SECONDS - 60)
    await counting.refusal(counting.store.open(conversation(100), "key/chat-1"), 1)
    await counting.jump(120)
    await counting.take(counting.store.open(conversation(100), "key/chat-1"), 100)


# Clocks


@pytest.mark.parametrize("rule", [limit(100, "minute"), limit(100, "second"), slots(100), budget(100)])
async def test_a_clock_that_goes_back_breaks_nothing(counting: Counting, rule: LimitSpec | BudgetSpec):
    counter = counting.store.open(rule, "")
    mark = await counting.take(counter, 60)
    before_ns = counting.now_ns() - 7 * SECOND_NS
    assert counter.room(before_ns) <= 40
    if counter.room(before_ns) >= 40:
        counter.settle(counter.take(40, before_ns), 40, 10, before_ns)
        assert 0 <= counter.state(before_ns).used <= 100
    counter.settle(mark, 60, 0, before_ns)
    state = counter.state(counting.now_ns())
    assert state.used >= 0
    assert state.reserved == 0
