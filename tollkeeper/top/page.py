"""A gateway's metrics page, read once: its series by name, and the sums over them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from prometheus_client.samples import Sample

from backends.telemetry.prometheus_text import read_samples

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MetricsPage:
    """Series by name, as they stood at `at_seconds` of a clock that never goes back."""

    at_seconds: float
    series: Mapping[str, tuple[Sample, ...]]

    @classmethod
    def read(cls, texts: Iterable[str], at_seconds: float) -> Self:
        """Read the pages of all workers as one. Lines that cannot be read are passed over."""
        found: dict[str, list[Sample]] = {}
        for text in texts:
            for sample in read_samples(text):
                found.setdefault(sample.name, []).append(sample)
        return cls(at_seconds, {name: tuple(samples) for name, samples in found.items()})

    def by(
        self, name: str, *labels: str, join: Callable[[float, float], float] = lambda one, other: one + other
    ) -> dict[Key, float]:
        """Return a metric by some of its labels; what else tells its series apart is joined. Empty where it has
        none.
        """
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
    """Two readings of one gateway: what changed between them."""

    earlier: MetricsPage
    later: MetricsPage

    @property
    def seconds(self) -> float:
        """Return the time between both."""
        return self.later.at_seconds - self.earlier.at_seconds

    def growth(self, name: str, *labels: str) -> dict[Key, float]:
        """Return how much a counter grew, by some of its labels. One that fell began again, and grew by what it is."""
        before = self.earlier.by(name, *labels)
        return {
            key: value if value < before.get(key, 0.0) else value - before.get(key, 0.0)
            for key, value in self.later.by(name, *labels).items()
        }

    def rate(self, name: str, *labels: str) -> dict[Key, float]:
        """Return a counter's growth by second."""
        return {key: grown / self.seconds for key, grown in self.growth(name, *labels).items()}

    def quantile(self, histogram: str, quantile: float, label: str = "", value: str = "") -> float | None:
        """Return a quantile of what a histogram counted between both readings, where `label` is `value` if one is
        given.

        Interpolated within a bucket, as Prometheus does; beyond the last bound, that bound. `None` of nothing.
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
