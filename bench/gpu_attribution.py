"""Is the split of GPU time true? Tenants alone and together, every subset of a batch, and steps not fitted on."""

import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from algorithms.gpu_time.attribution import METHOD
from algorithms.gpu_time.step_fit import fit, relative_errors
from algorithms.gpu_time.step_model import DECODE, StepModel
from bench.attribution import RIVALS, Bounds, charges, token_proxy_errors
from bench.gpu_figures import FigureFile
from bench.gpu_runs import Run
from bench.gpu_shares import Coalition, coalitions, distance, excess, shapley
from bench.gpu_steps import RecordedStep, samples
from bench.gpu_workloads import Ask, Workload, renewed, trickling, two_tenants, uniform, varied

Serve = Callable[[Workload], Awaitable[Run]]


def calibration(seed: int) -> list[Workload]:
    """Loads to fit a step model to: batches from one to 256, contexts up to 8,000 tokens, chunks of all sizes.

    `trickle` has what the others lack: small chunks beside few decodes, on a GPU that is never idle.
    """
    return [
        uniform("single", 1, 64, 96, seed=seed),
        uniform("eight", 8, 256, 64, seed=seed + 1),
        uniform("long", 24, 2_048, 48, seed=seed + 2),
        uniform("hundred", 128, 256, 48, seed=seed + 3),
        uniform("many", 256, 128, 48, seed=seed + 4),
        varied("mixed", seed + 5, [(40, 128, 64), (20, 1_024, 32), (10, 4_096, 16), (5, 8_000, 8)], concurrency=48),
        varied("beside", seed + 6, [(8, 7_000, 8), (64, 64, 96)], concurrency=24),
        trickling("trickle", seed + 7, [40, 90, 150, 200, 350, 480, 620, 900], rounds=4, every_seconds=0.045),
    ]


@dataclass(frozen=True, slots=True)
class Mix:
    """Steps of one kind of load: all of them, and those whose prediction is judged."""

    every: Sequence[RecordedStep]
    judged: Sequence[RecordedStep] = ()


def recorded_mixes(runs: Mapping[str, Sequence[RecordedStep]]) -> dict[str, Mix]:
    """Sort a recording's runs into mixes, by the names that workloads here have. Raises KeyError."""
    known = [step for workload in calibration(0) for step in runs.get(workload.name, ())]  # older ones lack one
    mixes = {"calibration": Mix(known)}
    for name in ("short_long", "prefix", "bursty"):
        mixes[name] = Mix([*runs[name], *runs[f"{name}.A"], *runs[f"{name}.B"]], runs[name])
    mixes["unseen"] = Mix(runs["unseen"], runs["unseen"])
    return mixes


def add_prediction(figures: FigureFile, mixes: Mapping[str, Mix]) -> None:
    """Add how well the steps of each mix are predicted by a fit to all other mixes, against time by tokens.

    The rival has a rate of its own for steps with a prefill and for those without, fitted to the same steps.
    """
    errors: dict[str, list[float]] = {"prefill": [], "decode": []}
    proxies: dict[str, list[float]] = {"prefill": [], "decode": []}
    for name, mix in mixes.items():
        if not mix.judged:
            continue
        known = [step for other, one in mixes.items() if other != name for step in one.every]
        model = fit(samples(known))
        for kind, wants_prefill in (("prefill", True), ("decode", False)):
            fitted = [one for one in samples(_of_kind(known, wants_prefill)) if one.is_usable]
            tested = [one for one in samples(_of_kind(mix.judged, wants_prefill)) if one.is_usable]
            if fitted and tested:
                errors[kind] += map(float, relative_errors(model, tested))
                proxies[kind] += map(float, token_proxy_errors(fitted, tested))
    both = [100 * one for kind in errors.values() for one in kind]
    figures.add("step_model_mape", float(np.mean(both)), n=len(both))
    figures.add("step_model_p90", float(np.quantile(both, 0.9)), n=len(both))
    figures.add("step_model_p99", float(np.quantile(both, 0.99)), n=len(both), unit="%")
    for kind, ours in errors.items():
        figures.add(f"step_model_{kind}_mape", 100 * float(np.mean(ours)), n=len(ours), unit="%")
        for label, quantile in (("p90", 0.9), ("p99", 0.99)):
            mine, other = float(np.quantile(ours, quantile)), float(np.quantile(proxies[kind], quantile))
            figures.add(f"gain_{kind}_{label}", other / mine if mine else 0.0, n=len(ours))


