"""The health of targets: what counts against one, who is left alone for being slow, and what a reload keeps."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import (
    EngineUnavailable,
    TargetMisconfigured,
    UnsupportedParameter,
    UpstreamBroken,
    UpstreamError,
    UpstreamRateLimited,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from contracts.serving.configuration import EMPTY_SNAPSHOT, PoolSpec, TargetSpec
from contracts.serving.failures import BreakerPolicy, FailurePolicy, Playbook
from gateway.config.targets import TargetReplaced
from gateway.request.clock import Clock
from gateway.routing.attempts.turn_order import turns
from gateway.routing.health.breaker import CallPermission
from gateway.routing.health.health_book import HealthBook
from gateway.routing.health.target_health import is_fault, rest_asked

S = 1_000_000_000


class Bench:
    """A book of one pool, and its clock."""

    def __init__(self, targets=("a", "b", "c"), policy=None, playbooks=(), providers=None):
        self.now = 0
        self.book = HealthBook(Clock(lambda: self.now, lambda: self.now), lambda: 0.0)
        self.specs = [
            TargetSpec(id=name, pool="p", kind="scripted", provider=(providers or {}).get(name, "")) for name in targets
        ]
        pool = PoolSpec("p", tuple(self.specs), failures=policy or FailurePolicy())
        self.snapshot = replace(
            EMPTY_SNAPSHOT, pools={"p": pool}, playbooks={playbook.provider: playbook for playbook in playbooks}
        )
        self.book.sync(self.snapshot)

    def __getitem__(self, name):
        return self.book.pool("p").targets[name]

    def fail(self, name, times=5):
        for _ in range(times):
            self[name].note_failure(self.now, UpstreamError("it failed"))

    def order(self):
        return [spec.id for spec in turns(self.specs, self.book, lambda: self.now, is_begun=False)]


FAULTS = [UpstreamError, UpstreamTimeout, UpstreamBroken, UpstreamUnreachable, TargetMisconfigured]
NO_FAULTS = [UpstreamRateLimited, UpstreamRejected, UnsupportedParameter, EngineUnavailable, TargetReplaced]


@pytest.mark.parametrize("error", FAULTS)
def test_what_says_that_a_target_is_not_well_counts_against_it(error):
    assert is_fault(error("why"))


@pytest.mark.parametrize("error", NO_FAULTS)
def test_what_a_request_or_a_limit_is_to_blame_for_does_not(error):
    assert not is_fault(error("why"))


def test_a_path_that_a_target_does_not_know_says_nothing_of_the_others():
    assert not is_fault(TargetMisconfigured("404", code="upstream_not_found"))


def test_a_rest_is_as_long_as_it_was_asked_for_and_bounded():
    bench = Bench()
    assert rest_asked(UpstreamRateLimited("slow", retry_after_seconds=7)) == 7
    bench["a"].rest(0, 86_000)
    assert bench["a"].rests_until_ns == 300 * S


def test_candidates_come_as_they_are_where_nothing_is_wrong():
    assert Bench().order() == ["a", "b", "c"]


def test_one_that_is_open_is_left_out_and_one_that_rests_comes_last():
    bench = Bench()
    bench.fail("a")
    bench["b"].rest(0, 5)
    assert bench.order() == ["c", "b"]


def test_a_probe_that_is_due_comes_first_and_only_once():
    bench = Bench()
    bench.fail("c")
    bench.now = 2 * S
    assert bench["a"].is_plain
    bench.book.look()
    assert not bench["a"].is_plain, "somebody has to be led to the probe"
    assert bench.order() == ["c", "a", "b"]
    probes = bench["c"].begin()
    assert probes and bench["a"].is_plain
    assert bench.order() == ["a", "b"]
    bench["c"].end_probe(probes, bench.now, is_good=True, took_ns=1, is_whole=False)
    assert bench["c"].is_plain


@pytest.mark.parametrize(("when_all_away", "order"), [("call", ["a", "b", "c"]), ("refuse", [])])
def test_where_all_are_away_the_policy_says_whether_they_are_called(when_all_away, order):
    bench = Bench(policy=FailurePolicy(when_all_away=when_all_away))
    for name in "abc":
        bench.fail(name)
    assert bench.order() == order


def test_a_good_answer_of_one_that_was_called_although_it_was_away_brings_it_back():
    bench = Bench(("a",))
    bench.fail("a")
    probes = bench["a"].begin()
    bench["a"].end_probe(probes, 0, is_good=True, took_ns=1, is_whole=False)
    assert bench["a"].is_plain


@pytest.mark.parametrize(("seconds", "is_left"), [(2.4, False), (2.6, True), (9.0, True)])
@pytest.mark.parametrize("is_whole", [True, False])
def test_one_that_takes_many_times_as_long_as_its_siblings_is_left_alone(seconds, is_left, is_whole):
    bench = Bench()
    for name, took in [("a", 0.5), ("b", seconds), ("c", 0.5)]:
        for _ in range(20):
            bench[name].note_success(round(took * S), is_whole=is_whole)
    bench.book.look()
    assert [bench[name].is_away for name in "abc"] == [False, is_left, False]


def test_slow_by_a_factor_but_not_by_seconds_is_not_left_alone():
    bench = Bench()
    for name, took in [("a", 0.02), ("b", 0.4), ("c", 0.02)]:
        for _ in range(20):
            bench[name].note_success(round(took * S), is_whole=False)
    bench.book.look()
    assert not bench["b"].is_away


def test_at_most_half_a_pool_is_left_alone_for_being_slow():
    bench = Bench("abcdef")
    for name, took in zip("abcdef", (1, 1, 1, 50, 60, 70), strict=True):
        for _ in range(20):
            bench[name].note_success(took * S, is_whole=False)
    for _ in range(3):
        bench.book.look()
    assert sum(bench[name].is_away for name in "abcdef") <= 3


def test_a_reload_keeps_the_health_of_what_stays_and_takes_its_new_policy():
    bench = Bench()
    bench.fail("a")
    health = bench["a"]
    pool = PoolSpec("p", tuple(bench.specs[:2]), failures=FailurePolicy(breaker=BreakerPolicy(good_probes=7)))
    bench.book.sync(replace(bench.snapshot, pools={"p": pool}))
    assert bench["a"] is health is bench.book.of(bench.specs[0]) and health.is_away
    assert health.breaker is not None and health.breaker.policy.good_probes == 7
    assert set(bench.book.pool("p").targets) == {"a", "b"}
    bench.book.sync(replace(bench.snapshot, pools={"p": replace(pool, failures=FailurePolicy(breaker=None))}))
    assert bench["a"].is_plain


def test_a_target_that_was_set_up_anew_begins_anew():
    bench = Bench()
    bench.fail("a")
    moved = replace(bench.specs[0], url="http://elsewhere/v1")
    bench.book.sync(replace(bench.snapshot, pools={"p": PoolSpec("p", (moved, *bench.specs[1:]))}))
    assert bench["a"].is_plain and bench.book.of(moved) is bench["a"]


def test_a_request_that_waited_over_a_reload_does_not_bring_back_what_is_gone():
    bench = Bench()
    gone = bench.specs[0]
    bench.book.sync(replace(bench.snapshot, pools={"p": PoolSpec("p", tuple(bench.specs[1:]))}))
    for _ in range(5):
        bench.book.of(gone).note_failure(0, TargetMisconfigured("it cannot be used"))
    bench.now = 60 * S
    bench.book.look()
    assert not bench.book.is_degraded and bench.book.states() == {}
    assert set(bench.book.pool("p").targets) == {"b", "c"} and bench.book.of(bench.specs[1]).is_plain
    bench.book.sync(replace(bench.snapshot, pools={}))
    bench.book.pool("p").budget.requests += 1
    assert bench.book.of(gone).is_plain and not [*bench.book.targets, *bench.book.pools]


def test_what_waited_for_a_target_in_another_region_says_nothing_of_the_one_there_now():
    bench = Bench()
    old = bench.specs[0]
    moved = replace(old, region="us")
    bench.book.sync(replace(bench.snapshot, pools={"p": PoolSpec("p", (moved, *bench.specs[1:]))}))
    assert bench.book.of(moved) is bench["a"] is not bench.book.of(old)


def test_a_probe_that_spans_reloads_leaves_the_newer_breaker_as_it_is():
    bench = Bench()
    bench.fail("a")
    bench.now = 2 * S
    assert bench["a"].ask(bench.now) is CallPermission.PROBE
    probed = bench["a"].begin()
    for policy in (FailurePolicy(breaker=None), FailurePolicy()):
        pool = PoolSpec("p", tuple(bench.specs), failures=policy)
        bench.book.sync(replace(bench.snapshot, pools={"p": pool}))
    bench["a"].end_probe(probed, bench.now, is_good=None, took_ns=None, is_whole=False)
    bench.fail("a")
    bench.now += 60 * S
    assert bench["a"].ask(bench.now) is CallPermission.PROBE
    bench["a"].begin()
    assert bench["a"].ask(bench.now) is CallPermission.NO, "one probe at a time"


PLAYBOOK = Playbook("far", then=("near", "own"), outage=BreakerPolicy(failures_in_a_row=3, good_probes=2))
PROVIDERS = {"f1": "far", "f2": "far", "o": "own", "n": "near", "x": "other"}


def test_a_provider_that_is_out_is_left_alone_as_one_and_its_playbook_says_who_answers():
    bench = Bench(("f1", "f2", "x", "o", "n"), playbooks=[PLAYBOOK], providers=PROVIDERS)
    bench.fail("f1", 2)
    assert bench.order() == ["f1", "f2", "x", "o", "n"]
    bench.fail("f2", 1)
    assert bench["f1"].is_away and bench["f2"].is_away
    assert bench.order() == ["n", "o", "x"]
    assert bench.book.states()["provider far"]["state"] == "open"


def test_a_provider_comes_back_after_its_good_probes():
    bench = Bench(("f1", "f2", "x"), playbooks=[PLAYBOOK], providers=PROVIDERS)
    bench.fail("f1", 3)
    bench.now = 2 * S
    for _ in range(2):
        assert bench["f2"].ask(bench.now) is CallPermission.PROBE
        probes = bench["f2"].begin()
        assert bench["f1"].ask(bench.now) is CallPermission.NO, "one probe of a provider at a time"
        bench["f2"].end_probe(probes, bench.now, is_good=True, took_ns=1, is_whole=False)
    assert bench["f1"].is_plain and bench["f2"].is_plain


STATES = st.sampled_from(["well", "open", "due", "rests"])


@given(st.lists(STATES, min_size=1, max_size=6), st.sampled_from(["call", "refuse"]), st.booleans())
def test_only_candidates_are_called_each_once_and_none_that_is_open_where_another_is_there(states, when, is_begun):
    names = [f"t{number}" for number in range(len(states))]
    bench = Bench([*names, "not a candidate"], policy=FailurePolicy(when_all_away=when))
    for name, state in zip(names, states, strict=True):
        if state == "due":
            bench.fail(name)
    bench.now = 2 * S
    for name, state in zip(names, states, strict=True):
        if state == "open":
            bench.fail(name)
        elif state == "rests":
            bench[name].rest(bench.now, 60)
    bench.book.look()
    called = [spec.id for spec in turns(bench.specs[:-1], bench.book, lambda: bench.now, is_begun=is_begun)]
    assert len(set(called)) == len(called) and set(called) <= set(names)
    there = [name for name, state in zip(names, states, strict=True) if state != "open"]
    if there:
        assert set(called) == set(there) | set(names[:1] if is_begun else ())
    elif when == "call" and not is_begun:
        assert called == names
