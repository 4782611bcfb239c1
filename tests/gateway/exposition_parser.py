"""Reads Prometheus' text format 0.0.4 strictly, as its documentation has it; knows nothing of how ours is written."""

import math
import re
from dataclasses import dataclass, field

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_UNESCAPED = {"\\": "\\", '"': '"', "n": "\n"}

Labels = frozenset[tuple[str, str]]


@dataclass
class Metric:
    """One metric: its type, its help and its samples by name and labels."""

    name: str
    kind: str = ""
    help: str = ""
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)


class Page:
    """A parsed page."""

    def __init__(self, body: bytes) -> None:
        assert body.endswith(b"\n"), "the last line must end with a line feed"
        self.metrics: dict[str, Metric] = {}
        self._present: Metric | None = None
        for line in body.decode("utf-8").removesuffix("\n").split("\n"):
            if line.startswith("# "):
                self._comment(line)
            else:
                self._sample(line)
        for metric in self.metrics.values():
            assert metric.kind and metric.help and metric.samples, f"{metric.name} lacks type, help or samples"
            if metric.kind == "counter":
                assert metric.name.endswith("_total"), metric.name
            if metric.kind == "histogram":
                _check_histogram(metric)

    def value(self, name: str, **labels: str) -> float:
        """Return the sum of all samples of that name that have these labels, among others; 0.0 if there are none."""
        wanted = set(labels.items())
        return sum(
            value
            for metric in self.metrics.values()
            for (sample, found), value in metric.samples.items()
            if sample == name and wanted <= found
        )

    def labels(self, name: str) -> list[dict[str, str]]:
        """Return the labels of all samples of that name."""
        return [dict(found) for metric in self.metrics.values() for sample, found in metric.samples if sample == name]

    def label_values(self) -> set[str]:
        """Return everything that stands as any label's value."""
        return {text for metric in self.metrics.values() for _, labels in metric.samples for name, text in labels}

    def _comment(self, line: str) -> None:
        _, word, name, text = line.split(" ", 3)
        assert word in ("HELP", "TYPE") and _NAME.fullmatch(name), line
        if self._present is None or self._present.name != name:
            assert name not in self.metrics, f"{name} does not stand together"
            self._present = self.metrics[name] = Metric(name)
        assert not self._present.samples, f"{word} of {name} comes after its samples"
        if word == "HELP":
            assert not self._present.help, f"a second HELP of {name}"
            self._present.help = text
        else:
            assert not self._present.kind and text in ("counter", "gauge", "histogram"), line
            self._present.kind = text

    def _sample(self, line: str) -> None:
        found = _NAME.match(line)
        assert found is not None and self._present is not None, line
        name, rest = found.group(), line[found.end() :]
        labels: list[tuple[str, str]] = []
        if rest.startswith("{"):
            labels, rest = _labels(rest[1:])
        assert rest.startswith(" "), line
        value = float(rest[1:].replace("+Inf", "inf"))
        ends = ("_bucket", "_sum", "_count") if self._present.kind == "histogram" else ("",)
        assert name in [self._present.name + end for end in ends], f"{name} stands below {self._present.name}"
        assert len({label for label, _ in labels}) == len(labels), f"a label twice: {line}"
        series = (name, frozenset(labels))
        assert series not in self._present.samples, f"a series twice: {line}"
        self._present.samples[series] = value


def _labels(text: str) -> tuple[list[tuple[str, str]], str]:
    labels: list[tuple[str, str]] = []
    while not text.startswith("}"):
        found = _LABEL.match(text)
        assert found is not None, text
        text = text[found.end() :]
        assert text.startswith('="'), text
        value, at = "", 2
        while text[at] != '"':
            if text[at] == "\\":
                at += 1
                value += _UNESCAPED[text[at]]
            else:
                value += text[at]
            at += 1
        labels.append((found.group(), value))
        text = text[at + 1 :].removeprefix(",")
    return labels, text[1:]


def _check_histogram(metric: Metric) -> None:
    series: dict[Labels, dict[float, float]] = {}
    for (name, labels), value in metric.samples.items():
        if name.endswith("_bucket"):
            bound = float(dict(labels)["le"].replace("+Inf", "inf"))
            series.setdefault(frozenset(pair for pair in labels if pair[0] != "le"), {})[bound] = value
    for labels, buckets in series.items():
        counts = [buckets[bound] for bound in sorted(buckets)]
        assert counts == sorted(counts), f"{metric.name}: buckets must be cumulative"
        assert buckets[math.inf] == metric.samples[f"{metric.name}_count", labels]
        assert (f"{metric.name}_sum", labels) in metric.samples
