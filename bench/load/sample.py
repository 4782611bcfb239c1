"""One measured stretch of load, whether others disturbed it, and figures out of several of them."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Self

from bench.load.result import LoadResult

MOST_FOREIGN: Final = 0.08  # of a core, used by others

Figure = Callable[["Sample"], float]


@dataclass(frozen=True, slots=True)
class Sample:
    """A result with what the processes used meanwhile: cores (1.0 is one busy core), `rss_mib` at the end."""

    result: LoadResult
    measured_cores: float  # by the peer
    load_cores: float  # by the mock and the client
    busy: tuple[float, float]  # the peer's core, the load's core
    rss_mib: float

    @property
    def foreign(self) -> float:
        """Return what others took of the core of which they took more."""
        return max(self.busy[0] - self.measured_cores, self.busy[1] - self.load_cores, 0.0)

    @property
    def is_disturbed(self) -> bool:
        """Return whether others took too much for the figures to count."""
        return self.foreign > MOST_FOREIGN

    @property
    def brief(self) -> str:
        """Return what a person who waits wants to see, on one line."""
        result = self.result
        what = f"{result.chunks_per_s:.0f} chunks/s" if result.chunks_per_s else f"{result.rps:.0f} requests/s"
        disturbed = ", disturbed" if self.is_disturbed else ""
        times = f"p50 {result.lat_us.p50:.0f} us, p99 {result.lat_us.p99:.0f} us"
        return f"{what}, {times}, {self.measured_cores:.2f} cores, {self.foreign:.2f} foreign{disturbed}"

    @property
    def cpu_ms_per_1k_chunks(self) -> float:
        """Return the peer's CPU milliseconds for a thousand chunks."""
        return self.measured_cores / self.result.chunks_per_s * 1e6 if self.result.chunks_per_s else float("inf")


class Series:
    """The samples of each peer, round by round: those of one round are neighbours in time."""

    def __init__(self, peers: Sequence[str]) -> None:
        self._samples: dict[str, list[Sample]] = {peer: [] for peer in peers}

    def add(self, peer: str, sample: Sample) -> None:
        """Add the sample of a peer's next round."""
        self._samples[peer].append(sample)

    def extend(self, other: Self) -> None:
        """Add the rounds of a series of the same peers."""
        for peer, samples in other._samples.items():
            self._samples[peer] += samples

    def of(self, peer: str) -> list[Sample]:
        """Return a peer's samples: the calm ones, or all where none is."""
        found = self._samples[peer]
        return [sample for sample in found if not sample.is_disturbed] or found

    def every(self, peer: str) -> list[Sample]:
        """Return all samples of a peer, for what must be true in each."""
        return self._samples[peer]

    @property
    def disturbed(self) -> int:
        """Return how many samples others disturbed."""
        return sum(sample.is_disturbed for found in self._samples.values() for sample in found)

    def median(self, peer: str, figure: Figure) -> float:
        """Return the median of a figure over a peer's samples."""
        return statistics.median(figure(sample) for sample in self.of(peer))

    def ratio(self, peer: str, other: str, figure: Figure) -> float:
        """Return the median over the rounds of one peer's figure by the other's. Rounds that are calm come first."""
        return statistics.median(figure(one) / figure(two) for one, two in self._rounds(peer, other) if figure(two))

    def added(self, peer: str, base: str, figure: Figure) -> float:
        """Return the median over the rounds of what a peer's figure is above the base's."""
        return statistics.median(figure(one) - figure(two) for one, two in self._rounds(peer, base))

    def _rounds(self, peer: str, other: str) -> list[tuple[Sample, Sample]]:
        pairs = list(zip(self._samples[peer], self._samples[other], strict=True))
        return [(one, two) for one, two in pairs if not (one.is_disturbed or two.is_disturbed)] or pairs


def slope_per_million(points: Sequence[tuple[float, float]]) -> float:
    """Fit a line through (requests so far, MiB) by least squares; return its slope in MiB for a million requests."""
    if len(points) < 2:
        raise ValueError(f"a slope needs two points, not {len(points)}")
    requests, mib = zip(*points, strict=True)
    return statistics.linear_regression(requests, mib).slope * 1e6


def lag_quantile(beats: Sequence[tuple[int, int]], step_ns: int, share: float) -> float:
    """Return a quantile of an event loop's lag in nanoseconds out of its beats: (due, came), each due `step_ns` apart.

    A loop that is late for one beat passes over those due meanwhile. They count too, as late as they would have been:
    else one long stall would weigh as little as one short.
    """
    lags: list[int] = []
    for due, came in beats:
        lags += range(came - due, -1, -step_ns) if came > due else [0]
    if not lags:
        raise ValueError("there are no beats")
    lags.sort()
    return float(lags[min(round(share * (len(lags) - 1)), len(lags) - 1)])
