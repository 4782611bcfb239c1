"""Requests counted by how long they took, in steps that are a fifth to a third apart, and percentiles read off them."""

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from contracts.rules.objectives import STEPS_TENTHS_MS

TENTH_MS_NS: Final = 100_000
# Bounds of the steps in tenths of a millisecond: step N lies above the Nth and up to the next, the last has no end.
BOUNDS_TENTHS_MS: Final = (0, *STEPS_TENTHS_MS)


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts by step; `counts` maps a step's lower bound, in tenths of a millisecond, to its requests."""

    counts: Mapping[int, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Count all that were measured."""
        return sum(self.counts.values())

    def __add__(self, other: "Histogram") -> "Histogram":
        """Add another's counts."""
        lows = {*self.counts, *other.counts}
        return Histogram({low: self.counts.get(low, 0) + other.counts.get(low, 0) for low in lows})

    def quantile_ns(self, level: float) -> float | None:
        """Return the time that a share `level` (above 0, up to 1) of the requests took at most; `None` if none counts.

        The step it lies in is exact; within the step it is placed as if its requests were spread evenly on a scale of
        ratios, so it is off by less than a third. Of the last step, which has no end, it is the beginning.
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
        """Count those that took longer than a bound of the steps."""
        return sum(count for low, count in self.counts.items() if low >= limit_tenths_ms)


def step_end(low_tenths_ms: int) -> int | None:
    """Return where a step ends, from where it begins, in tenths of a millisecond; `None` for the last."""
    place = bisect_right(BOUNDS_TENTHS_MS, low_tenths_ms)
    return BOUNDS_TENTHS_MS[place] if place < len(BOUNDS_TENTHS_MS) else None
