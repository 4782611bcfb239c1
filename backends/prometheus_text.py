"""Prometheus' text format as others' servers write it (version 0.0.4; OpenMetrics' as far as it is alike)."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL: Final = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_.]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*,?')
_ESCAPES: Final = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
_ESCAPE: Final = re.compile(r'\\[\\"n]')


@dataclass(frozen=True, slots=True)
class Sample:
    """One series' value. Not finite values are left as floats: infinite, or not a number."""

    name: str
    labels: Mapping[str, str]
    value: float


def read_samples(text: str, prefixes: tuple[str, ...] = ("",)) -> Iterator[Sample]:
    """Give the series whose names begin with one of `prefixes`. Lines that cannot be read are passed over."""
    for line in text.splitlines():
        if line.startswith(prefixes) and not line.startswith("#"):
            sample = _read(line)
            if sample is not None:
                yield sample


def _read(line: str) -> Sample | None:
    named = _NAME.match(line)
    if named is None:
        return None
    rest = line[named.end() :]
    labels: dict[str, str] = {}
    if rest.startswith("{"):
        at = 1
        while (found := _LABEL.match(rest, at)) is not None:
            labels[found[1]] = _ESCAPE.sub(lambda one: _ESCAPES[one[0]], found[2])
            at = found.end()
        if rest[at : at + 1] != "}":
            return None
        rest = rest[at + 1 :]
    fields = rest.split()
    if not fields:
        return None
    try:
        return Sample(named[0], labels, float(fields[0]))
    except ValueError:
        return None
