"""Who takes part in a rollout, what arms add up to, and when a difference is one."""

from collections.abc import Sequence
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint

from algorithms.rollouts.rollout_tally import (
    ArmTally,
    ObservedRequest,
    RolloutTotals,
    SlidingTally,
    from_plain,
    summed,
    to_plain,
)
from algorithms.rollouts.rollout_verdict import breaches_of, least_difference, wilson
from contracts.errors import ConfigurationError
from contracts.serving.rollouts import (
    RolloutGuards,
    RolloutRules,
    RolloutSpec,
    RolloutStep,
    ShadowPolicy,
    place_of,
    plain_rules,
    rollout_rules,
    unit_of,
)

SALT = b"0123456789abcdef"
GUARDS = RolloutGuards(min_requests=50)


def spec(percent: float, **more) -> RolloutSpec:
    rules = RolloutRules(steps=(RolloutStep(percent=percent),))
    return RolloutSpec(id="r", route="a", incumbent="old", candidate="new", rules=rules, salt=SALT, **more)


@given(tenant=st.text(max_size=8), unit=st.text(max_size=20), shares=st.lists(st.floats(0.01, 100), min_size=2))
@settings(max_examples=60)
def test_who_is_in_stays_in_while_the_share_grows(tenant: str, unit: str, shares: list[float]) -> None:
    drawn = [spec(percent).draws(tenant, unit) for percent in sorted(shares)]
    assert drawn == sorted(drawn)
    assert spec(100).draws(tenant, unit)


def test_the_share_is_kept_and_is_anothers_with_another_salt() -> None:
    units = [f"key/{number}" for number in range(20_000)]
    drawn = [spec(5).draws("acme", unit) for unit in units]
    assert 850 < sum(drawn) < 1150
    others = [place_of(b"another", "acme", unit) < 50_000 for unit in units]
    assert sum(one and other for one, other in zip(drawn, others, strict=True)) < 100


@pytest.mark.parametrize("state", ["rolled_back", "promoted", "aborted"])
def test_a_rollout_that_has_ended_draws_nobody(state) -> None:
    assert not spec(100, state=state).draws("acme", "key/1")
    assert spec(100, state="paused").draws("acme", "key/1")


def test_a_conversation_is_drawn_as_one_else_its_user_else_its_key() -> None:
    assert unit_of("c", "u", "k") == "conversation/c"
    assert unit_of("", "u", "k") == "user/u"
    assert unit_of("", "", "k") == "key/k"


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ({"steps": [{"percent": 0}]}, "percent of a step must be 0.01 to 100"),
        ({"steps": [{"percent": 101}]}, "percent of a step must be 0.01 to 100"),
        ({"steps": [{"percent": 9}, {"percent": 5}]}, "each step must have more"),
        ({"steps": [{"percent": 5, "min_requests": -1}]}, "min_requests"),
        ({"steps": []}, "needs steps, a shadow, or both"),
        ({"steps": [], "shadow": {"percent": 1, "max_usd_per_day": "1"}, "promotes": True}, "promotes has no effect"),
        ({"shadow": {"percent": 1}}, "max_usd_per_day"),
        ({"shadow": {"percent": 1, "max_usd_per_day": "0"}}, "above 0"),
        ({"guards": {"max_ttft_ratio": 0.5}}, "max_ttft_ratio must be 1 to 1000"),
        ({"guards": {"min_requests": 4}}, "min_requests must be 5"),
        ({"guards": {"window_seconds": 9}}, "window_seconds must be 10"),
        ({"colour": 1}, "colour"),
    ],
)
def test_rules_that_cannot_be_are_refused_by_name(stated, words) -> None:
    with pytest.raises(ConfigurationError, match=words):
        rollout_rules(stated)


def test_rules_come_back_from_plain_data_as_they_were() -> None:
    rules = RolloutRules(shadow=ShadowPolicy(percent=2.5, max_usd_per_day=Decimal("0.5")), tenants=("acme",))
    assert rollout_rules(plain_rules(rules)) == rules
    assert rules.takes("acme") and not rules.takes("globex")
    assert not RolloutRules(not_tenants=("acme",)).takes("acme")


_SEEN = st.builds(
    ObservedRequest,
    failed=st.booleans(),
    refused=st.none() | st.booleans(),
    ttft_ms=st.none() | st.floats(0, 1e6),
    gaps_ms=st.lists(st.floats(0, 1e4), max_size=4).map(tuple),
    cost_usd=st.none() | st.integers(0, 1000).map(float),
)


