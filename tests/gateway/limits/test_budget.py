"""The budget's counter in memory: periods, what is kept of them, and who is told."""

from dataclasses import replace
from typing import Any

import pytest

from contracts.errors import ConfigurationError
from contracts.rules.limits import BudgetAdjustment, BudgetSpec
from gateway.limits.budgets.budget import BudgetCounter
from tests.gateway.limits.counting import SECOND_NS, budget

HOUR_NS = 3600 * SECOND_NS
DAY_NS = 24 * HOUR_NS
TODAY_NS = 1_773_446_400 * SECOND_NS  # 2026-03-14 00:00 UTC
NOW_NS = TODAY_NS + 9 * HOUR_NS


def spend(counter: BudgetCounter, amount: int, now_ns: int = NOW_NS) -> None:
    counter.settle(counter.take(amount, now_ns), amount, amount, now_ns)


def test_the_period_under_way_and_its_totals_are_told():
    counter = BudgetCounter(budget(1000), "")
    counter.take(200, NOW_NS)
    spend(counter, 30)
    assert (counter.period_start_ns, counter.period_end_ns) == (TODAY_NS, TODAY_NS + DAY_NS)
    assert (counter.settled, counter.reserved) == (30, 200)
    assert counter.state(NOW_NS).reset_seconds == 15 * 3600


def test_a_period_ends_to_the_nanosecond():
    counter = BudgetCounter(budget(1000), "")
    spend(counter, 1000)
    assert counter.room(TODAY_NS + DAY_NS - 1) == 0
    assert counter.room(TODAY_NS + DAY_NS) == 1000


def test_an_earlier_period_is_kept_until_it_is_settled_for_good():
    counter = BudgetCounter(budget(1000), "")
    mark = counter.take(500, NOW_NS)
    counter.room(NOW_NS + DAY_NS)
    assert [ledger.period_start_ns for ledger in counter.ledgers()] == [TODAY_NS, TODAY_NS + DAY_NS]
    assert not counter.is_idle(NOW_NS + DAY_NS)
    counter.settle(mark, 500, 400, NOW_NS + DAY_NS)
    assert next(iter(counter.ledgers())).settled == 400
    assert counter.is_idle(NOW_NS + DAY_NS)  # nine hours after its end


def test_an_earlier_period_is_shown_for_an_hour_at_least():
    counter = BudgetCounter(budget(1000), "")
    spend(counter, 500)
    assert not counter.is_idle(TODAY_NS + DAY_NS + HOUR_NS - 1)
    assert counter.is_idle(TODAY_NS + DAY_NS + HOUR_NS)


def test_a_budget_that_has_spent_is_not_idle_before_its_period_ends():
    counter = BudgetCounter(budget(1000, "total"), "")
    assert counter.is_idle(NOW_NS)
    spend(counter, 1)
    assert not counter.is_idle(NOW_NS + 400 * DAY_NS)


def test_whoever_watches_is_told_of_what_is_settled_and_where():
    told: list[tuple[int, int]] = []
    late: list[tuple[int, int, int]] = []
    counter = BudgetCounter(
        budget(1000),
        "",
        lambda _, before, after: told.append((before, after)),
        lambda _, ledger, before, after: late.append((ledger.period_start_ns, before, after)),
    )
    spend(counter, 100)
    mark, unused = counter.take(300, NOW_NS), counter.take(50, NOW_NS)
    counter.settle(unused, 50, 0, NOW_NS)
    assert told == [(0, 100), (100, 100)], "also of what is reserved no longer"
    spend(counter, 70, NOW_NS + DAY_NS)
    counter.settle(mark, 300, 200, NOW_NS + DAY_NS)
    assert told == [(0, 100), (100, 100), (0, 70)]
    assert late == [(TODAY_NS, 100, 300)]


def test_what_was_spent_before_a_restart_counts():
    counter = BudgetCounter(budget(1000), "")
    assert counter.restore(TODAY_NS, 900)
    assert counter.room(NOW_NS) == 100
    assert counter.settled == 900


def test_what_is_restored_late_is_added_and_restoring_twice_is_restoring_once():
    counter = BudgetCounter(budget(1000), "")
    spend(counter, 10)
    assert counter.restore(TODAY_NS, 500)
    assert counter.restore(TODAY_NS, 600)
    assert counter.settled == 610


def test_what_was_spent_in_a_period_that_has_passed_does_not_count():
    counter = BudgetCounter(budget(1000), "")
    counter.room(NOW_NS)
    assert not counter.restore(TODAY_NS - DAY_NS, 900)
    assert counter.room(NOW_NS) == 1000
    fresh = BudgetCounter(budget(1000), "")
    fresh.restore(TODAY_NS - DAY_NS, 900)
    assert fresh.room(NOW_NS) == 1000


