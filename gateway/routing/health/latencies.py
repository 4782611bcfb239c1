"""Recent latency quantiles within 10 %, from exponential histogram buckets."""

import math
from typing import Final

_LEAST_NS: Final = 1_000_000  # the first bucket: up to a millisecond
_GROWTH: Final = math.log(1.1)
_BUCKETS: Final = 160  # up to an hour


class Latencies:
    """Counts of durations in two halves of a window; `turn` drops the older half."""

    __slots__ = ("_last", "_now", "count")

    def __init__(self) -> None:
        self._now = [0] * _BUCKETS
        self._last = [0] * _BUCKETS
        self.count = 0  # in both halves

    def add(self, took_ns: int) -> None:
        """Count a duration in nanoseconds."""
        place = 0 if took_ns <= _LEAST_NS else int(math.log(took_ns / _LEAST_NS) / _GROWTH) + 1
        self._now[min(place, _BUCKETS - 1)] += 1
        self.count += 1

    def quantile_ns(self, share: float) -> int | None:
        """Return the duration that a share (0 to 1) of them did not exceed, rounded up; `None` if there are none."""
        if not self.count:
            return None
        wanted, seen = math.ceil(share * self.count), 0
        for place in range(_BUCKETS):
            seen += self._now[place] + self._last[place]
            if seen >= wanted:
                return round(_LEAST_NS * math.exp(place * _GROWTH))
        raise AssertionError("the count is the buckets' sum")

    def turn(self) -> None:
        """Start the next half of the window."""
        self._last, self._now = self._now, [0] * _BUCKETS
        self.count = sum(self._last)
