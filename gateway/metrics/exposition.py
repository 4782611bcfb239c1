"""Prometheus' text format (version 0.0.4), written here.

The library `prometheus_client` is no dependency of the gateway, and the OpenTelemetry SDK that is one has no
Prometheus exporter installed. Either would keep its own counters beside ours, behind a lock and a lookup by labels for
every number of every request; what the format asks for is this file.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from gateway.metrics.histogram import Histogram

CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"

Kind = Literal["counter", "gauge", "histogram"]
Labels: TypeAlias = Mapping[str, str]
Sample: TypeAlias = tuple[Labels, int | float | Histogram]

_IN_A_VALUE: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
_IN_A_HELP: Final = str.maketrans({"\\": "\\\\", "\n": "\\n"})


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its name, what it is, and a sample for each set of labels. No two may have the same labels."""

    name: str
    kind: Kind
    help: str
    samples: Iterable[Sample]


def counter(name: str, help: str, value: int | float) -> Family:
    """Give a counter without labels."""
    return Family(name, "counter", help, [({}, value)])


def gauge(name: str, help: str, value: int | float) -> Family:
    """Give a gauge without labels."""
    return Family(name, "gauge", help, [({}, value)])


def render(families: Iterable[Family]) -> Iterator[str]:
    """Give the page piece by piece, each piece one series read at one moment. A metric without samples is left out."""
    for family in families:
        head = f"# HELP {family.name} {family.help.translate(_IN_A_HELP)}\n# TYPE {family.name} {family.kind}\n"
        for labels, value in family.samples:
            pairs = ",".join(f'{label}="{text.translate(_IN_A_VALUE)}"' for label, text in labels.items())
            if isinstance(value, Histogram):
                yield head + _histogram(family.name, pairs, value)
            else:
                yield f"{head}{family.name}{_braced(pairs)} {value!r}\n"
            head = ""


def _histogram(name: str, pairs: str, histogram: Histogram) -> str:
    reached, lines = 0, []
    before = f"{pairs}," if pairs else ""
    bounds = [*map(repr, histogram.bounds_seconds), "+Inf"]
    for bound, count in zip(bounds, histogram.counts, strict=True):
        reached += count
        lines.append(f'{name}_bucket{{{before}le="{bound}"}} {reached}\n')
    lines.append(f"{name}_sum{_braced(pairs)} {histogram.sum_seconds!r}\n")
    lines.append(f"{name}_count{_braced(pairs)} {reached}\n")
    return "".join(lines)


def _braced(pairs: str) -> str:
    return f"{{{pairs}}}" if pairs else ""
