"""Confidence intervals of comparisons: of shares by Wilson and Newcombe, of other measures by bootstrap."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from analytics.comparison.interval import Interval

CONFIDENCE: Final = 0.95
_RESAMPLES: Final = 2_000
_SEED: Final = 20_261_122  # fixed seed: the same answers give the same interval
_MOST_VALUES: Final = 20_000  # maximum sample size; more observations take time and change little
_MOST_CELLS: Final = 4_000_000  # maximum size of resamples in memory

Floats = npt.NDArray[np.float64]


def share(successes: int, trials: int) -> Interval | None:
    """Return a share with Wilson's interval; `None` without trials."""
    from statsmodels.stats.proportion import proportion_confint  # imported here: it takes seconds

    if not trials:
        return None
    low, high = proportion_confint(successes, trials, alpha=1 - CONFIDENCE, method="wilson")
    return Interval(successes / trials, float(low), float(high), trials, "wilson")


def share_difference(first: tuple[int, int], second: tuple[int, int]) -> Interval | None:
    """Return the first share minus the second, each (successes, trials), with Newcombe's interval (1998, method 10)."""
    from statsmodels.stats.proportion import confint_proportions_2indep  # imported here: as above

    if not first[1] or not second[1]:
        return None
    low, high = confint_proportions_2indep(*first, *second, method="newcomb", compare="diff", alpha=1 - CONFIDENCE)
    value = first[0] / first[1] - second[0] / second[1]
    return Interval(value, float(low), float(high), first[1] + second[1], "newcombe")


def mean(values: Sequence[float]) -> Interval | None:
    """Return a mean with its bootstrap interval; `None` without values."""
    return _bootstrapped((values,), lambda a, axis: np.mean(a, axis=axis), is_paired=True)


def mean_ratio(first: Sequence[float], second: Sequence[float], *, is_paired: bool) -> Interval | None:
    """Return the ratio of the first mean to the second; `None` if a sample is empty or the second mean is 0.

    `is_paired`: both samples are of the same prompts in the same order, and are resampled together.
    """
    if not second or not any(second):
        return None
    return _bootstrapped(
        (first, second), lambda a, b, axis: np.mean(a, axis=axis) / np.mean(b, axis=axis), is_paired=is_paired
    )


def quantile_ratio(first: Sequence[float], second: Sequence[float], at: float) -> Interval | None:
    """Return the ratio of two samples' quantiles; `None` if a sample is empty or the second quantile is 0."""
    if not first or not second or np.quantile(second, at) <= 0:
        return None
    return _bootstrapped(
        (first, second),
        lambda a, b, axis: np.quantile(a, at, axis=axis) / np.quantile(b, at, axis=axis),
        is_paired=False,
    )


def _bootstrapped(
    samples: tuple[Sequence[float], ...], statistic: Callable[..., Any], *, is_paired: bool
) -> Interval | None:
    """Return a statistic with its percentile bootstrap interval (Efron 1979), with a fixed seed."""
    from scipy.stats import bootstrap  # type: ignore[import-untyped]  # it has no types; here: as above

    if not all(samples):
        return None
    data: tuple[Floats, ...] = tuple(np.asarray(sample[:_MOST_VALUES], dtype=np.float64) for sample in samples)
    count = max(len(sample) for sample in data)
    value = float(statistic(*data, axis=-1))
    if min(len(sample) for sample in data) < 2:  # a single observation has no spread
        return Interval(value, float("-inf"), float("inf"), count, "bootstrap")
    if all(np.ptp(sample) == 0 for sample in data):  # nothing to resample
        return Interval(value, value, value, count, "bootstrap")
    with np.errstate(divide="ignore", invalid="ignore"):  # a resample may have a denominator of 0
        found = bootstrap(
            data,
            statistic,
            n_resamples=_RESAMPLES,
            batch=max(_MOST_CELLS // count, 1),
            confidence_level=CONFIDENCE,
            method="percentile",
            paired=is_paired,
            vectorized=True,
            rng=np.random.default_rng(_SEED),
        ).confidence_interval
    return Interval(value, float(found.low), float(found.high), count, "bootstrap")
