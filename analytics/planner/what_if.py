"""A what-if analysis: the current plan, the changed plan, and the number of replicas that an objective needs.

The command line and the dashboard both use it, so their results agree.
"""

from collections.abc import Callable
from dataclasses import replace

from analytics.planner.hardware import Served, gpu_named, moved
from analytics.planner.question import WhatIf
from analytics.planner.scenario import Objective, Plan, Sizing, SpotMachines, replicas_needed
from analytics.planner.setup import ReplicaSetup
from analytics.planner.setup_file import setup_as_json
from analytics.planner.workload import Workload
from contracts.errors import InvalidRequest


def _silent(stage: str) -> None:
    """Do nothing."""


def simulate(
    asked: WhatIf, workload: Workload, setup: ReplicaSetup, tell: Callable[[str], None] = _silent
) -> dict[str, object]:
    """Simulate the current and the changed plan, and find the number of replicas that an objective needs.

    Returns what `tollkeeper plan --json` prints. `tell` is called with each stage's text. Raises InvalidRequest on
    impossible values.
    """
    plan = _as_it_is(asked, workload, setup)
    changed = _changed(plan, asked)
    tell(f"simulating {len(workload.requests):,} requests on {_counted(plan.replicas)}")
    found: dict[str, object] = {
        "workload": {
            "source": plan.workload.source,
            "requests": len(plan.workload.requests),
            "seconds": round(plan.workload.seconds, 3),
        },
        "replica": setup_as_json(plan.setup),
        "policy": plan.policy,
        "seed": plan.seed,
        "replicas": plan.replicas,
        "now": plan.simulate().as_json(),
    }
    if changed != plan:
        tell("simulating the changed plan")
        found["what_if"] = {
            "workload": changed.workload.source,
            "replica": setup_as_json(changed.setup),
            "outcome": changed.simulate().as_json(),
        }
    if asked.ttft_p95_ms is not None or asked.gap_p95_ms is not None:
        objective = Objective(ttft_p95_ms=asked.ttft_p95_ms, gap_p95_ms=asked.gap_p95_ms)
        sizing = replicas_needed(changed, objective, on_try=lambda count: tell(f"trying {_counted(count)}"))
        found["sizing"] = _sized(sizing)
    return found


def _as_it_is(asked: WhatIf, workload: Workload, setup: ReplicaSetup) -> Plan:
    if asked.usd_per_gpu_hour is not None:
        setup = replace(setup, usd_per_gpu_hour=asked.usd_per_gpu_hour)
    if asked.kv_blocks is not None:
        setup = replace(setup, kv_blocks=asked.kv_blocks)
    return Plan(workload=workload, setup=setup, replicas=asked.replicas, policy=asked.policy, seed=asked.seed)


def _changed(plan: Plan, asked: WhatIf) -> Plan:
    """Return the plan with the changes asked for."""
    setup, workload = plan.setup, plan.workload
    if asked.without:
        workload = workload.without(asked.without)
    if asked.traffic != 1.0:
        workload = workload.busier(asked.traffic)
    if asked.chunk_tokens is not None:
        setup = replace(setup, max_batch_tokens=asked.chunk_tokens)
    if asked.to_gpu or asked.quantization:
        setup = _on_other_hardware(setup, asked)
    spot = None if asked.spot_share is None else SpotMachines(share=asked.spot_share)
    return replace(plan, workload=workload, setup=setup, spot=spot)


def _on_other_hardware(setup: ReplicaSetup, asked: WhatIf) -> ReplicaSetup:
    if not asked.gpu:
        raise InvalidRequest("name the GPU that the replica was measured on (--gpu); ratios start from it", param="gpu")
    served = None
    if asked.parameters_billions is not None and asked.kv_token_bytes is not None:
        served = Served(asked.parameters_billions, asked.kv_token_bytes)
    old = gpu_named(asked.gpu)
    new = gpu_named(asked.to_gpu) if asked.to_gpu else old
    return moved(
        setup,
        old,
        new,
        served=served,
        quantization=asked.quantization or None,
        usd_per_gpu_hour=asked.to_usd_per_gpu_hour,
    )


def _sized(sizing: Sizing) -> dict[str, object]:
    outcome = sizing.outcome
    return {
        "replicas": sizing.replicas,
        "reason": "" if sizing.replicas else f"even {sizing.most} replicas do not meet the objective",
        "outcome": None if outcome is None else outcome.as_json(),
        "tried": [count for count, _ in sizing.tried],
    }


def _counted(replicas: int) -> str:
    return "1 replica" if replicas == 1 else f"{replicas:,} replicas"
