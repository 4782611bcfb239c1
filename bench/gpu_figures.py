"""Figures on their way from a process that owns a GPU to the report: kept in a file as they come, so none is lost."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.report import Better, Report


@dataclass(frozen=True, slots=True)
class Promise:
    """A row that is promised: its bound, where it has one, and which side of it is good."""

    metric: str
    unit: str
    must: float | None = None
    stretch: float | None = None
    better: Better = "higher"


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value."""

    metric: str
    value: float
    n: int = 1
    unit: str = ""  # where it was not promised
    ratio_to: Mapping[str, float] = field(default_factory=dict)


class FigureFile:
    """Appends figures, and what failed, to a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, metric: str, value: float, *, n: int = 1, unit: str = "", **ratio_to: float) -> None:
        """Keep a figure."""
        self._write({"figure": asdict(Figure(metric, value, n, unit, ratio_to))})

    def fail(self, part: str, reason: str) -> None:
        """Keep why a part of the benchmark gave no figures."""
        self._write({"failed": part, "reason": reason})

    def figures(self) -> dict[str, Figure]:
        """Return all figures so far, the last of each metric."""
        found = (line["figure"] for line in self._lines() if "figure" in line)
        return {one["metric"]: Figure(**one) for one in found}

    def failures(self) -> dict[str, str]:
        """Return what failed, by part."""
        return {line["failed"]: line["reason"] for line in self._lines() if "failed" in line}

    def _write(self, line: Mapping[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _lines(self) -> Iterator[dict[str, Any]]:
        if self.path.exists():
            for line in self.path.read_text(encoding="utf-8").splitlines():
                yield json.loads(line)


_UNJUDGED: Final = "no bound is set for it"


def report_figures(report: Report, promises: tuple[Promise, ...], figures: Mapping[str, Figure], reason: str) -> None:
    """Add every promised row, absent with the reason where it was not measured, then what was measured besides."""
    for promise in promises:
        found = figures.get(promise.metric)
        if found is None:
            report.add_absent(promise.metric, promise.unit, reason, must=promise.must)
        else:
            report.add(
                promise.metric,
                found.value,
                promise.unit,
                must=promise.must,
                stretch=promise.stretch,
                better=promise.better,
                n=found.n,
                ratio_to=found.ratio_to,
            )
    promised = {promise.metric for promise in promises}
    for found in figures.values():
        if found.metric not in promised:
            report.add(found.metric, found.value, found.unit, n=found.n, ratio_to=found.ratio_to, unjudged=_UNJUDGED)
