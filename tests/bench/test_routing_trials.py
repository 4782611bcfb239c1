"""The default policy collapses in no trial that is made to break routers, and is as quick as the best of the others."""

import statistics

import pytest

from bench.replica_simulator import ReplicaSimulator, Setting
from bench.routing_trials import TRIALS

SECONDS = 80.0


@pytest.mark.parametrize("name", TRIALS)
def test_the_default_is_as_quick_as_the_simple_policies_and_even(name):
    trial = TRIALS[name]
    requests, faults = trial.requests(SECONDS), trial.faults(SECONDS, 10)
    took = {}
    for policy in ("cost", "least_outstanding", "consistent_hash"):
        simulator = ReplicaSimulator(policy, Setting(), faults)
        took[policy] = statistics.fmean(course.ttft_seconds for course in simulator.run(requests))
        if policy == "cost":
            assert max(simulator.work) <= 1.25 * statistics.fmean(simulator.work)
    assert took["cost"] <= 1.05 * min(took.values())


@pytest.mark.parametrize("name", TRIALS)
def test_a_trial_is_the_same_every_time(name):
    assert TRIALS[name].requests(5.0) == TRIALS[name].requests(5.0)
