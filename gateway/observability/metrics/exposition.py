"""Converts the gateway's counts to `prometheus_client` metrics, which that library renders in Prometheus' text format
(0.0.4).

The library's own counters are not used: they would duplicate the gateway's, with a lock and a lookup by labels for
every number of every request. Its metrics are created when the page is requested, a few lines at a time.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Final, Literal, Self, TypeAlias

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample as Line

from gateway.observability.metrics.histogram import Histogram

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4.encode()
_LINES_A_PIECE: Final = 50  # well below a millisecond

Kind = Literal["counter", "gauge", "histogram"]
Labels: TypeAlias = Mapping[str, str]
Sample: TypeAlias = tuple[Labels, int | float | Histogram]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its name, type and help, and a sample for each set of labels. Label sets are unique."""

    name: str
    kind: Kind
    help: str
    samples: Iterable[Sample]


def counter(name: str, help: str, value: int | float) -> Family:
    """Return a counter without labels."""
    return Family(name, "counter", help, [({}, value)])


def gauge(name: str, help: str, value: int | float) -> Family:
    """Return a gauge without labels."""
    return Family(name, "gauge", help, [({}, value)])


class _Piece(Metric, Collector):
    def collect(self) -> Iterable[Self]:
        """Return the metric itself."""
        return (self,)


def render(families: Iterable[Family]) -> Iterator[bytes]:
    """Yield the page in pieces of at most 50 lines. Each series is read at one time. Empty metrics are omitted."""
    for family in families:
        lines, ahead = _lines(family), 0
        piece = _Piece(family.name.removesuffix("_total"), family.help, family.kind)
        while found := list(islice(lines, _LINES_A_PIECE)):
            piece.samples = found
            yield generate_latest(piece).split(b"\n", ahead)[-1]
            ahead = 2  # HELP and TYPE stand once


def _lines(family: Family) -> Iterator[Line]:
    for labels, value in family.samples:
        texts = {name: text.encode("utf-8", "replace").decode() for name, text in labels.items()}
        if isinstance(value, Histogram):
            buckets = zip([*map(str, value.bounds_seconds), "+Inf"], accumulate(value.counts), strict=True)
            histogram = HistogramMetricFamily(family.name, family.help, labels=list(texts))
            histogram.add_metric(list(texts.values()), list(buckets), value.sum_seconds)
            yield from histogram.samples
        else:
            yield Line(family.name, texts, value)
