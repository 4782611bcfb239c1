"""A reservation takes from all counters or none, and gives back what was not used to where it came from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.rules.limits import LimitSpec, Scope
from gateway.limits.counters.memory_store import MemoryStore
from gateway.limits.demand import CONCURRENCY, INPUT, OUTPUT, PLACE, REQUESTS, TOKENS, Rates
from gateway.limits.limit_plan import Lines
from gateway.limits.reservation import Reservation, take

NOW = 1_773_480_413_589_793_238
RATES = Rates()


def limit(metric, amount, window="minute"):
    scope = Scope("acme", "tenant")
    return LimitSpec(f"{metric}-{window}", scope, metric, amount, None if metric == "concurrency" else window)


def lines_of(*rules):
    store = MemoryStore(clock=lambda: NOW)
    return Lines([(store.open(rule, ""), PLACE[rule.metric]) for rule in rules])


def reserve(lines, tokens_in, tokens_out):
    portion = take(lines, RATES.at_start(tokens_in, tokens_out), NOW)
    assert portion is not None
    return Reservation(lines, [portion])


def used(lines):
    return [counter.state(NOW).used for counter, _ in lines.all]


def test_nothing_is_taken_of_any_counter_where_one_lacks_the_room():
    lines = lines_of(limit("requests", 10), limit("concurrency", 5), limit("tokens", 99))
    assert take(lines, RATES.at_start(60, 40), NOW) is None
    assert used(lines) == [0, 0, 0]


@pytest.mark.parametrize(("amount", "is_taken"), [(99, False), (100, True), (101, True)])
def test_a_reservation_fits_at_the_limit_and_not_above_it(amount, is_taken):
    lines = lines_of(limit("tokens", amount))
    assert (take(lines, RATES.at_start(60, 40), NOW) is not None) == is_taken


def test_what_was_not_used_is_given_back_and_slots_are_given_back_whole():
    lines = lines_of(limit("requests", 10), limit("concurrency", 5), limit("tokens", 1000), limit("output_tokens", 500))
    reservation = reserve(lines, 60, 400)
    assert used(lines) == [1, 1, 460, 400]
    charged = reservation.settle(RATES.at_start(60, 7), NOW)
    assert used(lines) == [1, 0, 67, 7]
    assert (charged[REQUESTS], charged[INPUT], charged[OUTPUT], charged[TOKENS]) == (1, 60, 7, 67)


@pytest.mark.parametrize("others", [(), (limit("output_tokens", 900), limit("requests", 10))])
def test_slots_can_be_given_back_alone_and_once(others):
    lines = lines_of(limit("tokens", 1000), limit("concurrency", 5), *others)
    first, second = reserve(lines, 60, 400), reserve(lines, 60, 400)
    first.free_slots(NOW)
    first.free_slots(NOW)
    assert used(lines)[:2] == [920, 1]
    first.settle(RATES.at_start(60, 7), NOW)
    assert used(lines)[:2] == [67 + 460, 1]
    second.settle(RATES.at_start(60, 7), NOW)
    assert used(lines)[:2] == [2 * 67, 0]


def test_a_second_settlement_changes_nothing():
    lines = lines_of(limit("tokens", 1000), limit("concurrency", 1))
    reservation = reserve(lines, 60, 400)
    reservation.settle(RATES.at_start(60, 7), NOW)
    reservation.settle(RATES.at_start(0, 0), NOW)
    assert used(lines) == [67, 0]
    assert not reservation.extend(RATES.of_more(10), NOW)


def test_use_beyond_the_reservation_is_charged_as_far_as_every_counter_of_its_kind_has_room():
    lines = lines_of(limit("tokens", 1000), limit("tokens", 130, "hour"), limit("requests", 5))
    reservation = reserve(lines, 60, 40)
    charged = reservation.settle(RATES.at_start(60, 90), NOW)
    assert used(lines) == [130, 130, 1], "both token limits are charged alike"
    assert charged[TOKENS] == 130
    assert reservation.overdraft[TOKENS] == 20


def test_an_extension_that_does_not_fit_takes_nothing():
    lines = lines_of(limit("tokens", 150), limit("output_tokens", 1000))
    reservation = reserve(lines, 60, 40)
    assert reservation.extend(RATES.of_more(50), NOW)
    assert not reservation.extend(RATES.of_more(1), NOW)
    assert used(lines) == [150, 90]
    assert [portion.amounts[TOKENS] for portion in reservation.portions] == [100, 50]


def test_the_later_portions_are_given_back_first():
    lines = lines_of(limit("tokens", 1000))
    reservation = reserve(lines, 60, 40)
    reservation.extend(RATES.of_more(50), NOW)
    reservation.extend(RATES.of_more(50), NOW)
    reservation.settle(RATES.at_start(60, 60), NOW)
    assert [portion.charged_tokens for portion in reservation.portions] == [100, 20, 0]
    assert used(lines) == [120]


@given(
    tokens_in=st.integers(0, 300),
    reserved=st.integers(0, 300),
    extensions=st.lists(st.integers(1, 100), max_size=5),
    made=st.integers(0, 900),
    amounts=st.tuples(st.integers(0, 1500), st.integers(0, 1500), st.integers(0, 3)),
)
def test_no_counter_is_ever_above_its_limit_or_left_holding(tokens_in, reserved, extensions, made, amounts):
    rules = (limit("tokens", amounts[0]), limit("output_tokens", amounts[1]), limit("concurrency", amounts[2]))
    lines = lines_of(*rules)
    first = take(lines, RATES.at_start(tokens_in, reserved), NOW)
    if first is None:
        assert used(lines) == [0, 0, 0]
        return
    reservation = Reservation(lines, [first])
    for more in extensions:
        reservation.extend(RATES.of_more(more), NOW)
    charged = reservation.settle(RATES.at_start(tokens_in, made), NOW)
    assert charged[TOKENS] + reservation.overdraft[TOKENS] == tokens_in + made
    assert charged[OUTPUT] + reservation.overdraft[OUTPUT] == made
    assert charged[CONCURRENCY] in (0, 1)
    for (counter, _), amount in zip(lines.all, (charged[TOKENS], charged[OUTPUT], 0), strict=True):
        state = counter.state(NOW)
        assert state.used == amount <= counter.rule.amount
        assert state.reserved == 0
    assert sum(portion.charged_tokens for portion in reservation.portions) == charged[TOKENS]


@pytest.mark.parametrize(("amount", "has_more"), [(149, False), (150, True), (151, True)])
def test_a_portion_knows_whether_all_that_may_be_needed_was_there(amount, has_more):
    portion = take(lines_of(limit("tokens", amount)), RATES.at_start(60, 40), NOW, more=RATES.of_more(50))
    assert portion is not None
    assert portion.has_more is has_more
