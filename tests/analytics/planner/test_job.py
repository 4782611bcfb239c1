"""A plan that is sent to another process comes to what it comes to here, and says what it is doing."""

import json
from typing import Any, cast

import pytest

from algorithms.gpu_time.step_model import StepModel
from analytics.planner.job import run_job
from analytics.planner.question import GeneratedRequests, PlanJob, WhatIf
from analytics.planner.setup import ReplicaSetup
from analytics.planner.setup_file import setup_as_json
from analytics.planner.what_if import simulate
from analytics.planner.workload import poisson
from backends.store.client import StoreClient
from contracts.errors import ConfigurationError, InvalidRequest

MODEL = StepModel(token_ns=27_000, ridge_tokens=170, pair_ns=0.26, read_ns=40, logit_ns=2_000, fixed_ns=300_000)
SETUP = ReplicaSetup(steps=MODEL, kv_blocks=3_000)
NO_STORE = cast(StoreClient, None)  # a plan of made requests on a given replica asks it nothing
JOB = PlanJob(
    what_if=WhatIf(replicas=2, traffic=3.0, ttft_p95_ms=60.0),
    made=GeneratedRequests(requests=120, per_second=30.0, input_tokens=200.0, output_tokens=20.0),
    setup=json.dumps(setup_as_json(SETUP)),
)


def test_a_job_survives_the_way() -> None:
    assert PlanJob.of_bytes(JOB.as_bytes()) == JOB


def test_a_sent_plan_comes_to_the_same_and_tells_its_stages() -> None:
    stages: list[str] = []
    found: dict[str, Any] = run_job(PlanJob.of_bytes(JOB.as_bytes()), NO_STORE, stages.append)
    assert found == simulate(JOB.what_if, poisson(120, 30.0, 200.0, 20.0), SETUP)
    assert {"now", "what_if", "sizing"} <= found.keys()
    assert stages[:3] == [
        "generating 120 requests",
        "simulating 120 requests on 2 replicas",
        "simulating the changed plan",
    ]
    assert stages[3:] and all(stage.startswith("trying ") for stage in stages[3:])


@pytest.mark.parametrize("data", [b"", b"{}", b'{"what_if": {"replicas": "many"}}'])
def test_what_is_no_job_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest, match="this is not a plan"):
        PlanJob.of_bytes(data)


@pytest.mark.parametrize("hours", [0.0, -1.0, 721.0])
def test_hours_out_of_bounds_are_refused(hours: float) -> None:
    with pytest.raises(InvalidRequest, match="hours"):
        run_job(PlanJob(what_if=WhatIf(), hours=hours), NO_STORE, lambda stage: None)


def test_a_replica_that_is_none_is_named() -> None:
    with pytest.raises(ConfigurationError, match="the given replica is not valid"):
        run_job(PlanJob(what_if=WhatIf(), made=JOB.made, setup="{}"), NO_STORE, lambda stage: None)
