"""What-ifs and sizing: more traffic needs more replicas, other GPUs change what their figures say, spot is cheaper."""

from dataclasses import replace
from decimal import Decimal

import pytest

from algorithms.gpu_time.step_model import StepModel
from analytics.planner.hardware import GPUS, Served, blocks_that_fit, gpu_named, moved, moved_steps
from analytics.planner.scenario import Objective, Plan, SpotMachines, replicas_needed
from analytics.planner.setup import ReplicaSetup
from analytics.planner.workload import PlannedRequest, Workload, poisson
from contracts.errors import InvalidRequest

# Fitted to the recorded steps of an 8B model on an H200.
MODEL = StepModel(token_ns=27_000, ridge_tokens=170, pair_ns=0.26, read_ns=40, logit_ns=2000, fixed_ns=300_000)
SETUP = ReplicaSetup(steps=MODEL, kv_blocks=5_000, host_gap_ns=200_000, usd_per_gpu_hour=Decimal("2.50"))
PLAN = Plan(workload=poisson(600, 60.0, 400, 60, seed=5), setup=SETUP, replicas=4)


def test_the_fewest_replicas_that_keep_an_objective_are_found() -> None:
    objective = Objective(ttft_p95_ms=60.0)
    found = replicas_needed(PLAN, objective)
    assert found.replicas is not None and found.outcome is not None
    assert objective.is_kept(found.outcome)
    assert not objective.is_kept(replace(PLAN, replicas=found.replicas - 1).simulate())
    doubled = replicas_needed(replace(PLAN, workload=PLAN.workload.busier(2.0)), objective)
    assert doubled.replicas is not None and doubled.replicas > found.replicas


def test_an_objective_out_of_reach_is_said_to_be() -> None:
    found = replicas_needed(PLAN, Objective(ttft_p95_ms=0.5), most=4)
    assert found.replicas is None and found.outcome is None and [count for count, _ in found.tried] == [1, 2, 4]


def test_cost_is_exact_and_unknown_without_a_price() -> None:
    outcome = PLAN.simulate()
    seconds = Decimal(round(outcome.seconds * 10**9)) / 10**9
    assert outcome.cost_usd == (4 * Decimal("2.50") * seconds / 3600).quantize(Decimal("1e-12"))
    unpriced = replace(PLAN, setup=replace(SETUP, usd_per_gpu_hour=None)).simulate()
    assert unpriced.cost_usd is None and unpriced.usd_per_million_output_tokens is None


def test_spot_machines_are_cheaper_and_their_requests_go_on_elsewhere() -> None:
    spot = SpotMachines(share=0.5, interruptions_per_hour=900.0, return_seconds=2.0)
    regular, mixed = PLAN.simulate(), replace(PLAN, spot=spot).simulate()
    assert mixed.cost_usd is not None and regular.cost_usd is not None and mixed.cost_usd < regular.cost_usd
    assert mixed.served == regular.served == 600
    assert sum(use.recomputed_tokens for use in mixed.replicas) > 0
    assert replace(PLAN, spot=SpotMachines(share=0.0)).simulate() == regular


def test_a_workload_without_a_tenant_has_all_other_requests() -> None:
    left = PLAN.workload.without(["tenant-3"])
    assert "tenant-3" not in left.tenants
    assert left.requests == [one for one in PLAN.workload.requests if one.tenant != "tenant-3"]
    with pytest.raises(InvalidRequest, match="no request of nobody"):
        left.without(["nobody"])


@pytest.mark.parametrize("factor", [0.0, -1.0, 1000.1, float("nan")])
def test_traffic_cannot_be_multiplied_by_nonsense(factor: float) -> None:
    with pytest.raises(InvalidRequest, match="cannot be multiplied"):
        PLAN.workload.busier(factor)


def test_bandwidth_moves_reading_and_arithmetic_moves_computing() -> None:
    faster = moved_steps(MODEL, compute=1.0, bandwidth=2.0)
    assert faster.token_ns == MODEL.token_ns and faster.read_ns == MODEL.read_ns / 2
    assert faster.token_ns * faster.ridge_tokens == pytest.approx(MODEL.token_ns * MODEL.ridge_tokens / 2)
    assert faster.prefill_ns(4096) == pytest.approx(MODEL.prefill_ns(4096), rel=0.01)
    halved = moved_steps(MODEL, compute=1.0, bandwidth=1.0, weights=0.5)
    assert halved.decode_ns(1, 0) < MODEL.decode_ns(1, 0)
    assert halved.fixed_ns == MODEL.fixed_ns


def test_another_gpu_changes_time_cache_and_price() -> None:
    served = Served(8.0, 131_072)
    there = moved(SETUP, GPUS["h200"], GPUS["h100"], served=served)
    assert there.steps.read_ns == pytest.approx(MODEL.read_ns * 4.8 / 3.35)
    assert there.kv_blocks == blocks_that_fit(GPUS["h100"], served, 1, 16) == int((72e9 - 16e9) / (131_072 * 16))
    assert there.usd_per_gpu_hour is None, "the old GPU's price does not hold for the new one"
    halved = moved(SETUP, GPUS["h200"], GPUS["h200"], served=served, quantization="fp8")
    assert halved.usd_per_gpu_hour == SETUP.usd_per_gpu_hour
    assert halved.kv_blocks > moved(SETUP, GPUS["h200"], GPUS["h200"], served=served).kv_blocks


def test_what_does_not_fit_or_is_not_known_is_named() -> None:
    with pytest.raises(InvalidRequest, match="140 GB of weights leave no room"):
        blocks_that_fit(GPUS["h100"], Served(70.0, 300_000), 1, 16)
    with pytest.raises(InvalidRequest, match="no GPU is called 'tpu'"):
        gpu_named("tpu")
    with pytest.raises(InvalidRequest, match="weights in 'fp3'"):
        moved(SETUP, GPUS["h200"], GPUS["h200"], quantization="fp3")
    with pytest.raises(InvalidRequest, match="the workload .empty. has no requests"):
        Workload([], "empty")
    with pytest.raises(InvalidRequest, match="out of order or empty"):
        Workload([PlannedRequest(5, 1, 1), PlannedRequest(4, 1, 1)], "reversed")
    with pytest.raises(InvalidRequest, match="max_sequences is 0"):
        replace(SETUP, max_sequences=0)
    with pytest.raises(InvalidRequest, match="an objective bounds"):
        Objective()
