"""When something is left alone, and how it comes back: no clock but the test's, no chance but the test's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.serving.failures import BreakerPolicy
from gateway.routing.health.breaker import Breaker, CallPermission

S = 1_000_000_000
POLICY = BreakerPolicy(failures_in_a_row=3, least_requests=10, first_pause_seconds=1, longest_pause_seconds=4)


def breaker(policy=POLICY, random=lambda: 0.0):
    return Breaker(policy, random)


def opened(policy=POLICY, **more):
    found = breaker(policy, **more)
    for _ in range(policy.failures_in_a_row):
        found.failed(0, "upstream_error")
    assert found.state == "open"
    return found


@pytest.mark.parametrize(("failures", "state"), [(2, "closed"), (3, "open"), (4, "open")])
def test_it_opens_at_so_many_failures_in_a_row(failures, state):
    found = breaker()
    for _ in range(failures):
        found.failed(0, "upstream_error")
    assert (found.state, found.is_calm) == (state, state == "closed")


def test_a_success_between_begins_the_row_anew():
    found = breaker(BreakerPolicy(failures_in_a_row=3, failure_share=1.0))
    for _ in range(4):
        found.failed(0, "upstream_error")
        found.failed(0, "upstream_error")
        found.succeeded()
    assert found.is_calm


@pytest.mark.parametrize(
    ("failed", "good", "state"), [(4, 5, "closed"), (5, 5, "open"), (4, 6, "closed"), (6, 4, "open")]
)
def test_it_opens_at_a_share_of_enough_requests(failed, good, state):
    found = breaker(BreakerPolicy(failures_in_a_row=100, failure_share=0.5, least_requests=10))
    for _ in range(good):
        found.succeeded()
    for _ in range(failed):
        found.failed(0, "upstream_error")
    assert found.state == state


def test_what_is_older_than_the_window_counts_no_more():
    found = breaker(BreakerPolicy(failures_in_a_row=100, least_requests=10, window_seconds=10))
    for _ in range(9):
        found.failed(0, "upstream_error")
    found.turn(5 * S)
    found.turn(9 * S)  # too early for another half
    found.turn(10 * S)
    for _ in range(5):
        found.failed(10 * S, "upstream_error")
    assert found.is_calm


def test_after_its_pause_one_probe_is_let_through_and_no_second():
    found = opened()
    assert found.ask(S - 1) is CallPermission.NO
    assert found.ask(S) is CallPermission.PROBE
    found.begin_probe()
    assert found.ask(S) is CallPermission.NO
    found.end_probe(2 * S, is_good=True)
    assert found.ask(2 * S) is CallPermission.YES and found.is_calm


def test_a_probe_that_fails_doubles_the_pause_up_to_the_longest():
    found, now, pauses = opened(), 0, []
    for _ in range(4):
        pauses.append((found.until_ns - now) // S)
        now = found.until_ns
        assert found.ask(now) is CallPermission.PROBE
        found.begin_probe()
        found.end_probe(now, is_good=False, why="upstream_timeout")
    assert pauses == [1, 2, 4, 4]


def test_a_probe_whose_client_left_shows_nothing_and_another_may_be_made():
    found = opened()
    found.ask(S)
    found.begin_probe()
    found.end_probe(S, is_good=None)
    assert found.state == "half_open" and found.ask(S) is CallPermission.PROBE


def test_it_closes_after_so_many_good_probes_and_then_takes_a_growing_share():
    chance = iter([0.2, 0.3, 0.7, 0.8])
    policy = BreakerPolicy(failures_in_a_row=1, good_probes=2, ramp_seconds=10)
    found = Breaker(policy, lambda: 0.0)
    found.failed(0, "upstream_error")
    for _ in range(2):
        assert found.ask(S) is CallPermission.PROBE
        found.begin_probe()
        found.end_probe(S, is_good=True)
    assert found.state == "recovering"
    found._random = lambda: next(chance)
    quarter, three_quarters = S + round(2.5 * S), S + round(7.5 * S)
    assert [found.ask(quarter) for _ in range(2)] == [CallPermission.YES, CallPermission.RATHER_NOT]
    assert [found.ask(three_quarters) for _ in range(2)] == [CallPermission.YES, CallPermission.RATHER_NOT]
    assert found.ask(11 * S) is CallPermission.YES and found.is_calm


def test_what_was_begun_before_it_opened_does_not_close_it():
    found = opened()
    found.succeeded()
    assert found.state == "open" and found.ask(0) is CallPermission.NO


def test_a_failure_that_comes_in_late_does_not_double_the_pause():
    found = opened()
    until = found.until_ns
    found.failed(S // 2, "upstream_error")
    assert found.until_ns == until


def test_a_probe_that_is_as_slow_as_before_is_no_good_one():
    found = breaker()
    found.open(0, "its first token takes 9 s")
    found.slow_bar_ns = 2 * S
    for took, state in [(3 * S, "open"), (2 * S, "closed")]:
        assert found.ask(found.until_ns) is CallPermission.PROBE
        found.begin_probe()
        found.end_probe(found.until_ns, is_good=True, took_ns=took)
        assert found.state == state


def test_a_suspicion_is_settled_by_one_probe():
    found = breaker()
    found.suspect("another gateway")
    assert found.ask(0) is CallPermission.PROBE
    found.begin_probe()
    found.end_probe(0, is_good=True)
    assert found.is_calm


@given(random=st.floats(0, 1), policy=st.builds(BreakerPolicy, first_pause_seconds=st.floats(0.1, 10)))
def test_a_pause_is_never_shorter_than_told_nor_a_fifth_longer(random, policy):
    found = Breaker(policy, lambda: random)
    found.open(0, "why")
    assert policy.first_pause_seconds * S - 1 <= found.until_ns <= policy.first_pause_seconds * S * 1.2 + 1


@given(st.lists(st.sampled_from(["good", "bad", "ask", "later", "turn"]), max_size=60))
def test_a_closed_one_never_refuses_and_an_open_one_always_comes_back(steps):
    found, now = breaker(), 0
    for step in steps:
        if step == "good":
            found.succeeded()
        elif step == "bad":
            found.failed(now, "upstream_error")
        elif step == "later":
            now += S
        elif step == "turn":
            found.turn(now)
        elif found.ask(now) is CallPermission.PROBE:
            found.begin_probe()
            found.end_probe(now, is_good=True)
    assert found.is_calm == (found.state == "closed")
    now += 10 * S
    assert found.ask(now) is not CallPermission.NO


@pytest.mark.parametrize(("lost", "state"), [(2, "half_open"), (3, "open")])
def test_one_whose_probes_lose_against_others_in_a_row_is_left_alone_again(lost, state):
    found = opened()
    for _ in range(lost):
        assert found.ask(S) is CallPermission.PROBE
        found.begin_probe()
        found.end_probe(S, is_good=None, is_lost=True)
    assert found.state == state
    if state == "open":
        assert found.until_ns == 3 * S, "twice the pause"
        assert "another target answered before 3 probes" in found.why


def test_a_good_probe_ends_a_row_of_lost_ones():
    found = opened(BreakerPolicy(failures_in_a_row=3, good_probes=9))
    for is_good in (None, None, True, None, None):
        assert found.ask(S) is CallPermission.PROBE
        found.begin_probe()
        found.end_probe(S, is_good=is_good, is_lost=is_good is None)
    assert found.state == "half_open"
