"""How truly and how fast `steptime-as/1` splits recorded GPU steps, against simpler ways of sharing the time.

Two tenants ran alone and together. Nobody may pay more than alone, nor less than what the others save without them:
what lies outside these bounds is a subsidy. The model is fitted to the runs alone; the run together is unseen.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from algorithms.gpu_time.attribution import METHOD, attribute
from algorithms.gpu_time.step_fit import fit, relative_errors
from algorithms.gpu_time.step_fitter import StepFitter
from algorithms.gpu_time.step_model import DECODE, StepModel, StepRow
from algorithms.gpu_time.step_samples import StepSample
from bench.gpu_steps import RUNS, STEPS, RecordedStep, read_runs, samples
from bench.report import Report, run_bench

FIT_RUNS: Final = ("bench", "A", "B")
TEST_RUN: Final = "AB"
SPLIT_MUST_US: Final = 60.0
DRIFT_PERCENT: Final = 10.0
ROWS: Final = 64

Array = npt.NDArray[np.float64]

# The share of a step, or of the whole run, that each row of each step is charged with.
Split = Callable[[Sequence[RecordedStep]], Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a tenant may be charged, in ns: at least what the others save without it, at most its time alone."""

    floor_ns: int
    ceiling_ns: int

    def outside_ns(self, charged_ns: float) -> float:
        """Return how far outside a charge lies; 0 inside."""
        return max(self.floor_ns - charged_ns, charged_ns - self.ceiling_ns, 0.0)


def bounds(runs: Mapping[str, Sequence[RecordedStep]], test: str) -> dict[str, Bounds]:
    """Return the bounds of each tenant of the run `test` that also ran alone, in a run named after its tag."""
    total = busy_ns(runs[test])
    tags = sorted({tag for step in runs[test] for tag in step.tags})
    alone = {tag: busy_ns(runs[tag]) for tag in tags if tag in runs}
    if len(alone) < len(tags) or len(tags) < 2:
        return {}
    return {tag: Bounds(total - sum(alone.values()) + alone[tag], alone[tag]) for tag in tags}


def busy_ns(steps: Sequence[RecordedStep]) -> int:
    """Sum what the steps took."""
    return sum(step.busy_ns for step in steps)


def charges(model: StepModel, steps: Sequence[RecordedStep]) -> dict[str, int]:
    """Return what each tag is charged by `steptime-as/1`, in ns."""
    charged: dict[str, int] = {}
    for step in steps:
        for tag, part_ns in zip(
            step.tags, attribute(model, step.busy_ns, step.rows, is_dry=step.is_dry).parts_ns, strict=True
        ):
            charged[tag] = charged.get(tag, 0) + part_ns
    return charged


def equal_split(steps: Sequence[RecordedStep]) -> dict[str, float]:
    """Share each step equally among its requests."""
    return _by_weight(steps, lambda row: 1.0)


def token_split(steps: Sequence[RecordedStep]) -> dict[str, float]:
    """Share each step by scheduled tokens."""
    return _by_weight(steps, lambda row: float(row.scheduled))


def residence_split(steps: Sequence[RecordedStep]) -> dict[str, float]:
    """Share the whole run by how long each request was in the batch (OpenCost's rule for inference)."""
    return _over_run(steps, lambda step, row: float(step.busy_ns))


def weighted_token_split(steps: Sequence[RecordedStep]) -> dict[str, float]:
    """Share the whole run by tokens, an output token weighing two (the fair counter of VTC, OSDI 2024)."""
    return _over_run(steps, lambda step, row: 2.0 if row.phase == DECODE else float(row.scheduled))


RIVALS: Final[Mapping[str, Split]] = {
    "equal": equal_split,
    "per_token": token_split,
    "residence": residence_split,
    "weighted_token": weighted_token_split,
}


def _by_weight(steps: Sequence[RecordedStep], weight: Callable[[StepRow], float]) -> dict[str, float]:
    charged: dict[str, float] = {}
    for step in steps:
        total = sum(map(weight, step.rows))
        for tag, row in zip(step.tags, step.rows, strict=True):
            charged[tag] = charged.get(tag, 0.0) + step.busy_ns * weight(row) / (total or 1.0)
    return charged


def _over_run(steps: Sequence[RecordedStep], weight: Callable[[RecordedStep, StepRow], float]) -> dict[str, float]:
    weights: dict[str, float] = {}
    for step in steps:
        for tag, row in zip(step.tags, step.rows, strict=True):
            weights[tag] = weights.get(tag, 0.0) + weight(step, row)
    scale = busy_ns(steps) / (sum(weights.values()) or 1.0)
    return {tag: part * scale for tag, part in weights.items()}


def token_proxy_errors(fitted_to: Sequence[StepSample], steps: Sequence[StepSample]) -> Array:
    """Return the relative errors of time in proportion to tokens, its rate the median of `fitted_to`."""
    rate = np.median([one.busy_ns / one.step.tokens for one in fitted_to])
    return np.array([abs(rate * one.step.tokens / one.busy_ns - 1) for one in steps])