@given(st.lists(_SEEN, max_size=12), st.integers(0, 12))
@settings(max_examples=60)
def test_what_two_gateways_saw_is_what_one_would_have_seen(seen: list[ObservedRequest], cut: int) -> None:
    parts = []
    for piece in (seen[:cut], seen[cut:]):
        part = RolloutTotals(step_requests=len(piece))
        for one in piece:
            part.candidate.add(one)
        parts.append(from_plain(to_plain(part)))
    whole = ArmTally()
    for one in seen:
        whole.add(one)
    found = summed(parts)
    assert found.candidate == whole and found.step_requests == len(seen)


def test_what_is_older_than_the_window_is_forgotten() -> None:
    tally = SlidingTally(30 * 10**9)
    tally.add(ObservedRequest(failed=True), 0)
    tally.add(ObservedRequest(failed=False), 20 * 10**9)
    assert tally.total(29 * 10**9).requests == 2
    assert tally.total(31 * 10**9).requests == 1
    assert tally.total(60 * 10**9).requests == 0


@given(st.integers(0, 300), st.integers(1, 300), st.integers(0, 300), st.integers(1, 300))
@settings(max_examples=60)
def test_intervals_are_those_of_a_library(some: int, all_: int, others: int, all_others: int) -> None:
    first, second = (min(some, all_), all_), (min(others, all_others), all_others)
    assert wilson(*first, z=1.959963984540054) == pytest.approx(proportion_confint(*first, method="wilson"), abs=1e-9)
    low, _ = confint_proportions_2indep(*first, *second, method="newcomb", compare="diff")
    assert least_difference(first, second, z=1.959963984540054) == pytest.approx(float(low), abs=1e-6)


def observed(
    candidate: Sequence[ObservedRequest], incumbent: Sequence[ObservedRequest], before: Sequence[ObservedRequest] = ()
) -> RolloutTotals:
    found = RolloutTotals()
    for arm, seen in ((found.candidate, candidate), (found.incumbent, incumbent), (found.incumbent_before, before)):
        for one in seen:
            arm.add(one)
    return found


def named(observation: RolloutTotals, guards: RolloutGuards = GUARDS) -> list[str]:
    return [breach.metric for breach in breaches_of(observation, guards)]


GOOD = [
    ObservedRequest(failed=False, refused=False, ttft_ms=50.0, duration_ms=200.0, gaps_ms=(8.0,), cost_usd=1.0)
] * 50


@pytest.mark.parametrize(
    ("metric", "worse"),
    [
        ("error rate", {"failed": True}),
        ("refusal rate", {"refused": True}),
        ("ttft p95 (ms)", {"ttft_ms": 120.0}),
        ("inter-token p95 (ms)", {"gaps_ms": (20.0,)}),
        ("duration p95 (ms)", {"duration_ms": 900.0}),
        ("mean cost (USD)", {"cost_usd": 2.0}),
    ],
)
def test_each_bound_is_passed_by_what_is_worse_and_by_nothing_else(metric, worse) -> None:
    plain = {
        "failed": False,
        "refused": False,
        "ttft_ms": 50.0,
        "duration_ms": 200.0,
        "gaps_ms": (8.0,),
        "cost_usd": 1.0,
    }
    bad = [ObservedRequest(**{**plain, **worse})] * 50
    assert named(observed(bad, GOOD)) == [metric]
    assert named(observed(GOOD, GOOD)) == []
    assert named(observed(GOOD, bad)) == [], "a better candidate is no breach"
    assert named(observed(bad[:49], GOOD)) == [], "too few of the candidate's"
    assert named(observed(bad, GOOD[:49])) == [], "too few of the incumbent's"
    assert named(observed(bad, GOOD[:49], GOOD)) == [metric], "then all of the rollout's count"


def test_chance_is_no_breach_and_small_times_are_alike() -> None:
    few = [ObservedRequest(failed=True)] * 3 + GOOD[:47]
    assert named(observed(few, GOOD)) == [], "three of fifty may be chance"
    assert named(observed(few * 20, GOOD * 20)) == ["error rate"], "sixty of a thousand are none"
    quick = [ObservedRequest(failed=False, ttft_ms=1.0)] * 50
    slower = [ObservedRequest(failed=False, ttft_ms=15.0)] * 50
    assert named(observed(slower, quick)) == [], "fourteen milliseconds are nothing"
    assert named(observed([ObservedRequest(failed=False, ttft_ms=30.0)] * 50, quick)) == ["ttft p95 (ms)"]


def test_a_bound_that_is_off_is_never_passed() -> None:
    bad = [ObservedRequest(failed=True)] * 50
    assert named(observed(bad, GOOD), RolloutGuards(max_error_increase=None)) == []