def test_another_period_goes_on_with_what_was_counted():
    counter = BudgetCounter(budget(1000), "")
    mark = counter.take(300, NOW_NS)
    spend(counter, 200)
    counter.adopt(budget(1000, "month"), NOW_NS)
    assert counter.room(NOW_NS) == 500
    counter.settle(mark, 300, 100, NOW_NS)
    assert counter.settled == 300
    assert counter.room(NOW_NS + DAY_NS) == 700
    assert counter.period_start_ns == TODAY_NS - 13 * DAY_NS


def test_a_changed_period_does_not_inherit_from_one_that_is_over():
    counter = BudgetCounter(budget(1000), "")
    spend(counter, 600)
    counter.adopt(budget(1000, "week"), NOW_NS + DAY_NS)
    assert counter.settled == 0


def test_a_budget_whose_end_is_put_off_goes_on_where_it_was():
    rule = budget(1000, "month", ends_at_ns=TODAY_NS + DAY_NS)
    counter = BudgetCounter(rule, "")
    spend(counter, 700)
    assert counter.room(NOW_NS + DAY_NS) > 10**18
    assert counter.period_start_ns is None
    counter.adopt(replace(rule, ends_at_ns=TODAY_NS + 5 * DAY_NS), NOW_NS + DAY_NS)
    assert counter.room(NOW_NS + DAY_NS) == 300


def test_what_was_reserved_before_a_budget_began_is_not_charged_to_it():
    counter = BudgetCounter(budget(1000, starts_at_ns=NOW_NS + HOUR_NS), "")
    mark = counter.take(5000, NOW_NS)
    assert counter.room(NOW_NS + HOUR_NS) == 1000
    counter.settle(mark, 5000, 5000, NOW_NS + HOUR_NS)
    assert counter.room(NOW_NS + HOUR_NS) == 1000
    assert counter.period_start_ns == NOW_NS + HOUR_NS


def test_a_soft_budget_that_becomes_hard_refuses_from_then_on():
    counter = BudgetCounter(budget(1000, is_hard=False), "")
    spend(counter, 1500)
    counter.adopt(budget(1000), NOW_NS)
    assert counter.room(NOW_NS) == -500


def test_an_unknown_time_zone_is_refused_when_the_counter_is_made_and_changes_nothing_that_runs():
    with pytest.raises(ConfigurationError, match="Mars/Olympus"):
        BudgetCounter(budget(1000, time_zone="Mars/Olympus"), "")
    counter = BudgetCounter(budget(1000), "")
    spend(counter, 600)
    with pytest.raises(ConfigurationError, match="Mars/Olympus"):
        counter.adopt(budget(2000, time_zone="Mars/Olympus"), NOW_NS)
    assert counter.room(NOW_NS) == 400


def recounted(amount: int, adjustment: int, **more: Any) -> BudgetSpec:
    return replace(budget(amount), adjustments=(BudgetAdjustment("", TODAY_NS, adjustment),), **more)


@pytest.mark.parametrize(("adjustment", "room"), [(-300, 400), (-1, 101), (0, 100), (99, 1), (100, 0), (250, -150)])
def test_a_recount_moves_what_is_left_and_nothing_that_is_counted(adjustment, room):
    counter = BudgetCounter(budget(1000), "")
    spend(counter, 700)
    mark = counter.take(200, NOW_NS)
    counter.adopt(recounted(1000, adjustment), NOW_NS)
    assert counter.room(NOW_NS) == room
    assert (counter.settled, counter.reserved) == (700, 200), "what is reported and kept is this gateway's own count"
    assert counter.state(NOW_NS).used == 900 + adjustment
    counter.settle(mark, 200, 50, NOW_NS)
    assert (counter.settled, counter.state(NOW_NS).used) == (750, 750 + adjustment)
    assert counter.room(NOW_NS + DAY_NS) == 1000, "it is for its period alone"


def test_a_recount_is_for_its_subject_and_holds_from_the_first_look():
    assert BudgetCounter(recounted(1000, -300), "someone").room(NOW_NS) == 1000
    assert BudgetCounter(recounted(1000, 300), "").room(NOW_NS) == 700


def test_thresholds_go_by_what_is_recounted():
    told: list[tuple[int, int]] = []
    counter = BudgetCounter(recounted(1000, -300), "", lambda _, before, after: told.append((before, after)))
    spend(counter, 700)
    assert told == [(-300, 400)]


def test_a_soft_budget_that_is_recounted_refuses_nothing():
    assert BudgetCounter(recounted(1000, 5000, is_hard=False), "").room(NOW_NS) > 10**18
