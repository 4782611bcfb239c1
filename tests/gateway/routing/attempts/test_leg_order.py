"""A route's models while some have nobody who may be called."""

from dataclasses import dataclass, replace

import pytest

from contracts.errors import UpstreamError
from contracts.serving.configuration import EMPTY_SNAPSHOT, PoolSpec, TargetSpec
from contracts.serving.failures import BreakerPolicy, Playbook
from gateway.request.clock import Clock
from gateway.routing.attempts.turn_order import arranged
from gateway.routing.health.health_book import HealthBook


@dataclass(frozen=True)
class Leg:
    pool: PoolSpec


def leg(name, provider):
    return Leg(PoolSpec(name, tuple(TargetSpec(f"{name}{n}", name, "scripted", provider=provider) for n in range(2))))


LEGS = [leg("a", "far"), leg("b", "near"), leg("c", "own")]


@pytest.fixture
def book():
    found = HealthBook(Clock(lambda: 0, lambda: 0), lambda: 0.0)
    playbook = Playbook("far", ("own",), BreakerPolicy(failures_in_a_row=20))
    found.sync(replace(EMPTY_SNAPSHOT, pools={one.pool.id: one.pool for one in LEGS}, playbooks={"far": playbook}))
    return found


def order(book, legs=LEGS):
    return [one.pool.id for one in arranged(legs, book, 0)]


def fail(book, spec, times=5):
    for _ in range(times):
        book.of(spec).note_failure(0, UpstreamError("down"))


def test_legs_stay_as_they_are_while_each_has_somebody(book):
    fail(book, LEGS[0].pool.targets[0])
    assert order(book) == ["a", "b", "c"]


def test_one_whose_targets_are_all_away_goes_last(book):
    for spec in LEGS[1].pool.targets:
        fail(book, spec)
    assert order(book) == ["a", "c", "b"]


def test_one_whose_targets_all_rest_goes_last(book):
    for spec in LEGS[0].pool.targets:
        book.of(spec).rest(0, 9)
    assert order(book) == ["b", "c", "a"]


def test_where_the_first_ones_provider_is_out_its_playbook_says_who_is_next(book):
    fail(book, LEGS[0].pool.targets[0], 20)
    assert order(book) == ["c", "b", "a"]
    assert order(book, [LEGS[1], LEGS[0], LEGS[2]]) == ["b", "c", "a"], "nobody else's order is changed"


def test_where_all_are_away_the_order_is_the_routes_own(book):
    for one in LEGS:
        for spec in one.pool.targets:
            fail(book, spec)
    assert order(book) == ["a", "b", "c"]
