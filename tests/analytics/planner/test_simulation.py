"""What holds for every plan: requests are served once, tokens conserved, time goes on, caches do not overflow."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithms.gpu_time.step_model import StepModel
from analytics.planner.replica import SimulatedReplica
from analytics.planner.setup import ReplicaSetup
from analytics.planner.simulation import Outage, Simulation, _Run
from analytics.planner.workload import PlannedRequest, Workload, poisson
from contracts.errors import InvalidRequest
from contracts.serving.pool_choices import POLICY_NAMES

MODEL = StepModel(token_ns=900.0, ridge_tokens=50.0, pair_ns=0.04, read_ns=11.0, logit_ns=250.0, fixed_ns=8000.0)
SMALL = ReplicaSetup(steps=MODEL, max_batch_tokens=48, max_sequences=6, kv_blocks=24, host_gap_ns=500.0, wire_ns=900.0)
UNIT = 16


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    requests, at = [], 0
    for number in range(draw(st.integers(1, 25))):
        at += draw(st.sampled_from((0, 3, 40_000, 900_000, 8_000_000)))
        tokens, common = draw(st.integers(1, 120)), draw(st.integers(0, 4))
        units = tokens // UNIT
        keys = tuple(range(min(common, units))) + tuple(1000 * (number + 1) + place for place in range(units - common))
        requests.append(
            PlannedRequest(
                at, tokens, draw(st.integers(1, 80)), f"t{number % 3}", keys, priority=draw(st.integers(0, 1))
            )
        )
    return Workload(requests, "drawn", UNIT)


outages = st.lists(
    st.builds(
        lambda place, start, length: Outage(place, float(start), float(start + length)),
        st.integers(0, 2),
        st.integers(0, 20_000_000),
        st.integers(1, 9_000_000),
    ),
    max_size=3,
)


class Watched(_Run):
    """A run that writes down what its replicas tell."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.firsts: dict[int, float] = {}
        self.ends: dict[int, float] = {}
        self.produced = 0
        self.times: list[float] = []

    def first_token(self, replica: SimulatedReplica, sequence, at_ns: float) -> None:
        self.times.append(at_ns)
        self.firsts.setdefault(sequence.course, at_ns)
        super().first_token(replica, sequence, at_ns)

    def ended(self, replica: SimulatedReplica, sequence, at_ns: float) -> None:
        assert sequence.course not in self.ends, "a request was served twice"
        assert sequence.produced == sequence.output
        assert replica.kv.held <= replica.kv.total
        self.times.append(at_ns)
        self.ends[sequence.course] = at_ns
        super().ended(replica, sequence, at_ns)


@pytest.mark.interpreted
@settings(max_examples=60, deadline=None)
@given(workload=workloads(), away=outages, policy=st.sampled_from(POLICY_NAMES))
def test_each_request_is_served_once_in_its_time(workload: Workload, away: list[Outage], policy: str) -> None:
    run = Watched([SMALL] * 3, policy, 0, sorted(away, key=lambda one: one.from_ns), workload)
    outcome = run.play()
    fitting = {
        place for place, one in enumerate(workload.requests) if SMALL.holds(one.input_tokens + one.output_tokens - 1)
    }
    assert run.ends.keys() == run.firsts.keys() == fitting
    assert outcome.served + outcome.refused == outcome.requests == len(workload.requests)
    for place in fitting:
        assert workload.requests[place].at_ns < run.firsts[place] <= run.ends[place]
    assert run.times == sorted(run.times) or away, "time went backwards"
    for replica, use in zip(run._replicas, outcome.replicas, strict=True):
        assert replica.kv.held == 0 and replica.running == replica.waiting == 0
        assert 0 <= use.peak_kv_share <= 1 and 0 <= use.busy_share <= 1


@settings(max_examples=40, deadline=None)
@given(workload=workloads(), away=outages)
def test_tokens_are_conserved(workload: Workload, away: list[Outage]) -> None:
    """Every token is computed once, but for hits, and those computed again are counted as such."""
    plain = Workload([msgspec.structs.replace(one, keys=()) for one in workload.requests], "drawn", UNIT)
    outcome = Simulation([SMALL] * 3, outages=away).run(plain)
    served = [one for one in plain.requests if SMALL.holds(one.input_tokens + one.output_tokens - 1)]
    computed = sum(use.computed_tokens for use in outcome.replicas)
    again = sum(use.recomputed_tokens for use in outcome.replicas)
    assert computed == sum(one.input_tokens + one.output_tokens - 1 for one in served) + again
    assert outcome.output_tokens == sum(one.output_tokens for one in served)
    if not away and outcome.gap_ms is not None:
        assert outcome.cached_tokens == 0


def test_the_same_seed_gives_the_same_outcome_and_draws_follow_it() -> None:
    workload = poisson(400, 300.0, 40, 20, seed=3)
    one, same, other = (
        Simulation([SMALL] * 4, policy="random", seed=seed).run(workload).as_json() for seed in (1, 1, 2)
    )
    assert one == same
    assert one != other


def test_prefixes_that_are_cached_are_not_computed_again() -> None:
    keys = tuple(range(6))
    requests = [PlannedRequest(place * 10_000_000, 100, 2, "t", keys) for place in range(5)]
    outcome = Simulation([SMALL]).run(Workload(requests, "repeated", UNIT))
    assert outcome.cached_tokens == 4 * 96
    assert outcome.replicas[0].computed_tokens == 100 + 4 * 4 + 5


def test_a_request_larger_than_every_cache_is_refused_and_counted() -> None:
    exact = SMALL.kv_blocks * SMALL.block_tokens
    for tokens, refused in ((exact, 0), (exact + 1, 1)):
        outcome = Simulation([SMALL]).run(Workload([PlannedRequest(0, tokens, 1)], "large", UNIT))
        assert outcome.refused == refused and outcome.served == 1 - refused
        assert (outcome.ttft_ms is None) is bool(refused)


def test_blocks_that_do_not_fit_the_cache_are_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match="24 tokens are not whole blocks of 16"):
        Simulation([SMALL]).run(Workload([PlannedRequest(0, 5, 1)], "odd", 24))


@pytest.mark.parametrize("replicas", [0, 1025])
def test_a_plan_has_one_to_a_thousand_and_twenty_four_replicas(replicas: int) -> None:
    with pytest.raises(InvalidRequest, match="1 to 1024 replicas"):
        Simulation([SMALL] * replicas)
