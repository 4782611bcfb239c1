"""Ways to serve compared on one GPU in alternating rounds, so that what drifts meets all of them alike."""

import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence

from bench.gpu_figures import FigureFile
from bench.gpu_runs import Run
from bench.gpu_workloads import Workload

Serve = Callable[[Workload], Awaitable[Run]]


async def alternate(
    ways: Mapping[str, Serve], make: Callable[[int], Workload], rounds: int, *, seed: int
) -> dict[str, list[Run]]:
    """Serve a workload each way in turn, `rounds` times; the order turns round too. No two runs share a prompt."""
    runs: dict[str, list[Run]] = {name: [] for name in ways}
    names = list(ways)
    for number in range(rounds):
        for place, name in enumerate(names if number % 2 == 0 else reversed(names)):
            runs[name].append(await ways[name](make(seed + number * len(names) + place)))
    return runs


def throughput_ratio(runs: Sequence[Run], rivals: Sequence[Run]) -> float:
    """Return the median of the rounds' ratios of output tokens a second."""
    return statistics.median(
        one.tokens_per_second / rival.tokens_per_second for one, rival in zip(runs, rivals, strict=True)
    )


def gap_ratio(runs: Sequence[Run], rivals: Sequence[Run], quantile: float) -> float:
    """Return the median of the rounds' ratios of inter-token latency at a quantile."""
    return statistics.median(
        one.gap_quantile_ms(quantile) / rival.gap_quantile_ms(quantile)
        for one, rival in zip(runs, rivals, strict=True)
        if rival.gap_quantile_ms(quantile) > 0
    )


def add_comparison(
    figures: FigureFile, name: str, runs: Sequence[Run], rivals: Sequence[Run], *, quantiles: Mapping[str, float]
) -> None:
    """Add ratios of one way to another: throughput and inter-token latency at the named quantiles."""
    figures.add(f"{name}_throughput", throughput_ratio(runs, rivals), n=len(runs), unit="ratio")
    for label, quantile in quantiles.items():
        figures.add(f"{name}_itl_{label}", gap_ratio(runs, rivals, quantile), n=len(runs), unit="ratio")


def add_absolute(figures: FigureFile, name: str, runs: Sequence[Run]) -> None:
    """Add what one way reached, as medians of its rounds."""
    figures.add(
        f"{name}_tokens", statistics.median(one.tokens_per_second for one in runs), n=len(runs), unit="tokens/s"
    )
    for label, quantile in (("p50", 0.5), ("p99", 0.99)):
        value = statistics.median(one.gap_quantile_ms(quantile) for one in runs)
        figures.add(f"{name}_itl_{label}", value, n=len(runs), unit="ms")
    figures.add(f"{name}_end_lag", statistics.median(one.end_lag_ms() for one in runs), n=len(runs), unit="ms")
    figures.add(
        f"{name}_ttft_p50", statistics.median(one.first_quantile_ms(0.5) for one in runs), n=len(runs), unit="ms"
    )
