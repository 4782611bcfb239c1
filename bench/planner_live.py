"""The planner against the torch engine live: what it says of a run, and what the run took.

The engine computes in this thread, as its host has it: what has arrived joins the next step. Loads are drawn by the
plan itself, and played in real time.
"""

import random
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Final

from algorithms.gpu_time.step_model import compose
from algorithms.gpu_time.step_samples import StepSample
from analytics.planner.outcome import Outcome
from analytics.planner.recorded import step_rows
from analytics.planner.setup import ReplicaSetup
from analytics.planner.simulation import Simulation
from analytics.planner.step_pace import paced
from analytics.planner.workload import PlannedRequest, Workload, poisson
from backends.engine.torch_engine.engine import TorchEngine
from backends.engine.torch_engine.settings import EngineSettings
from bench.report import Report
from bench.torch_driver import Answer, collect, run
from contracts.engine.wire import Sampling, Submit

MUST: Final = 0.15  # of the measured value
LOADS: Final = (0.35, 0.6, 0.8)  # share of time in which the engine is busy
_MODEL: Final = Path(__file__).resolve().parent.parent / "backends" / "engine" / "builtin_model"
_FIRST_ID, _VOCABULARY = 16, 4_096
_INPUT, _OUTPUT, _SPREAD = 120, 16, 0.5
_MOST_INPUT: Final = 600
_CALIBRATION_SECONDS: Final = 15.0
_DRAWS: Final = 15  # of single steps' luck; of them the median
_SPIN_SECONDS: Final = 0.002


@dataclass(frozen=True, slots=True)
class _Round:
    """What was predicted before a run; what the run's own steps give, as `tollkeeper plan` fits them; what was."""

    before: list[Outcome]
    replayed: list[Outcome]
    measured_ns: list[int]
    slowness: float  # how many times as long the run's steps took as they did when it was predicted


def live_rows(report: Report) -> None:
    """Predict and measure three loads, each in some runs; of the runs' errors the median is taken.

    `_before` was predicted before the run, from a calibration: it errs, too, by what the machine's speed has changed
    since. `_planned` is what `tollkeeper plan` says of a recorded time: its requests, a replica fitted to its steps.
    """
    rounds, seconds = (1, 8.0) if report.quick else (report.options.live_runs, report.options.live_seconds)
    engine = TorchEngine(EngineSettings(path=_MODEL, kv_bytes=1 << 29, threads=1, prefix_cache=False, max_sequences=64))
    try:
        engine.warm_up()
        for load in LOADS:
            _add(report, f"load_{round(100 * load)}", [_round(engine, load, seconds, seed) for seed in range(rounds)])
    finally:
        engine.close()


def _round(engine: TorchEngine, load: float, seconds: float, seed: int) -> _Round:
    setup = _calibrated(engine, load, seed)
    workload = _workload(setup, load, seconds, seed)
    before = _plans(setup, workload)
    engine.take_steps()
    measured = _play(engine, workload)
    seen = _Seen()
    seen.learn(engine)
    after = seen.setup(engine, setup.wire_ns)
    return _Round(before, _plans(after, workload), measured, seen.slowness(setup))


def _plans(setup: ReplicaSetup, workload: Workload) -> list[Outcome]:
    return [Simulation([setup], seed=seed).run(workload) for seed in range(_DRAWS)]


def _planned_ms(plans: list[Outcome], share: int) -> float:
    found: list[float] = [getattr(plan.ttft_ms, f"p{share}") for plan in plans]
    return median(found)


def _add(report: Report, name: str, rounds: list[_Round]) -> None:
    count = sum(len(one.measured_ns) for one in rounds)
    slowness = median(one.slowness for one in rounds)
    report.add(f"{name}_slowness", slowness, "times as long as when it was predicted", better="lower", n=count)
    for share in (50, 95):
        found = [_percentile_ms(one.measured_ns, share) for one in rounds]
        replayed = [_planned_ms(one.replayed, share) for one in rounds]
        before = [_planned_ms(one.before, share) for one in rounds]
        metric = f"{name}_ttft_p{share}"
        report.add(metric, median(found), "ms measured", better="lower", n=count)
        report.add(f"{metric}_planned", _error(replayed, found), f"off the measured one, at {_told(replayed)} ms",
                   must=MUST, better="lower", n=count)  # fmt: skip
        report.add(f"{metric}_before", _error(before, found),
                   f"off the measured one, at {_told(before)} ms, predicted before the run", must=MUST, better="lower",
                   n=count)  # fmt: skip


def _error(planned: list[float], found: list[float]) -> float:
    return median(abs(one / other - 1) for one, other in zip(planned, found, strict=True))


def _told(values: list[float]) -> str:
    return ", ".join(f"{value:.1f}" for value in values)


