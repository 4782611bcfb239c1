"""The metrics that limits and budgets count, one row of `METRIC_KINDS` each; the other lists of metrics derive from it.

`gateway/limits/demand.py` computes how much of each metric a request uses. `gateway/limits/limiter.py` (`reserve`,
`_rates`) computes what it reserves of a metric that is not counted in tokens. The command line's help lists the names,
so a change of them needs new golden files (`tests/tollkeeper/test_golden.py`).
"""

from dataclasses import dataclass
from typing import Final, Literal

# In base units, and as written by people. Both in the order of `METRIC_KINDS`.
Metric = Literal["requests", "input_tokens", "output_tokens", "tokens", "concurrency", "gpu_ns", "pico_usd"]
MetricWord = Literal["requests", "input_tokens", "output_tokens", "tokens", "concurrency", "gpu_ms", "usd"]


@dataclass(frozen=True, slots=True)
class MetricKind:
    """A metric: its name in code, its word over HTTP and in the YAML file, and the unit in messages.

    `decimals` is the maximum number of decimals of an amount in that unit.
    """

    name: Metric
    word: MetricWord
    unit: str
    decimals: int = 0

    @property
    def base_units(self) -> int:
        """Return how many base units one unit is."""
        return int(10**self.decimals)


METRIC_KINDS: Final = (
    MetricKind("requests", "requests", "requests"),
    MetricKind("input_tokens", "input_tokens", "input tokens"),
    MetricKind("output_tokens", "output_tokens", "output tokens"),
    MetricKind("tokens", "tokens", "tokens"),
    MetricKind("concurrency", "concurrency", "concurrent requests"),
    MetricKind("gpu_ns", "gpu_ms", "GPU milliseconds", decimals=6),
    MetricKind("pico_usd", "usd", "USD", decimals=12),
)
METRICS: Final[tuple[Metric, ...]] = tuple(kind.name for kind in METRIC_KINDS)
KIND_OF_METRIC: Final[dict[Metric, MetricKind]] = {kind.name: kind for kind in METRIC_KINDS}
KIND_OF_WORD: Final[dict[MetricWord, MetricKind]] = {kind.word: kind for kind in METRIC_KINDS}
