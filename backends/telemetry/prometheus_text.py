"""Parser for Prometheus' text format of other servers (version 0.0.4; OpenMetrics as far as compatible)."""

from typing import Final

from prometheus_client.core import Metric, Sample
from prometheus_client.parser import text_string_to_metric_families

_MAX_LINE: Final = 1 << 14  # characters; the parser's time grows with the square of a line's labels
# Errors of the parser on invalid lines: it indexes empty names, and reads integers of any length.
_UNREADABLE: Final = (ValueError, IndexError, OverflowError)


def read_families(page: str, prefixes: tuple[str, ...] = ("",)) -> list[Metric]:
    """Return the metrics of a page that have series, with all values as floats. Invalid and overlong lines are skipped.

    With `prefixes`, other lines are skipped unparsed, including comments, so that each series is a metric of its own.
    """
    lines = [line for line in page.split("\n") if line.startswith(prefixes) and len(line) <= _MAX_LINE]
    try:
        return _parsed(lines)
    except _UNREADABLE:
        return _parsed([line for line in lines if _is_readable(line)])


def read_samples(page: str, prefixes: tuple[str, ...] = ("",)) -> list[Sample]:
    """Return the series whose names begin with one of `prefixes`."""
    return [sample for family in read_families(page, prefixes) for sample in family.samples]


def _parsed(lines: list[str]) -> list[Metric]:
    families = list(text_string_to_metric_families("\n".join(lines)))
    for family in families:
        family.samples = [sample._replace(value=float(sample.value)) for sample in family.samples]
    return [family for family in families if family.samples]


def _is_readable(line: str) -> bool:
    try:
        _parsed([line])
    except _UNREADABLE:
        return False
    return True
