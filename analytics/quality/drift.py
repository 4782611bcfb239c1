"""Measures the shift of a distribution from a reference: pure functions on counts.

PSI is the population stability index (Siddiqi, Credit Risk Scorecards, 2006): below 0.1 means no shift, 0.25 and above
a large one. KS is the two-sample Kolmogorov-Smirnov distance with Stephens' approximation of its significance
(Numerical Recipes, 14.3.3), which is conservative with ties.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

PSI_LARGE: Final = 0.25
PSI_MODERATE: Final = 0.1
_BINS: Final = 10
_SMOOTHING: Final = 0.5  # added to every count, as a new category has no logarithm
_TERMS: Final = 100


@dataclass(frozen=True, slots=True)
class Distance:
    """A KS distance, 0 to 1, and its p-value."""

    statistic: float
    p_value: float


def stability_index(current: Mapping[str, int], reference: Mapping[str, int]) -> float:
    """Return the PSI of two counts by category; 0 for equal shares. Both must have a count."""
    names = sorted({*current, *reference})
    now = _shares([current.get(name, 0) for name in names])
    then = _shares([reference.get(name, 0) for name in names])
    return sum((p - q) * math.log(p / q) for p, q in zip(now, then, strict=True))


def length_bins(current: Mapping[int, int], reference: Mapping[int, int]) -> tuple[dict[str, int], dict[str, int]]:
    """Return both counts in bins with a tenth of the reference each, for `stability_index`."""
    bounds: list[int] = []
    total, seen = sum(reference.values()), 0
    for value in sorted(reference):
        seen += reference[value]
        if seen * _BINS >= total * (len(bounds) + 1) and len(bounds) < _BINS - 1:
            bounds.append(value)
            while seen * _BINS >= total * (len(bounds) + 1) and len(bounds) < _BINS - 1:
                bounds.append(value)
    edges = sorted(set(bounds))
    return _binned(current, edges), _binned(reference, edges)


def distance(current: Mapping[int, int], reference: Mapping[int, int]) -> Distance:
    """Return the KS distance of two counts by value. Both must have a count."""
    n, m = sum(current.values()), sum(reference.values())
    below_now = below_then = 0
    widest = 0.0
    for value in sorted({*current, *reference}):
        below_now += current.get(value, 0)
        below_then += reference.get(value, 0)
        widest = max(widest, abs(below_now / n - below_then / m))
    effective = math.sqrt(n * m / (n + m))
    return Distance(widest, _significance((effective + 0.12 + 0.11 / effective) * widest))


def _significance(scaled: float) -> float:
    if scaled < 0.2:  # the series does not converge here, and the result is 1 to ten decimal places
        return 1.0
    terms = (2 * (-1) ** (k - 1) * math.exp(-2 * (k * scaled) ** 2) for k in range(1, _TERMS))
    return min(max(math.fsum(terms), 0.0), 1.0)


def _shares(counts: Sequence[int]) -> list[float]:
    total = sum(counts) + _SMOOTHING * len(counts)
    return [(count + _SMOOTHING) / total for count in counts]


def _binned(counts: Mapping[int, int], edges: Sequence[int]) -> dict[str, int]:
    found = {str(index): 0 for index in range(len(edges) + 1)}
    for value, count in counts.items():
        found[str(sum(value > edge for edge in edges))] += count
    return found
