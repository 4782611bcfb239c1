"""Histogram of gaps between tokens, with buckets 1 % apart, so quantiles have an error of up to 1 %."""

import math
from typing import Final

_GROWTH: Final = math.log(1.01)


class GapHistogram:
    """Counts of durations in nanoseconds."""

    __slots__ = ("_buckets", "count")

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self.count = 0

    def add(self, gap_ns: float, count: int) -> None:
        """Count the given number of gaps of one length."""
        bucket = int(math.log(gap_ns) / _GROWTH) if gap_ns > 1 else 0
        self._buckets[bucket] = self._buckets.get(bucket, 0) + count
        self.count += count

    def quantile_ns(self, share: float) -> float | None:
        """Return the nearest-rank quantile in ns, accurate to 1 %; `None` if empty."""
        if not self.count:
            return None
        rank, seen = max(math.ceil(share * self.count), 1), 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= rank:
                return math.exp((bucket + 0.5) * _GROWTH)
        raise AssertionError("the buckets hold fewer gaps than were counted")
