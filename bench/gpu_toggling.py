"""A meter that goes on and off within an answer: both ways meet the same seconds of a machine whose pace changes."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bench.gpu_figures import FigureFile
from bench.gpu_runs import Answer, Run

BLOCK_STEPS: Final = 133  # with the first ones left out, two whole rounds of what a meter does now and then
_SETTLING_STEPS: Final = 3  # two steps are in flight; and the first of a block reads a batch unlike the one before it


def is_metered(step: int, block_steps: int, begins_metered: bool) -> bool:
    """Return whether the step that gives an answer's token number `step`, from 0, is metered."""
    return (step // block_steps % 2 == 0) is begins_metered


@dataclass(frozen=True, slots=True)
class BlockPair:
    """Inter-token latencies, in seconds, of two blocks next to each other: metered and not."""

    on: Sequence[float]
    off: Sequence[float]


def block_pairs(answer: Answer, block_steps: int, begins_metered: bool) -> list[BlockPair]:
    """Return a lone answer's whole pairs of blocks, without each block's first steps. Tokens must have come one by one
    or together in order: a gap belongs to the token that ends it.
    """
    gaps = [0.0, *answer.gaps]  # the first token ends none
    blocks = [gaps[at + _SETTLING_STEPS : at + block_steps] for at in range(0, len(gaps), block_steps)]
    whole = [block for block in blocks if len(block) == block_steps - _SETTLING_STEPS]
    halves = list(zip(whole[::2], whole[1::2], strict=False))
    return [BlockPair(*pair) if begins_metered else BlockPair(*reversed(pair)) for pair in halves]


def pairs_of(runs: Sequence[Run], block_steps: int) -> list[BlockPair]:
    """Return all pairs of runs with one answer each, the first of which begins metered, the next not, and so on."""
    return [
        pair
        for place, run in enumerate(runs)
        for answer in run.answers
        for pair in block_pairs(answer, block_steps, place % 2 == 0)
    ]


def add_toggled(figures: FigureFile, name: str, pairs: Sequence[BlockPair]) -> None:
    """Add what metering costs: the median of the pairs' ratios of throughput, and quantiles over all of each way."""
    on = sorted(gap for pair in pairs for gap in pair.on)
    off = sorted(gap for pair in pairs for gap in pair.off)
    ratios = [sum(pair.off) / len(pair.off) * len(pair.on) / sum(pair.on) for pair in pairs]
    figures.add(f"{name}_throughput", statistics.median(ratios), n=len(pairs), unit="ratio")
    means = (sum(off) / len(off)) / (sum(on) / len(on))
    figures.add(f"{name}_throughput_of_means", means, n=len(pairs), unit="ratio")
    for label, quantile in (("p50", 0.5), ("p99", 0.99)):
        of_on, of_off = (one[int(quantile * (len(one) - 1))] for one in (on, off))
        figures.add(f"{name}_itl_{label}", of_on / of_off, n=len(on), unit="ratio")
        figures.add(f"{name}_on_itl_{label}", 1e3 * of_on, n=len(on), unit="ms")
        figures.add(f"{name}_off_itl_{label}", 1e3 * of_off, n=len(off), unit="ms")
