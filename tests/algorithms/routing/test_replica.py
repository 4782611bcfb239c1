"""A replica's predicted wait follows what it was given and how fast it works, and grows while it is late."""

import pytest

from algorithms.routing.pace import DecodePace, PrefillPace
from algorithms.routing.replica import Replica, Room, RoutedRequest

MS = 1_000_000
SECOND = 1_000_000_000


def replica_at(ns_per_token: float = 100_000.0) -> Replica:
    replica = Replica("r", 1)
    replica.pace.note(10_000, round(10_000 * ns_per_token), SECOND)
    replica.refresh(SECOND)
    return replica


def begin(replica: Replica, tokens: int, now: int, cached: int = 0) -> RoutedRequest:
    routed = RoutedRequest(now, tokens, cached)
    replica.begin(routed, now)
    return routed


def test_prompts_before_it_are_waited_for_and_the_first_is_under_way():
    replica, now = replica_at(), 2 * SECOND
    begin(replica, 1_000, now)
    begin(replica, 500, now, cached=100)
    assert replica.wait_ns(now) == pytest.approx(140 * MS, rel=0.01)
    assert replica.wait_ns(now + 40 * MS) == pytest.approx(100 * MS, rel=0.01)


def test_who_is_late_is_taken_to_be_late_with_the_rest():
    replica, now = replica_at(), 2 * SECOND
    begin(replica, 9_000, now)
    begin(replica, 1_000, now)
    assert replica.wait_ns(now + 900 * MS) == pytest.approx(100 * MS, rel=0.01)
    assert replica.wait_ns(now + 2900 * MS) == pytest.approx(3 * 100 * MS + 2000 * MS, rel=0.01)


def test_a_short_prompt_that_is_late_says_little_of_a_long_one_behind_it():
    replica, now = replica_at(), 2 * SECOND
    begin(replica, 10, now)
    begin(replica, 5_000, now)
    assert replica.wait_ns(now + 51 * MS) == pytest.approx(1.5 * 500 * MS + 50 * MS, rel=0.02)


def test_a_first_token_frees_what_its_prompt_held():
    replica, now = replica_at(), 2 * SECOND
    routed = begin(replica, 1_000, now)
    replica.first_token(routed, now + 100 * MS)
    assert (replica.wait_ns(now + 100 * MS), replica.running, replica.queued_tokens) == (0, 1, 0)
    replica.end(routed, now + 200 * MS, output_tokens=11)
    replica.end(routed, now + 300 * MS, output_tokens=11)  # again is harmless
    assert replica.running == 0
    assert replica.decode.gap_ns(1) == pytest.approx(10 * MS)


def test_a_replica_that_turns_slow_is_seen_within_some_prompts_and_forgiven_later():
    shared = PrefillPace()
    fast, slow = PrefillPace(shared), PrefillPace(shared)
    now = SECOND
    for _ in range(20):
        now += SECOND
        fast.note(5_000, 500 * MS, now)
        slow.note(5_000, 500 * MS, now)
    for _ in range(6):
        now += SECOND
        fast.note(5_000, 500 * MS, now)
        slow.note(5_000, 2_500 * MS, now)
    assert slow.ns_per_token > 2 * fast.ns_per_token
    slow.refresh(now + 600 * SECOND)
    assert slow.ns_per_token == pytest.approx(shared.ns_per_token, rel=0.05)


def test_the_line_through_gaps_predicts_them():
    pace = DecodePace()
    assert pace.gap_ns(8) == 0
    for running in (1, 4, 8, 2, 6, 3):
        pace.note(running, 10 * MS + running * MS)
    assert pace.gap_ns(5) == pytest.approx(15 * MS)
    assert pace.slope_ns == pytest.approx(MS)


@pytest.mark.parametrize(("running", "others", "waits"), [(3, 0, False), (4, 0, True), (2, 2, True), (2, 1, False)])
def test_a_seat_is_waited_for_where_the_engine_has_none(running, others, waits):
    replica, now = replica_at(), 2 * SECOND
    done = begin(replica, 10, now)
    replica.first_token(done, now + MS)
    replica.end(done, now + SECOND)
    for _ in range(running):
        replica.first_token(begin(replica, 10, now + SECOND), now + SECOND)
    replica.take_room(Room(4, others))
    assert (replica.wait_ns(now + SECOND) > 0) is waits


def test_pauses_after_failures_double_up_to_half_a_minute_and_a_success_ends_them():
    replica, now = replica_at(), 2 * SECOND
    pauses = []
    for _ in range(7):
        for _ in range(3):  # those in progress when it went count once
            replica.end(begin(replica, 10, now), now, has_failed=True)
        pauses.append((replica.suspect_until_ns - now) // SECOND)
        now = replica.suspect_until_ns
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    replica.first_token(begin(replica, 10, now), now + MS)
    assert replica.failures == 0 and not replica.is_suspect(now + MS)


def test_an_answer_that_comes_whole_is_waited_for_as_long_as_its_prompt_should_take():
    replica, now = replica_at(), 2 * SECOND
    routed = RoutedRequest(now, 1_000, 0, is_blind=True)
    replica.begin(routed, now)
    assert replica.wait_ns(now) == pytest.approx(100 * MS, rel=0.01)
    assert replica.wait_ns(now + SECOND) == 0
    replica.end(routed, now + 2 * SECOND, output_tokens=20)
    assert (replica.running, replica.latency_ns(now + 2 * SECOND)) == (0, 2 * SECOND)


@pytest.mark.parametrize("has_failed", [False, True])
def test_answers_that_come_whole_are_waited_for_no_more_once_they_are_there(has_failed):
    replica, now = replica_at(), 2 * SECOND
    holds = [RoutedRequest(now, 1_000, 400, is_blind=True) for _ in range(5)]
    for routed in holds:
        replica.begin(routed, now)
    assert replica.wait_ns(now) == pytest.approx(300 * MS, rel=0.01)
    for left in (4, 3, 2, 1, 0):
        replica.end(holds[left], now, has_failed=has_failed)
        replica.end(holds[left], now, has_failed=has_failed)  # again is harmless
        assert replica.wait_ns(now) == pytest.approx(left * 60 * MS, rel=0.01)


def test_however_many_answers_came_whole_the_wait_is_for_those_under_way():
    replica, now, under_way = replica_at(), 2 * SECOND, []
    for _ in range(2_000):  # twice what its pace would allow
        now += 50 * MS
        under_way.append(RoutedRequest(now, 1_000, 0, is_blind=True))
        replica.begin(under_way[-1], now)
        if len(under_way) > 4:
            replica.end(under_way.pop(0), now)
        assert replica.wait_ns(now) <= 501 * MS
    for routed in under_way:
        replica.end(routed, now)
    assert (replica.wait_ns(now), replica.blind_tokens) == (0, 0)
