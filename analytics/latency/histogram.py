"""Latency histograms, with buckets a fifth to a third apart, and their percentiles."""

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from contracts.rules.objectives import STEPS_TENTHS_MS

TENTH_MS_NS: Final = 100_000
# Bounds of the buckets in tenths of a millisecond: bucket N is above the Nth and up to the next; the last has no end.
BOUNDS_TENTHS_MS: Final = (0, *STEPS_TENTHS_MS)


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts by bucket; `counts` maps a bucket's lower bound, in tenths of a millisecond, to its requests."""

    counts: Mapping[int, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Return the number of measured requests."""
        return sum(self.counts.values())

    def __add__(self, other: "Histogram") -> "Histogram":
        """Return the sum of two histograms."""
        lows = {*self.counts, *other.counts}
        return Histogram({low: self.counts.get(low, 0) + other.counts.get(low, 0) for low in lows})

    def quantile_ns(self, level: float) -> float | None:
        """Return the latency in ns that a share `level` (above 0, up to 1) of requests does not exceed; `None` without
        requests.

        The bucket is exact; the value in it is interpolated logarithmically, so the error is less than a third. In the
        last bucket, which has no end, it is the lower bound.
        """
        total = self.total
        if not total:
            return None
        lows = sorted(low for low, count in self.counts.items() if count)
        sums = list(accumulate(self.counts[low] for low in lows))
        rank = max(math.ceil(level * total), 1)
        place = bisect_right(sums, rank - 1)
        low = lows[place]
        high = step_end(low)
        if high is None:
            return float(low * TENTH_MS_NS)
        before = sums[place - 1] if place else 0
        share = (rank - before) / self.counts[low]
        if low == 0:
            return high * TENTH_MS_NS * share
        return float(low * TENTH_MS_NS * (high / low) ** share)

    def above(self, limit_tenths_ms: int) -> int:
        """Return the number of requests above a bucket's bound."""
        return sum(count for low, count in self.counts.items() if low >= limit_tenths_ms)


def step_end(low_tenths_ms: int) -> int | None:
    """Return a bucket's upper bound by its lower bound, in tenths of a millisecond; `None` for the last."""
    place = bisect_right(BOUNDS_TENTHS_MS, low_tenths_ms)
    return BOUNDS_TENTHS_MS[place] if place < len(BOUNDS_TENTHS_MS) else None
