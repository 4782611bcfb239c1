"""Workloads for the fairness benchmark: VTC's trace, and tenants that always have something waiting."""

import csv
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.pool_simulator import Job

TRACE: Final = Path(__file__).parent / "traces" / "vtc" / "vtc_real_trace.csv"
_SECOND_NS: Final = 1_000_000_000


def vtc_jobs(*, faster: float = 1.0, shorter: float = 1.0) -> list[Job]:
    """Read VTC's trace: arrivals `faster` times as dense, prompts and outputs `shorter` times as short (at least 1)."""
    with TRACE.open() as file:
        return [
            Job(
                round(float(row["arrival_s"]) / faster * _SECOND_NS),
                row["client"],
                max(round(int(row["prompt_tokens"]) / shorter), 1),
                max(round(int(row["output_tokens"]) / shorter), 1),
            )
            for row in csv.DictReader(file)
        ]


def lightest(jobs: Sequence[Job], count: int) -> list[str]:
    """Return the names of the tenants that ask for the fewest tokens in all."""
    tokens: dict[str, int] = {}
    for job in jobs:
        tokens[job.tenant] = tokens.get(job.tenant, 0) + job.prompt_tokens + job.output_tokens
    return sorted(tokens, key=lambda tenant: (tokens[tenant], tenant))[:count]


def backlogged_jobs(
    shapes: Mapping[str, tuple[int, int, int]], each: int, spread: float = 0.5, seed: int = 0
) -> list[Job]:
    """Return `each` jobs of every tenant at time 0, by (mean prompt, mean output, weight), lengths `spread` around."""
    source = random.Random(seed)
    jobs = []
    for _ in range(each):
        for tenant, (prompt, output, weight) in shapes.items():
            prompt_tokens, output_tokens = (
                max(round(mean * source.uniform(1 - spread, 1 + spread)), 1) for mean in (prompt, output)
            )
            jobs.append(Job(0, tenant, prompt_tokens, output_tokens, weight=weight))
    return jobs