def _percentile_ms(values_ns: list[int], share: int) -> float:
    ordered = sorted(values_ns)
    return ordered[max(-(-share * len(ordered) // 100), 1) - 1] / 1e6


def _calibrated(engine: TorchEngine, load: float, seed: int) -> ReplicaSetup:
    """Let the engine work, at once and as requests come, and fit a replica to the steps that it measured."""
    engine.take_steps()
    source = random.Random(1_000 + seed)
    for count, tokens, output in ((4, 100, 12), (8, 200, 12), (16, 80, 16), (24, 40, 12), (2, 500, 4)):
        lengths = [max(round(tokens * source.uniform(0.5, 1.5)), 1) for _ in range(count)]
        run(engine, [_submit(f"c{tokens}-{place}", one, output, source) for place, one in enumerate(lengths)])
    seen = _Seen()
    seen.learn(engine)
    first = seen.setup(engine, 0.0)
    _play(engine, _workload(first, load, _CALIBRATION_SECONDS, 2_000 + seed))
    seen.forget_times()  # of what ran as fast as it could: a queue is another mix of steps
    seen.learn(engine)
    engine.take_steps()
    alone = Workload([PlannedRequest(place * 150_000_000, 20 + 10 * place, 1) for place in range(15)], "requests alone")
    taken = _play(engine, alone)
    busy = [step.busy_ns for step in engine.take_steps() if step.kind == "step"]
    # Each is one step's work, unless the machine stalls; what it takes besides is its way to the engine and back.
    ways = [took - step_ns for took, step_ns in zip(taken, busy, strict=False)] if len(taken) == len(busy) else []
    return seen.setup(engine, max(median(ways), 0.0) if ways else 0.0)


class _Seen:
    """The steps an engine has told of, as `measured_setup` reads them from the store."""

    def __init__(self) -> None:
        self._earlier: list[StepSample] = []
        self._samples: list[StepSample] = []
        self._gaps: list[int] = []

    def learn(self, engine: TorchEngine) -> None:
        for step in engine.take_steps():
            if step.kind == "step":
                rows = step_rows(step.scheduled, step.context, step.phases)
                composition = compose(rows, is_dry=step.gap_cause == "idle")
                self._samples.append(StepSample(step.busy_ns, composition, step.sequence))
                if step.gap_cause == "host":
                    self._gaps.append(step.gap_ns)

    def forget_times(self) -> None:
        """Keep what the fit learns of each regime alone."""
        self._earlier, self._samples, self._gaps = [*self._earlier, *self._samples], [], []

    def slowness(self, setup: ReplicaSetup) -> float:
        """Return how many times as long all steps took as a setup predicts."""
        predicted_ns = sum(setup.steps.predict_composition_ns(sample.step) for sample in self._samples)
        return sum(sample.busy_ns for sample in self._samples) / predicted_ns

    def setup(self, engine: TorchEngine, wire_ns: float) -> ReplicaSetup:
        pace = paced(self._samples, earlier=self._earlier, per_regime=128)
        return ReplicaSetup(
            steps=pace.steps,
            prompt_ratios=pace.prompt_ratios,
            decode_ratios=pace.decode_ratios,
            max_batch_tokens=engine.settings.max_batch_tokens,
            max_sequences=engine.settings.max_sequences,
            kv_blocks=engine.blocks.total,
            host_gap_ns=float(fmean(self._gaps)),
            wire_ns=wire_ns,
        )


@dataclass(frozen=True, slots=True)
class _Try:
    rate: float
    busy: float


def _workload(setup: ReplicaSetup, load: float, seconds: float, seed: int) -> Workload:
    """Draw requests that keep the engine busy for such a share of the time, by the plan itself."""
    low, high = _Try(0.01, 0.0), _Try(2_000.0, 1.0)
    for _ in range(14):
        rate = (low.rate * high.rate) ** 0.5
        busy = Simulation([setup]).run(_drawn(rate, 400, seed)).busy_share
        low, high = (_Try(rate, busy), high) if busy < load else (low, _Try(rate, busy))
    rate = (low.rate * high.rate) ** 0.5
    return _drawn(rate, max(round(rate * seconds), 20), seed)


def _drawn(rate: float, count: int, seed: int) -> Workload:
    drawn = poisson(count, rate, _INPUT, _OUTPUT, spread=_SPREAD, seed=seed)
    requests = [
        PlannedRequest(one.at_ns, min(one.input_tokens, _MOST_INPUT), one.output_tokens) for one in drawn.requests
    ]
    return Workload(requests, drawn.source)


def _play(engine: TorchEngine, workload: Workload) -> list[int]:
    """Play a workload in real time; return each request's time to first token, in nanoseconds."""
    source = random.Random(1)
    submits = [
        _submit(str(place), one.input_tokens, one.output_tokens, source) for place, one in enumerate(workload.requests)
    ]
    answers: dict[bytes, Answer] = {}
    began, arrived, count = time.monotonic_ns() + 10_000_000, 0, len(submits)
    while arrived < count or engine.has_work:
        passed = time.monotonic_ns() - began
        while arrived < count and workload.requests[arrived].at_ns <= passed:
            engine.submit(submits[arrived])
            arrived += 1
        if engine.has_work:
            collect(answers, engine.step())
        elif arrived < count:
            wait = (workload.requests[arrived].at_ns - passed) / 1e9
            if wait > _SPIN_SECONDS:
                time.sleep(wait - _SPIN_SECONDS)  # the rest is waited for awake: a sleep ends late
    return [
        answers[submit.request_id].choices[0].times_ns[0] - began - one.at_ns
        for submit, one in zip(submits, workload.requests, strict=True)
    ]


def _submit(name: str, tokens: int, output: int, source: random.Random) -> Submit:
    return Submit(
        request_id=name.encode(),
        model="",
        token_ids=[source.randrange(_FIRST_ID, _VOCABULARY) for _ in range(tokens)],
        sampling=Sampling(max_tokens=output, temperature=0.0, ignore_eos=True),
    )