def measure(report: Report, *, steps: Path, runs: Path, fit_runs: Sequence[str], test: str) -> None:
    """Fit to some runs of a recording, split another, and time it. --steps FILE --runs FILE --fit A,B --test AB."""
    recorded = read_runs(steps, runs)
    missing = [name for name in (*fit_runs, test) if name not in recorded]
    if missing:
        raise ValueError(f"no run named {missing[0]!r} in {runs.name}; there are {', '.join(recorded)}")
    known = [step for name in fit_runs for step in recorded[name]]
    model = fit(samples(known))
    if not model.samples:
        raise ValueError(f"runs {', '.join(fit_runs)} hold no step with anything scheduled, so nothing to fit to")
    _measure_prediction(report, model, known, recorded[test])
    _measure_charges(report, model, recorded, test)
    _measure_speed(report, model, known)


def _measure_prediction(
    report: Report, model: StepModel, known: Sequence[RecordedStep], unseen: Sequence[RecordedStep]
) -> None:
    measured = [one for one in samples(unseen) if one.is_usable]
    if not measured:
        report.add_absent("unseen_error_p90", "%", "the run to predict has no step with anything scheduled")
        return
    errors = 100 * relative_errors(model, measured)
    proxy = 100 * token_proxy_errors([one for one in samples(known) if one.is_usable], measured)
    report.add("fit_error_mean", 100 * (model.mape or 0.0), "%", better="lower", n=model.samples)
    for name, quantile in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        value, other = float(np.quantile(errors, quantile)), float(np.quantile(proxy, quantile))
        must = DRIFT_PERCENT if name == "p90" else None
        ratio = {"token_proxy": value / other} if other else {}
        report.add(f"unseen_error_{name}", value, "%", must=must, better="lower", n=len(errors), ratio_to=ratio)
    ratio = {"token_proxy": float(errors.mean() / proxy.mean())} if proxy.any() else {}
    report.add("unseen_error_mean", float(errors.mean()), "%", better="lower", n=len(errors), ratio_to=ratio)
    report.add("confidence", model.confidence, "0 to 1", n=model.samples)


def _measure_charges(
    report: Report, model: StepModel, recorded: Mapping[str, Sequence[RecordedStep]], test: str
) -> None:
    unseen = recorded[test]
    charged = charges(model, unseen)
    within = bounds(recorded, test)
    rivals = {name: split(unseen) for name, split in RIVALS.items()}
    for tag in sorted(charged):
        ratios = {name: charged[tag] / split[tag] for name, split in rivals.items() if split[tag]}
        ceiling = within[tag].ceiling_ns / 1e9 if tag in within else None
        report.add(
            f"charged_{tag}", charged[tag] / 1e9, "s", must=ceiling, better="lower", n=len(unseen), ratio_to=ratios
        )
        if tag in within:
            over = (charged[tag] - within[tag].floor_ns) / 1e9
            report.add(f"charged_{tag}_over_floor", over, "s", must=0.0, n=len(unseen))
    billable = sum(step.busy_ns for step in unseen if any(row.scheduled for row in step.rows))
    report.add("not_conserved", float(abs(billable - sum(charged.values()))), "ns", must=0.0, better="lower")
    every: dict[str, Mapping[str, float]] = {METHOD: charged, **rivals}
    for name, split in every.items():
        if not within:
            report.add_absent(f"subsidy_{name}", "s", "not every tenant also ran alone")
            continue
        subsidy = sum(within[tag].outside_ns(split[tag]) for tag in within) / 1e9
        report.add(f"subsidy_{name}", subsidy, "s", must=0.0 if name == METHOD else None, better="lower")


def _measure_speed(report: Report, model: StepModel, known: Sequence[RecordedStep]) -> None:
    repetitions = 5 if report.quick else 30
    decodes = [StepRow(1, 37 * place, phase=DECODE) for place in range(ROWS)]
    mixed = [StepRow(2048, 512), *decodes[1:]]
    fitter = StepFitter(model)
    for name, rows in (("decode", decodes), ("mixed", mixed)):
        attribute_us = _best_us(partial(attribute, model, 12_345_678, rows), 200, repetitions)
        report.add(f"split_{ROWS}_{name}", attribute_us, "us", must=SPLIT_MUST_US, better="lower", n=repetitions)
    observe_us = _best_us(partial(fitter.observe, 12_345_678, decodes), 200, repetitions)
    report.add(f"observe_{ROWS}_decode", observe_us, "us", better="lower", n=repetitions)
    fit_us = _best_us(partial(fit, samples(known)), 1, 2 if report.quick else 5)
    report.add("fit", fit_us / 1000, "ms", better="lower", n=len(known))


def _best_us(work: Callable[[], object], number: int, repetitions: int) -> float:
    """Return the best mean of several: other processes only ever slow one down."""
    best = float("inf")
    for _ in range(repetitions):
        begin = time.perf_counter()
        for _ in range(number):
            work()
        best = min(best, (time.perf_counter() - begin) / number)
    return best * 1e6


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the recording of this repository, or the one named. Gives 2 if it cannot be read."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--steps", type=Path, default=STEPS)
    parser.add_argument("--runs", type=Path, default=RUNS)
    parser.add_argument("--fit", default=",".join(FIT_RUNS))
    parser.add_argument("--test", default=TEST_RUN)
    options, rest = parser.parse_known_args(arguments)
    chosen = partial(
        measure, steps=options.steps, runs=options.runs, fit_runs=options.fit.split(","), test=options.test
    )
    chosen.__doc__ = measure.__doc__
    try:
        return run_bench("attribution", chosen, rest)
    except (OSError, ValueError) as error:
        print(f"attribution: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
