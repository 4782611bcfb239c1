"""Reads ServeGen's workloads: per client, a day of arrival rates and length distributions to sample requests from.

A client has two files. `chunk-N-trace.csv` has no header; its columns are a window's start in seconds, requests per
second, coefficient of variation, the distribution of inter-arrival times, and its two parameters, shape first.
`chunk-N-dataset.json` has length histograms of longer windows, as Python literals (arXiv 2505.09999).
"""

import ast
import csv
import heapq
import json
import math
import random
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Final

from tollkeeper.replay.trace import MalformedTrace, Place, TraceRequest

CLIENT_FILE: Final = re.compile(r"^chunk-(\d+)-trace\.csv$")
_SEED: Final = 11  # fixed seed: the same requests every time
_LAST_WINDOW_SECONDS: Final = 600.0
_COLUMNS: Final = 6
_LOWEST_SHAPE: Final = 0.05  # below it, a Weibull distribution's mean overflows a float


def read_servegen(path: Path) -> Iterator[TraceRequest]:
    """Yield sampled requests of a folder of clients, or of one client's trace file, in order of arrival.

    They cover a whole day; stop iterating when there are enough. Raises MalformedTrace.
    """
    files = [path] if path.is_file() else client_files(path)
    if not files:
        raise MalformedTrace(f"{path} holds no chunk-N-trace.csv")
    return heapq.merge(*(_requests(file) for file in files), key=lambda request: request.at_seconds)


def client_files(folder: Path) -> list[Path]:
    """Return the trace files in a folder, sorted by client number."""
    found = [(int(match.group(1)), file) for file in folder.iterdir() if (match := CLIENT_FILE.match(file.name))]
    return [file for _, file in sorted(found)]


@dataclass(frozen=True, slots=True)
class _Window:
    """A time window with a constant arrival rate in requests per second."""

    start: float
    end: float
    rate: float
    distribution: str
    shape: float

    def gap(self, source: random.Random) -> float:
        """Return a random time to the next arrival in seconds: with the fitted shape, and the recorded rate as mean.

        The fitted scale is not used: its mean is wrong by up to a factor of 50 for bursty windows.
        """
        if self.distribution == "Gamma":
            return source.gammavariate(self.shape, 1.0) / self.shape / self.rate
        if self.distribution == "Weibull":
            return source.weibullvariate(1.0, self.shape) / math.gamma(1 + 1 / self.shape) / self.rate
        return source.expovariate(self.rate)


@dataclass(frozen=True, slots=True)
class _Lengths:
    """A histogram of lengths in tokens."""

    values: Sequence[int]
    cumulative: Sequence[float]

    def draw(self, source: random.Random) -> int:
        return source.choices(self.values, cum_weights=self.cumulative)[0]


def _requests(file: Path) -> Iterator[TraceRequest]:
    match = CLIENT_FILE.match(file.name)
    if match is None:
        raise MalformedTrace(f"{file.name} is not named chunk-N-trace.csv, so its lengths cannot be found")
    client = match.group(1)
    source = random.Random(f"{_SEED}/{client}")
    histograms = _read_lengths(file.with_name(f"chunk-{client}-dataset.json"))
    starts = sorted(histograms)
    for window in _read_windows(file):
        place = bisect_right(starts, window.start) - 1
        lengths = histograms[starts[place]] if place >= 0 else None
        if window.rate == 0 or lengths is None:
            continue
        at = window.start
        while (at := at + window.gap(source)) < window.end:
            yield TraceRequest(at, lengths[0].draw(source), lengths[1].draw(source), client)


def _read_windows(file: Path) -> list[_Window]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as text:
            rows = [(Place(file, f"line {number}"), row) for number, row in enumerate(csv.reader(text), 1) if row]
    except UnicodeDecodeError as error:
        raise MalformedTrace(f"{file.name} is not text in UTF-8") from error
    for place, row in rows:
        if len(row) != _COLUMNS:
            raise place.error(f"it has {len(row)} values; a window has {_COLUMNS}")
    starts = [place.number("the window's start", row[0]) for place, row in rows]
    ends = [*starts[1:], starts[-1] + _LAST_WINDOW_SECONDS] if starts else []
    return [_window(place, row, start, end) for (place, row), start, end in zip(rows, starts, ends, strict=True)]


def _window(place: Place, row: Sequence[str], start: float, end: float) -> _Window:
    if end <= start:
        raise place.error("the next window does not begin after this one")
    rate, distribution, shape = place.number("the rate", row[1]), row[3], place.number("the shape", row[4])
    if distribution not in ("", "Gamma", "Weibull"):
        raise place.error(f"the distribution is {distribution[:40]!r}; it must be Gamma, Weibull or empty")
    if distribution and rate and shape < _LOWEST_SHAPE:
        raise place.error(f"the shape is {shape}; it must be at least {_LOWEST_SHAPE}")
    return _Window(start, end, rate, distribution, shape)


def _read_lengths(file: Path) -> Mapping[int, tuple[_Lengths, _Lengths] | None]:
    """Return histograms of input and output lengths by the start of their window; `None` for an empty window."""
    try:
        parsed = json.loads(file.read_bytes())
        windows = {int(start): dict(columns) for start, columns in parsed.items()}
    except FileNotFoundError as error:
        raise MalformedTrace(f"{file.name} is missing; it holds the lengths of that client") from error
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise MalformedTrace(f"{file.name} is not a JSON object of windows by their start") from error
    found: dict[int, tuple[_Lengths, _Lengths] | None] = {}
    for start, columns in windows.items():
        place = Place(file, f"window {start}")
        given, made = (_histogram(place, name, columns.get(name)) for name in ("input_tokens", "output_tokens"))
        found[start] = (given, made) if given is not None and made is not None else None
    return found


def _histogram(place: Place, name: str, text: object) -> _Lengths | None:
    try:
        # The files contain Python dict literals. literal_eval builds values without running code.
        parsed = ast.literal_eval(text) if isinstance(text, str) else None
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise place.error(f"{name} is not a histogram such as '{{60: 0.25, 61: 0.75}}'")
    values = [place.tokens(name, value) for value in parsed]
    weights = [place.number(f"the share of {value} in {name}", share) for value, share in parsed.items()]
    if not values:
        return None
    if sum(weights) <= 0:
        raise place.error(f"the shares in {name} are all 0")
    return _Lengths(values, list(accumulate(weights)))
