"""The frame of every benchmark: rows with a bound, one JSON line each, and an exit status that means something.

A benchmark is a module of this folder that calls `run_bench`. `--json` prints one line per row and nothing else
on standard output, `--quick` may take fewer repetitions but leaves out no row.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Literal

from backends.processes.compiled import find_compiled

Better = Literal["higher", "lower"]

_ROOT = Path(__file__).resolve().parent.parent
_COMMAND_TIMEOUT_SECONDS = 10


@cache
def commit() -> str:
    """Return the short commit id, with "-dirty" where the tree differs from it; "unknown" outside git."""
    revision = _output("git", "-C", str(_ROOT), "rev-parse", "--short", "HEAD")
    if not revision:
        return "unknown"
    return revision + ("-dirty" if _output("git", "-C", str(_ROOT), "status", "--porcelain") else "")


@cache
def hardware() -> str:
    """Describe the machine in one line: cores, processor, memory, GPUs, and how the gateway's hot modules run on it."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    gpus = _output("nvidia-smi", "--query-gpu=name", "--format=csv,noheader") if shutil.which("nvidia-smi") else ""
    described = ", ".join(sorted(gpus.splitlines())) or "no GPU"
    data_plane = "compiled" if find_compiled().state == "compiled" else "interpreted"
    return f"{os.cpu_count()} cores {_processor()}, {memory_gib:.0f} GiB, {described}, data plane {data_plane}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measured figure and whether it keeps what was promised.

    `met` is `None`, with a `reason`, if there is no bound to hold or what it needs (a rival, a GPU) is absent.
    `ratio_to` holds this value divided by a rival's value of the same run, by the rival's name. `n` is how many
    measurements stand behind the value, `date` is the day in UTC.
    """

    bench: str
    metric: str
    value: float | None
    unit: str
    must: float | None = None
    stretch: float | None = None
    met: bool | None
    ratio_to: Mapping[str, float] = field(default_factory=dict)
    n: int
    commit: str = field(default_factory=commit)
    hardware: str = field(default_factory=hardware)
    date: str = field(default_factory=lambda: datetime.now(UTC).date().isoformat())
    reason: str = ""

    def __post_init__(self) -> None:
        if self.met is None and not self.reason:
            raise ValueError(f"row {self.bench}.{self.metric}: met is None, so a reason is due")

    def to_json(self) -> str:
        """Return the row as one line of JSON, its fields in the order they are declared."""
        return json.dumps(asdict(self))


class Report:
    """The rows of one run of one benchmark."""

    def __init__(self, bench: str, *, quick: bool = False, options: argparse.Namespace | None = None) -> None:
        """`options` are those that the benchmark has added of its own."""
        self.bench = bench
        self.quick = quick
        self.options = options or argparse.Namespace()
        self.rows: list[Row] = []

    def add(
        self,
        metric: str,
        value: float,
        unit: str,
        *,
        must: float | None = None,
        stretch: float | None = None,
        better: Better = "higher",
        n: int = 1,
        ratio_to: Mapping[str, float] | None = None,
        unjudged: str = "",
    ) -> Row:
        """Add a measured row. It is met when the value is exactly `must` or on its better side.

        `unjudged` is why the bound says nothing about this measurement, if that is so.
        """
        met = None if must is None or unjudged else (value >= must if better == "higher" else value <= must)
        row = Row(
            bench=self.bench,
            metric=metric,
            value=value,
            unit=unit,
            must=must,
            stretch=stretch,
            met=met,
            ratio_to=ratio_to or {},
            n=n,
            reason=(unjudged or "no bound is set for it") if met is None else "",
        )
        self.rows.append(row)
        return row

    def add_absent(self, metric: str, unit: str, reason: str, *, must: float | None = None) -> Row:
        """Add a row that could not be measured here; `reason` says what is missing."""
        row = Row(bench=self.bench, metric=metric, value=None, unit=unit, must=must, met=None, n=0, reason=reason)
        self.rows.append(row)
        return row

    @property
    def is_met(self) -> bool:
        """Return whether no bound was missed. A row that could not be measured misses nothing."""
        return all(row.met is not False for row in self.rows)

    def table(self) -> str:
        """Return the rows as aligned text for people."""
        header = ("metric", "value", "unit", "must", "stretch", "met", "n")
        lines = [header, *(_cells(row) for row in self.rows)]
        widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
        text = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
        ]
        text += [f"{row.metric}: {row.reason}" for row in self.rows if row.met is None]
        return "\n".join([f"{self.bench} on {hardware()}, commit {commit()}", *text])


def run_bench(
    bench: str,
    measure: Callable[[Report], None],
    arguments: Sequence[str] | None = None,
    add_options: Callable[[argparse.ArgumentParser], None] | None = None,
) -> int:
    """Measure, print the rows, and return the exit status: 1 when a must is missed, else 0."""
    parser = argparse.ArgumentParser(prog=f"python -m bench.{bench}", description=measure.__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON line per row")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, the same rows")
    if add_options is not None:
        add_options(parser)
    options = parser.parse_args(arguments)
    report = Report(bench, quick=options.quick, options=options)
    measure(report)
    if options.json:
        for row in report.rows:
            print(row.to_json())
    else:
        print(report.table())
    if report.is_met:
        return 0
    missed = ", ".join(row.metric for row in report.rows if row.met is False)
    print(f"{bench}: below its must: {missed}", file=sys.stderr)
    return 1


def _cells(row: Row) -> tuple[str, ...]:
    met = {True: "yes", False: "NO", None: "-"}[row.met]
    return (row.metric, _number(row.value), row.unit, _number(row.must), _number(row.stretch), met, str(row.n))


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
