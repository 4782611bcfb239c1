"""One reading of a gateway's metrics page: series by name, and sums over labels."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from prometheus_client.samples import Sample

from backends.telemetry.prometheus_text import read_samples

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MetricsPage:
    """Series by name, at the time `at_seconds` of a monotonic clock."""

    at_seconds: float
    series: Mapping[str, tuple[Sample, ...]]

    @classmethod
    def read(cls, texts: Iterable[str], at_seconds: float) -> Self:
        """Parse the pages of all workers as one. Unreadable lines are ignored."""
        found: dict[str, list[Sample]] = {}
        for text in texts:
            for sample in read_samples(text):
                found.setdefault(sample.name, []).append(sample)
        return cls(at_seconds, {name: tuple(samples) for name, samples in found.items()})

    def by(
        self, name: str, *labels: str, join: Callable[[float, float], float] = lambda one, other: one + other
    ) -> dict[Key, float]:
        """Return a metric's values by some labels, combined with `join` over the other labels; {} if there are none."""
        found: dict[Key, float] = {}
        for sample in self.series.get(name, ()):
            key = tuple(sample.labels.get(label, "") for label in labels)
            found[key] = join(found[key], sample.value) if key in found else sample.value
        return found

    def total(self, name: str) -> float | None:
        """Return the sum of a metric's series; `None` if it has none."""
        return self.by(name).get(())


@dataclass(frozen=True, slots=True)
class PagePair:
    """Two readings of one gateway, for differences."""

    earlier: MetricsPage
    later: MetricsPage

    @property
    def seconds(self) -> float:
        """Return the time between both readings in seconds."""
        return self.later.at_seconds - self.earlier.at_seconds

    def growth(self, name: str, *labels: str) -> dict[Key, float]:
        """Return a counter's increase by some labels. A counter that fell was reset: its increase is its value."""
        before = self.earlier.by(name, *labels)
        return {
            key: value if value < before.get(key, 0.0) else value - before.get(key, 0.0)
            for key, value in self.later.by(name, *labels).items()
        }

    def rate(self, name: str, *labels: str) -> dict[Key, float]:
        """Return a counter's increase per second, by some labels."""
        return {key: grown / self.seconds for key, grown in self.growth(name, *labels).items()}

    def quantile(self, histogram: str, quantile: float, label: str = "", value: str = "") -> float | None:
        """Return a quantile of a histogram's observations between both readings; only of series with `label`=`value`.

        Interpolated within a bucket, as in Prometheus; above the last bound, that bound. `None` without observations.
        """
        grown = self.growth(f"{histogram}_bucket", "le", *([label] if label else []))
        counts = sorted((float(key[0]), count) for key, count in grown.items() if not label or key[1] == value)
        if not counts or counts[-1][1] <= 0:
            return None
        wanted = quantile * counts[-1][1]
        lower, below = 0.0, 0.0
        for bound, count in counts:
            if count >= wanted:
                if bound == float("inf"):
                    return lower
                return lower + (bound - lower) * (wanted - below) / (count - below) if count > below else bound
            lower, below = bound, count
        return lower
