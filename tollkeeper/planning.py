"""Runs `tollkeeper plan`: determines workload and replica setup, and simulates."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from analytics.planner.question import WhatIf
from analytics.planner.recorded import measured_setup, recorded_workload
from analytics.planner.setup import ReplicaSetup
from analytics.planner.setup_file import read_setup
from analytics.planner.what_if import simulate
from analytics.planner.workload import SECOND_NS, PlannedRequest, Workload, poisson
from analytics.scope import Period
from contracts.errors import InvalidRequest
from tollkeeper.open_installation import open_installation
from tollkeeper.options import gpu_hour_usd
from tollkeeper.replay.formats import read_trace


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """The options of `tollkeeper plan`; those not given are `None` or empty."""

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


def answer(asked: PlanOptions) -> dict[str, object]:
    """Determine workload and replica, simulate the current and the changed setup, and return the result as JSON types.

    Raises InvalidRequest for contradictory options, and errors if the store has too few records or does not answer.
    """
    workload, setup = _found(asked)
    question = WhatIf(
        replicas=asked.replicas,
        policy=asked.policy,
        seed=asked.seed,
        usd_per_gpu_hour=gpu_hour_usd(asked.usd_per_gpu_hour),
        kv_blocks=asked.kv_blocks,
        traffic=asked.traffic,
        without=tuple(asked.without),
        chunk_tokens=asked.chunk_tokens,
        gpu=asked.gpu,
        to_gpu=asked.to_gpu,
        quantization=asked.quantization,
        parameters_billions=asked.parameters_billions,
        kv_token_bytes=asked.kv_token_bytes,
        to_usd_per_gpu_hour=gpu_hour_usd(asked.to_usd_per_gpu_hour),
        spot_share=asked.spot_share,
        ttft_p95_ms=asked.ttft_p95_ms,
        gap_p95_ms=asked.gap_p95_ms,
    )
    return simulate(question, workload, setup)


def _found(asked: PlanOptions) -> tuple[Workload, ReplicaSetup]:
    workload, setup = None, None if asked.setup is None else read_setup(asked.setup)
    if asked.trace is not None and asked.made is not None:
        raise InvalidRequest("--trace contradicts --generate; give one workload")
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
    return workload, setup


def _traced(path: Path) -> Workload:
    """Read a trace as a workload. Requests without a prompt or an answer get one token of each."""
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
