"""Rows of the gateway beside those of what it is compared with, and the start of its rivals."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.gateway_plan import Plan
from bench.load.peers import Peer
from bench.load.result import Quantiles
from bench.load.rig import Rig
from bench.load.rivals import RIVALS, start_rival
from bench.load.sample import Sample
from bench.report import Report

GATEWAY: Final = "gateway"


def add_beside(
    report: Report,
    metric: str,
    figures: dict[str, float],
    unit: str,
    n: int,
    bounds: tuple[float | None, float | None] = (None, None),
    unjudged: str = "",
) -> None:
    """Add the gateway's row, with its ratio to each of the others', and theirs, which have no bound. `unjudged` is why
    the bound says nothing in this run, if that is so.
    """
    ours = figures[GATEWAY]
    ratios = {name: ours / figure for name, figure in figures.items() if name != GATEWAY and figure > 0}
    must, stretch = bounds
    report.add(metric, ours, unit, must=must, stretch=stretch, better="lower", ratio_to=ratios, n=n, unjudged=unjudged)
    for name, figure in figures.items():
        if name != GATEWAY:
            report.add(f"{metric}_{name}", figure, unit, better="lower", n=n)


def quantile_of(quantiles: Quantiles | None, name: str) -> float:
    if quantiles is None or not quantiles.n:
        raise RuntimeError("the load client measured nothing to take a quantile of")
    return float(getattr(quantiles, name))


def rate_of(sample: Sample) -> float:
    return sample.result.rps


def chunk_rate_of(sample: Sample) -> float:
    return sample.result.chunks_per_s


def start_rivals(
    plan: Plan, rig: Rig, home: Path, stack: ExitStack, names: Sequence[str] = RIVALS
) -> dict[str, Peer | str]:
    """Return each rival, which ends with the stack, or why it is not there."""
    found: dict[str, Peer | str] = {}
    for name in names:
        if not plan.with_rivals:
            found[name] = "rivals are measured in full runs only"
            continue
        try:
            process, found[name] = start_rival(name, rig.cores.measured, home, rig.mock_ports)
            stack.callback(process.stop)
        except RuntimeError as error:
            found[name] = str(error)
    return found
