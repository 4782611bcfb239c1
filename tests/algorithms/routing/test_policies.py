"""Each policy chooses as it says, and none lets one hot or dead replica spoil the choice for the others."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithms.routing.fleet import Fleet
from algorithms.routing.policies.table import POLICIES, policy_named
from algorithms.routing.policy_input import RoutingRequest
from algorithms.routing.replica import RoutedRequest
from contracts.errors import ConfigurationError
from contracts.serving.pool_choices import POLICY_NAMES

SECOND = 1_000_000_000
BLOCK = 16


def fleet_of(policy: str, count: int = 4, weights: tuple[int, ...] = (), seed: int = 1) -> Fleet:
    fleet = Fleet(policy_named(policy, random.Random(seed).random))
    fleet.follow([(f"r{place}", weights[place] if weights else 1) for place in range(count)])
    for replica in fleet.replicas:
        replica.is_exact = True
    return fleet


def ask_for(blocks: int, start: int = 0, session: str = "", own: int = 1) -> RoutingRequest:
    keys = [*range(start, start + blocks), *range(10**9 + start, 10**9 + start + own)]
    return RoutingRequest(BLOCK * (blocks + own), keys, BLOCK, 100, session)


def first(fleet: Fleet, request: RoutingRequest, now: int = SECOND) -> int:
    return fleet.rank(request, fleet.view(request, now))[0]


def send(fleet: Fleet, request: RoutingRequest, now: int = SECOND) -> tuple[int, RoutedRequest]:
    view = fleet.view(request, now)
    place = fleet.rank(request, view)[0]
    return place, fleet.begin(fleet.replicas[place], request, min(view.cached(place), request.tokens), now)


def test_an_unknown_policy_is_refused_by_name_with_those_there_are():
    with pytest.raises(ConfigurationError, match="'fastest'.*cost, least_outstanding"):
        policy_named("fastest", random.random)


def test_every_policy_may_be_named_in_a_configuration_and_no_other() -> None:
    both = "PolicyName of contracts/serving/pool_choices.py names what algorithms/routing/policies/table.py builds"
    assert set(POLICY_NAMES) == set(POLICIES), both


@pytest.mark.parametrize("name", POLICY_NAMES)
@given(count=st.integers(1, 40), seed=st.integers(0, 5))
def test_every_policy_ranks_replicas_once_each_and_suspects_last(name, count, seed):
    fleet = fleet_of(name, count, seed=seed)
    for place in range(0, count, 2):
        fleet.replicas[place].go_away(True)
    ranked = fleet.rank(ask_for(3), fleet.view(ask_for(3), SECOND))
    assert len(set(ranked)) == len(ranked) <= count
    away = [fleet.replicas[place].is_known_away for place in ranked]
    assert away == sorted(away)
    assert count == 1 or not away[0]


@pytest.mark.parametrize("name", POLICY_NAMES)
def test_a_replica_that_fails_is_left_alone_and_asked_again_later(name):
    fleet = fleet_of(name, 2)
    failed = fleet.replicas[0]
    routed = fleet.begin(failed, ask_for(1), 0, SECOND)
    fleet.end(failed, routed, SECOND, has_failed=True)
    assert {first(fleet, ask_for(1, n)) for n in range(20)} == {1}
    assert not failed.is_suspect(2 * SECOND)
    assert failed.is_suspect(2 * SECOND - 1)


def test_cost_sends_a_prompt_to_the_cache_that_holds_it():
    fleet = fleet_of("cost")
    fleet.index.stored(fleet.replicas[2].bit, range(100))
    assert first(fleet, ask_for(100)) == 2
    assert fleet.view(ask_for(100), SECOND).cached(2) == 1600


def test_cost_computes_a_prompt_again_where_waiting_for_its_cache_takes_longer():
    fleet = fleet_of("cost", 2)
    holder = fleet.replicas[0]
    fleet.index.stored(holder.bit, range(100))
    fleet.begin(holder, ask_for(150, 5_000), 0, SECOND)
    assert first(fleet, ask_for(100)) == 1
    fleet = fleet_of("cost", 2)
    holder = fleet.replicas[0]
    fleet.index.stored(holder.bit, range(100))
    fleet.begin(holder, ask_for(60, 5_000), 0, SECOND)
    assert first(fleet, ask_for(100)) == 0


@pytest.mark.parametrize(("waiting", "chosen"), [(0, 1), (1, 0)])
def test_where_all_wait_a_cache_is_waited_for_that_an_idle_replica_would_fill_again(waiting, chosen):
    fleet = fleet_of("cost", 3)
    holder, other, away = fleet.replicas
    away.go_away(True)  # it is no idle one
    fleet.index.stored(holder.bit, range(100))
    fleet.begin(holder, ask_for(150, 5_000), 0, SECOND)
    for _ in range(waiting):
        fleet.begin(other, ask_for(20, 9_000), 0, SECOND)
    assert first(fleet, ask_for(100)) == chosen


def test_a_hot_replica_costs_no_other_request_its_affinity():
    fleet = fleet_of("cost")
    for place, replica in enumerate(fleet.replicas):
        fleet.index.stored(replica.bit, range(1000 * place, 1000 * place + 100))
    for number in range(20):
        fleet.begin(fleet.replicas[0], ask_for(100, 50_000 + 1000 * number), 0, SECOND)
    assert [first(fleet, ask_for(100, 1000 * place)) for place in (1, 2, 3)] == [1, 2, 3]
    assert first(fleet, ask_for(100, 0)) != 0


def test_a_burst_sees_its_own_choices():
    fleet = fleet_of("cost", 8)
    places = [send(fleet, ask_for(50, 1000 * number))[0] for number in range(64)]
    assert set(Counter(places).values()) == {8}


def test_a_burst_of_one_prompt_waits_for_it_rather_than_computing_it_everywhere():
    fleet = fleet_of("cost", 8)
    places = [send(fleet, ask_for(1000, own=number + 1))[0] for number in range(3)]
    assert len(set(places)) == 1


def test_a_prefix_that_is_always_waited_for_is_copied():
    fleet = fleet_of("cost", 4)
    now, places = SECOND, []
    for number in range(60):  # twice as many as one replica computes
        request = RoutingRequest(BLOCK * 101, [*range(100), 10**6 + number], BLOCK)
        places.append(send(fleet, request, now)[0])
        now += 800_000
    assert len(set(places)) > 1


def test_what_all_prompts_share_does_not_draw_them_to_one_replica():
    fleet = fleet_of("cost", 10)
    now = SECOND
    places = []
    for number in range(300):
        request = RoutingRequest(BLOCK * 21, [1, *range(1000 * number + 10, 1000 * number + 30)], BLOCK)
        place, routed = send(fleet, request, now)
        now += 40_000_000
        fleet.first_token(fleet.replicas[place], routed, now)
        fleet.end(fleet.replicas[place], routed, now, output_tokens=5)
        places.append(place)
    loads = Counter(places)
    assert max(loads.values()) <= 1.25 * 300 / 10 + 2


def test_equal_costs_go_to_who_has_worked_least_by_weight():
    fleet = fleet_of("cost", 2, weights=(3, 1))
    now, places = SECOND, []
    for number in range(400):
        place, routed = send(fleet, ask_for(20, 1000 * number), now)
        now += 50_000_000
        fleet.first_token(fleet.replicas[place], routed, now)
        fleet.end(fleet.replicas[place], routed, now)
        places.append(place)
    assert 250 <= Counter(places)[0] <= 320


def test_a_session_stays_where_nothing_speaks_against_it():
    fleet = fleet_of("cost", 6)
    place, routed = send(fleet, RoutingRequest(100, session="s"), SECOND)
    fleet.end(fleet.replicas[place], routed, SECOND)
    assert {send(fleet, RoutingRequest(100, session="s"), (2 + n) * SECOND)[0] for n in range(1)} == {place}
    for number in range(5):
        fleet.begin(fleet.replicas[place], ask_for(200, 1000 * number), 0, 5 * SECOND)
    assert first(fleet, RoutingRequest(100, session="s"), 5 * SECOND) != place


def test_of_many_replicas_the_holder_is_found_though_not_all_are_looked_at():
    fleet = fleet_of("cost", 64)
    fleet.index.stored(fleet.replicas[50].bit, range(100))
    assert {first(fleet, ask_for(100)) for _ in range(20)} == {50}


def test_least_outstanding_evens_out_requests_by_weight():
    fleet = fleet_of("least_outstanding", 2, weights=(2, 1))
    places = [send(fleet, ask_for(1, n))[0] for n in range(9)]
    assert Counter(places) == {0: 6, 1: 3}


def test_peak_ewma_avoids_who_was_slow_until_that_is_long_ago():
    fleet = fleet_of("peak_ewma", 2)
    for place, took in ((0, 5 * SECOND), (1, SECOND // 10)):
        replica = fleet.replicas[place]
        routed = fleet.begin(replica, ask_for(1), 0, SECOND)
        fleet.first_token(replica, routed, SECOND + took)
        fleet.end(replica, routed, SECOND + took)
    assert first(fleet, ask_for(1), 6 * SECOND) == 1
    assert fleet.replicas[0].latency_ns(200 * SECOND) < SECOND // 10


def test_consistent_hash_keeps_a_session_and_moves_few_when_a_replica_goes():
    fleet = fleet_of("consistent_hash", 5)
    before = {n: first(fleet, RoutingRequest(10, session=f"s{n}")) for n in range(300)}
    assert before == {n: first(fleet, RoutingRequest(10, session=f"s{n}")) for n in range(300)}
    fleet.replicas[4].go_away(True)
    after = {n: first(fleet, RoutingRequest(10, session=f"s{n}")) for n in range(300)}
    assert all(after[n] == place for n, place in before.items() if place != 4)
    assert min(Counter(before.values()).values()) > 30


def test_consistent_hash_holds_the_bound_when_all_have_one_session():
    fleet = fleet_of("consistent_hash", 4)
    for _ in range(100):
        send(fleet, RoutingRequest(10, session="the one"))
    assert max(replica.running for replica in fleet.replicas) <= -(-1.25 * 101 // 4)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_weighted_is_exact_over_every_turn(weights):
    fleet = fleet_of("round_robin", len(weights), tuple(weights))
    firsts = Counter(first(fleet, ask_for(1)) for _ in range(sum(weights)))
    assert firsts == dict(enumerate(weights))


def test_random_follows_weights():
    fleet = fleet_of("random", 2, weights=(3, 1))
    firsts = Counter(first(fleet, ask_for(1)) for _ in range(2_000))
    assert 1_400 < firsts[0] < 1_600
