"""A histogram of durations with fixed buckets, in integers. Counting a duration costs one bisection."""

from bisect import bisect_left
from collections.abc import Iterable
from functools import cache
from typing import Final, Self

_NANOSECONDS: Final = 1_000_000_000

# Upper bounds in seconds, as the GenAI conventions advise for servers.
FIRST_TOKEN_SECONDS: Final[tuple[float, ...]] = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1),
    *(0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
)
DURATION_SECONDS: Final[tuple[float, ...]] = tuple(round(0.01 * 2**power, 2) for power in range(14))  # 0.01 to 81.92
# Ours: a request that is let in at once waits microseconds, and the event loop is to be late by no more than 20 ms.
WAIT_SECONDS: Final[tuple[float, ...]] = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
LOOP_LAG_SECONDS: Final[tuple[float, ...]] = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0)


class Histogram:
    """Counts durations in nanoseconds by upper bound in seconds, the bound included. The sum is exact."""

    __slots__ = ("_bounds_ns", "bounds_seconds", "counts", "sum_ns")

    def __init__(self, bounds_seconds: tuple[float, ...]) -> None:
        self.bounds_seconds = bounds_seconds
        self._bounds_ns = _in_nanoseconds(bounds_seconds)
        self.counts = [0] * (len(bounds_seconds) + 1)  # of each bucket alone; the last has no bound
        self.sum_ns = 0

    def observe(self, duration_ns: int) -> None:
        """Count a duration."""
        self.counts[bisect_left(self._bounds_ns, duration_ns)] += 1
        self.sum_ns += duration_ns

    def add(self, other: Self) -> None:
        """Add another histogram with the same bounds."""
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.sum_ns += other.sum_ns

    @property
    def count(self) -> int:
        """Return how many durations were counted."""
        return sum(self.counts)

    @property
    def sum_seconds(self) -> float:
        """Return the sum of all durations in seconds."""
        return self.sum_ns / _NANOSECONDS


@cache
def _in_nanoseconds(bounds_seconds: tuple[float, ...]) -> list[int]:
    return [round(bound * _NANOSECONDS) for bound in bounds_seconds]


def sum_of(bounds_seconds: tuple[float, ...], parts: Iterable[Histogram]) -> Histogram:
    """Return the sum of histograms that all have these bounds."""
    total = Histogram(bounds_seconds)
    for part in parts:
        total.add(part)
    return total
