"""What `tollkeeper plan` does with its options: finds a workload and a replica, changes both, and plays them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from analytics.planner.hardware import Served, gpu_named, moved
from analytics.planner.recorded import measured_setup, recorded_workload
from analytics.planner.scenario import Objective, Plan, Sizing, Spot, replicas_needed
from analytics.planner.setup import ReplicaSetup
from analytics.planner.setup_file import read_setup, setup_as_json
from analytics.planner.workload import SECOND_NS, PlannedRequest, Workload, poisson
from analytics.scope import Period
from contracts.errors import InvalidRequest
from tollkeeper.open_installation import open_installation
from tollkeeper.replay.formats import read_trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command line says; what is left out is `None` or empty."""

    data: Path
    store_url: str
    hours: float
    model: str
    trace: Path | None
    made: int | None
    rate: float
    input_tokens: float
    output_tokens: float
    setup: Path | None
    replicas: int
    policy: str
    seed: int
    ttft_p95_ms: float | None
    gap_p95_ms: float | None
    traffic: float
    without: Sequence[str]
    chunk_tokens: int | None
    kv_blocks: int | None
    gpu: str
    to_gpu: str
    quantization: str
    parameters_billions: float | None
    kv_token_bytes: float | None
    usd_per_gpu_hour: str
    to_usd_per_gpu_hour: str
    spot_share: float | None


def answer(asked: Asked) -> dict[str, object]:
    """Play the plan as it is, the plan as it would be, and find the replicas that an objective needs.

    Raises our errors: on options that contradict each other, where the store has too little, where it is not there.
    """
    plan = _plan(asked)
    changed = _changed(plan, asked)
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
        "now": plan.play().as_json(),
    }
    if changed != plan:
        found["what_if"] = {
            "workload": changed.workload.source,
            "replica": setup_as_json(changed.setup),
            "outcome": changed.play().as_json(),
        }
    if asked.ttft_p95_ms is not None or asked.gap_p95_ms is not None:
        objective = Objective(ttft_p95_ms=asked.ttft_p95_ms, gap_p95_ms=asked.gap_p95_ms)
        found["sizing"] = _sizing(replicas_needed(changed, objective))
    return found


def _plan(asked: Asked) -> Plan:
    workload, setup = None, None if asked.setup is None else read_setup(asked.setup)
    if asked.trace is not None and asked.made is not None:
        raise InvalidRequest("--trace contradicts --made; give one workload")
    if asked.trace is not None:
        workload = _traced(asked.trace)
    elif asked.made is not None:
        workload = poisson(asked.made, asked.rate, asked.input_tokens, asked.output_tokens, seed=asked.seed)
    if workload is None or setup is None:
        now = datetime.now(UTC)
        period = Period(now - timedelta(hours=asked.hours), now)
        with open_installation(asked.data, asked.store_url, os.environ) as opened:
            workload = workload or recorded_workload(opened.store, period, model=asked.model or None)
            setup = setup or measured_setup(opened.store, period, model=asked.model or None, kv_blocks=asked.kv_blocks)
    price = _price(asked.usd_per_gpu_hour)
    if price is not None:
        setup = replace(setup, usd_per_gpu_hour=price)
    if asked.kv_blocks is not None:
        setup = replace(setup, kv_blocks=asked.kv_blocks)
    return Plan(workload=workload, setup=setup, replicas=asked.replicas, policy=asked.policy, seed=asked.seed)


def _changed(plan: Plan, asked: Asked) -> Plan:
    """Apply what is asked for."""
    setup, workload = plan.setup, plan.workload
    if asked.without:
        workload = workload.without(asked.without)
    if asked.traffic != 1.0:
        workload = workload.busier(asked.traffic)
    if asked.chunk_tokens is not None:
        setup = replace(setup, max_batch_tokens=asked.chunk_tokens)
    if asked.to_gpu or asked.quantization:
        setup = _on_other_hardware(setup, asked)
    spot = None if asked.spot_share is None else Spot(share=asked.spot_share)
    return replace(plan, workload=workload, setup=setup, spot=spot)


def _on_other_hardware(setup: ReplicaSetup, asked: Asked) -> ReplicaSetup:
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
        usd_per_gpu_hour=_price(asked.to_usd_per_gpu_hour),
    )


def _traced(path: Path) -> Workload:
    """Read a trace as a workload. Requests without a prompt or an answer are planned with a token of each."""
    trace = read_trace(path)
    requests = [
        PlannedRequest(
            round(one.at_seconds * SECOND_NS),
            max(one.input_tokens, 1),
            max(one.output_tokens, 1),
            one.client,
            one.prefix_blocks,
        )
        for one in trace.requests
    ]
    return Workload(requests, trace.name, trace.block_tokens)


def _price(text: str) -> Decimal | None:
    if not text:
        return None
    try:
        price = Decimal(text)
    except ArithmeticError as error:
        raise InvalidRequest(f"{text[:40]!r} is no price of a GPU-hour; give USD such as 2.50") from error
    if not price.is_finite() or price < 0:
        raise InvalidRequest(f"a GPU-hour cannot cost {text[:40]} USD")
    return price


def _sizing(sizing: Sizing) -> dict[str, object]:
    outcome = sizing.outcome
    return {
        "replicas": sizing.replicas,
        "reason": "" if sizing.replicas else f"not even {sizing.most} replicas keep it; the objective is out of reach",
        "outcome": None if outcome is None else outcome.as_json(),
        "tried": [count for count, _ in sizing.tried],
    }
