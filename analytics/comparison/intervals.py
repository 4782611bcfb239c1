"""Compare two samples with confidence intervals: shares by Wilson and Newcombe, the rest by bootstrap."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from analytics.comparison.interval import Interval

CONFIDENCE: Final = 0.95
_RESAMPLES: Final = 2_000
_SEED: Final = 20_261_122  # the same answers give the same interval
_MOST_VALUES: Final = 20_000  # of a sample; more tell no more, and take time
_MOST_CELLS: Final = 4_000_000  # of resamples that are in memory at once

Floats = npt.NDArray[np.float64]


def share(successes: int, trials: int) -> Interval | None:
    """Return a share with Wilson's interval; `None` of no trials."""
    from statsmodels.stats.proportion import proportion_confint  # here: it loads for seconds

    if not trials:
        return None
    low, high = proportion_confint(successes, trials, alpha=1 - CONFIDENCE, method="wilson")
    return Interval(successes / trials, float(low), float(high), trials, "wilson")


def share_difference(first: tuple[int, int], second: tuple[int, int]) -> Interval | None:
    """Return the first share less the second, each (successes, trials), with Newcombe's interval (1998, method 10)."""
    from statsmodels.stats.proportion import confint_proportions_2indep  # here: as above

    if not first[1] or not second[1]:
        return None
    low, high = confint_proportions_2indep(*first, *second, method="newcomb", compare="diff", alpha=1 - CONFIDENCE)
    value = first[0] / first[1] - second[0] / second[1]
    return Interval(value, float(low), float(high), first[1] + second[1], "newcombe")


def mean(values: Sequence[float]) -> Interval | None:
    """Return a mean; `None` of nothing."""
    return _bootstrapped((values,), lambda a, axis: np.mean(a, axis=axis), is_paired=True)


def mean_ratio(first: Sequence[float], second: Sequence[float], *, is_paired: bool) -> Interval | None:
    """Return the first mean over the second; `None` if one has nothing, or the second's is 0.

    `is_paired`: both are of the same prompts, in the same order, and are drawn together.
    """
    if not second or not any(second):
        return None
    return _bootstrapped(
        (first, second), lambda a, b, axis: np.mean(a, axis=axis) / np.mean(b, axis=axis), is_paired=is_paired
    )


def quantile_ratio(first: Sequence[float], second: Sequence[float], at: float) -> Interval | None:
    """Return the ratio of two samples' quantiles; `None` if one has nothing, or the second's is 0."""
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
    """Return a statistic with its percentile bootstrap interval (Efron 1979), drawn the same way every time."""
    from scipy.stats import bootstrap  # type: ignore[import-untyped]  # it has no types; here: as above

    if not all(samples):
        return None
    data: tuple[Floats, ...] = tuple(np.asarray(sample[:_MOST_VALUES], dtype=np.float64) for sample in samples)
    count = max(len(sample) for sample in data)
    value = float(statistic(*data, axis=-1))
    if min(len(sample) for sample in data) < 2:  # one observation says nothing of how far they lie apart
        return Interval(value, float("-inf"), float("inf"), count, "bootstrap")
    if all(np.ptp(sample) == 0 for sample in data):  # nothing to draw from
        return Interval(value, value, value, count, "bootstrap")
    with np.errstate(divide="ignore", invalid="ignore"):  # a draw may have nothing but zeros below
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
