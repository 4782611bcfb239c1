"""Recorded GPU runs played again by the planner: what it predicts against what the H200 took.

The step model is fitted to the steps of the other runs only. A run that kept the given number of requests going at a
time is played with as many seats and all requests at once, which gives the engine the same work at the same time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from algorithms.gpu_time.step_fit import fit
from analytics.planner.outcome import Outcome
from analytics.planner.setup import ReplicaSetup
from analytics.planner.simulation import Simulation
from analytics.planner.workload import PlannedRequest, Workload
from bench.gpu_steps import RecordedStep, samples

CHUNK_TOKENS: Final = 8_192
_KV_BLOCKS: Final = 50_000  # of an H200 beside an 8B model: none of these runs fills it


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run of `bench/traces/gpu_steps`: its requests, how many at a time, and what was measured.

    `wall_seconds` is its windows' mean, `gap_p50_ms` the median over its answers.
    """

    name: str
    requests: int
    input_tokens: int
    output_tokens: int
    at_a_time: int
    wall_seconds: float
    gap_p50_ms: float

    def predicted(self, runs: Mapping[str, Sequence[RecordedStep]]) -> Outcome:
        """Play it with a model of the other runs' steps."""
        others = [step for name, steps in runs.items() if name not in (self.name, "warm", "flush") for step in steps]
        gaps = [step.gap_ns for step in others if step.gap_ns < 5_000_000]
        setup = ReplicaSetup(
            steps=fit(samples(others)),
            max_batch_tokens=CHUNK_TOKENS,
            max_sequences=self.at_a_time,
            kv_blocks=_KV_BLOCKS,
            host_gap_ns=float(median(gaps)),
        )
        one = PlannedRequest(0, self.input_tokens, self.output_tokens)
        return Simulation([setup]).run(Workload([one] * self.requests, self.name))


# Lengths are of bench/traces/gpu_steps/README.md, figures of its runs.jsonl.
RECORDED: Final = (
    RecordedRun("bench", 256, 512, 128, 256, 4.788, 13.53),
    RecordedRun("A", 192, 128, 256, 64, 5.014, 5.827),
    RecordedRun("B", 48, 6_000, 16, 8, 7.732, 6.967),
)