def _of_kind(steps: Sequence[RecordedStep], has_prefill: bool) -> list[RecordedStep]:
    return [step for step in steps if any(row.phase != DECODE for row in step.rows) == has_prefill]


async def add_tenants(figures: FigureFile, serve: Serve, model: StepModel, *, seed: int, rounds: int) -> dict[str, Mix]:
    """Run each pair of tenants alone and together, and return how far outside its bounds each split charges anybody.

    Gives the steps by mix, those of the runs together to be judged. A tenant's bounds are what the other saves without
    it, and its time alone.
    """
    every: dict[str, list[RecordedStep]] = {}
    judged: dict[str, list[RecordedStep]] = {}
    outside: dict[str, list[float]] = {}
    for number in range(rounds):
        for workload in two_tenants(seed + number):
            apart = {tenant: await serve(workload.only(tenant)) for tenant in workload.tenants}
            alone = {tenant: run.busy_ns for tenant, run in apart.items()}
            both = await serve(workload)
            steps = both.recorded()
            judged.setdefault(workload.name, []).extend(steps)
            every.setdefault(workload.name, []).extend(step for run in apart.values() for step in run.recorded())
            splits: dict[str, Mapping[str, float]] = {METHOD: charges(model, steps)}
            splits.update({name: split(steps) for name, split in RIVALS.items()})
            bounds = {tenant: Bounds(both.busy_ns - sum(alone.values()) + time, time) for tenant, time in alone.items()}
            for name, split in splits.items():
                worst = max(bounds[tenant].outside_ns(split[tenant]) for tenant in bounds) / both.busy_ns
                outside.setdefault(f"{workload.name}/{name}", []).append(100 * worst)
            if not number:
                _add_bounds(figures, workload.name, bounds, splits[METHOD])
    for key, values in outside.items():
        mix, name = key.split("/", 1)
        label = "" if name == METHOD else f"_{name}"
        figures.add(f"tenants_{mix}_outside{label}", max(values), n=len(values), unit="%")
    return {name: Mix([*every[name], *steps], steps) for name, steps in judged.items()}


def _add_bounds(figures: FigureFile, mix: str, bounds: Mapping[str, Bounds], charged: Mapping[str, float]) -> None:
    for tenant, bound in bounds.items():
        figures.add(f"tenants_{mix}_{tenant}_floor", bound.floor_ns / 1e9, unit="s")
        figures.add(f"tenants_{mix}_{tenant}_charged", charged[tenant] / 1e9, unit="s")
        figures.add(f"tenants_{mix}_{tenant}_alone", bound.ceiling_ns / 1e9, unit="s")


async def add_coalitions(
    figures: FigureFile, name: str, asks: Sequence[Ask], serve: Serve, model: StepModel, *, seed: int, rounds: int
) -> None:
    """Time every subset of a batch, and say how far splits of the whole batch lie from the exact Shapley value.

    `serve` starts all requests of a subset in one step. A subset's time is what its steps took, the median of rounds.
    """
    members = [ask.tenant for ask in asks]
    times: dict[Coalition, list[float]] = {}
    whole: list[RecordedStep] = []
    for number in range(rounds):
        for place, chosen in enumerate(coalitions(members)):
            part = renewed([ask for ask in asks if ask.tenant in chosen], seed + 1_000 * number + place)
            run = await serve(Workload(f"{name}.{place}", tuple(part), len(part)))
            times.setdefault(chosen, []).append(float(run.busy_ns))
            if len(chosen) == len(members):
                whole = run.recorded()
    measured = {chosen: statistics.median(values) for chosen, values in times.items()}
    fair = shapley(measured)
    splits: dict[str, Mapping[str, float]] = {"": charges(model, whole)}
    splits.update({f"_{rival}": split(whole) for rival, split in RIVALS.items()})
    total = measured[frozenset(members)]
    scale = total / sum(step.busy_ns for step in whole)  # the run that was split is one of those behind the median
    for label, split in splits.items():
        scaled = {member: share * scale for member, share in split.items()}
        figures.add(f"coalition_{name}_distance{label}", 100 * distance(scaled, fair), n=len(measured), unit="%")
        figures.add(f"coalition_{name}_excess{label}", 100 * excess(scaled, measured), n=len(measured), unit="%")
    sharing = 1 - total / sum(measured[frozenset({member})] for member in members)
    for chosen, time in measured.items():
        figures.add(f"coalition_{name}_{'+'.join(sorted(chosen))}", time / 1e6, n=rounds, unit="ms")
    figures.add(f"coalition_{name}_saved_by_sharing", 100 * sharing, n=len(measured), unit="%")
