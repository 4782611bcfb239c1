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

from analytics.planner.outcome import Outcome
from analytics.planner.recorded import step_rows
from analytics.planner.setup import ReplicaSetup
from analytics.planner.simulation import Simulation
from analytics.planner.workload import PlannedRequest, Workload, poisson
from backends.engine.torch_engine.driver import Answer, collect, run
from backends.engine.torch_engine.engine import TorchEngine
from backends.engine.torch_engine.settings import EngineSettings
from bench.report import Report
from contracts.step_fit import fit
from contracts.step_model import StepRow, compose
from contracts.step_samples import SampleWindow, StepSample
from contracts.wire import Sampling, Submit

MUST: Final = 0.15  # of the measured value
LOADS: Final = (0.35, 0.6, 0.8)  # share of time in which the engine is busy
_MODEL: Final = Path(__file__).resolve().parent.parent / "backends" / "engine" / "builtin_model"
_FIRST_ID, _VOCABULARY = 16, 4_096
_INPUT, _OUTPUT, _SPREAD = 120, 16, 0.5
_MOST_INPUT: Final = 600
_CALIBRATION_SECONDS: Final = 3.0
_SPIN_SECONDS: Final = 0.002


@dataclass(frozen=True, slots=True)
class _Round:
    """What was predicted before a run; what the run's own steps give, as `tollkeeper plan` fits them; what was."""

    before: Outcome
    replayed: Outcome
    measured_ns: list[int]


def live_rows(report: Report) -> None:
    """Predict and measure three loads, each some times; of all three figures the median over the rounds is taken.

    `_before` was predicted before the run, from a calibration: it errs, too, by what the machine's speed has changed
    since. `_planned` is what `tollkeeper plan` says of a recorded time: its requests, a replica fitted to its steps.
    """
    rounds, seconds = (1, 8.0) if report.quick else (5, 15.0)
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
    before = Simulation([setup]).run(workload)
    engine.take_steps()
    measured = _play(engine, workload)
    window, gaps = SampleWindow(per_regime=128), list[int]()
    _learn(engine, window, gaps)
    replayed = Simulation([_setup(engine, window, gaps, setup.wire_ns)]).run(workload)
    return _Round(before, replayed, measured)


def _add(report: Report, name: str, rounds: list[_Round]) -> None:
    count = sum(len(one.measured_ns) for one in rounds)
    for share in (50, 95):
        found = median(_percentile_ms(one.measured_ns, share) for one in rounds)
        replayed = median(getattr(one.replayed.ttft_ms, f"p{share}") for one in rounds)
        before = median(getattr(one.before.ttft_ms, f"p{share}") for one in rounds)
        report.add(f"{name}_ttft_p{share}", found, "ms measured", better="lower", n=count)
        report.add(f"{name}_ttft_p{share}_planned", abs(replayed - found) / found,
                   f"off the measured one, at {replayed:.1f} ms", must=MUST, better="lower", n=count)  # fmt: skip
        report.add(f"{name}_ttft_p{share}_before", abs(before - found) / found,
                   f"off the measured one, at {before:.1f} ms, predicted before the run", must=MUST, better="lower",
                   n=count)  # fmt: skip


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
    window, gaps = SampleWindow(per_regime=128), list[int]()
    _learn(engine, window, gaps)
    first = _setup(engine, window, gaps, 0.0)
    _play(engine, _workload(first, load, _CALIBRATION_SECONDS, 2_000 + seed))
    _learn(engine, window, gaps)
    fitted = _setup(engine, window, gaps, 0.0)
    alone = Workload([PlannedRequest(place * 60_000_000, 20 + 10 * place, 1) for place in range(15)], "requests alone")
    taken = _play(engine, alone)
    late = [
        took - fitted.steps.predict_ns([StepRow(one.input_tokens, 0)], is_dry=True)
        for took, one in zip(taken, alone.requests, strict=True)
    ]
    engine.take_steps()
    return _setup(engine, window, gaps, max(median(late), 0.0))


def _learn(engine: TorchEngine, window: SampleWindow, gaps: list[int]) -> None:
    for step in engine.take_steps():
        if step.kind == "step":
            rows = step_rows(step.scheduled, step.context, step.phases)
            is_dry = step.gap_cause == "idle"
            window.add(StepSample(step.busy_ns, compose(rows, is_dry=is_dry), step.sequence))
            if step.gap_cause == "host":
                gaps.append(step.gap_ns)


def _setup(engine: TorchEngine, window: SampleWindow, gaps: list[int], wire_ns: float) -> ReplicaSetup:
    return ReplicaSetup(
        steps=fit(window.samples()),
        max_batch_tokens=engine.settings.max_batch_tokens,
        max_sequences=engine.settings.max_sequences,
        kv_blocks=engine.blocks.total,
        host_gap_ns=float(fmean(gaps)),
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
    """Play a workload in real time; give each request's time to first token, in nanoseconds."""
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
