"""Detects a trace's format and reads it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from itertools import dropwhile, islice
from pathlib import Path
from typing import Final

from contracts.errors import ConfigurationError
from tollkeeper.replay import csv_traces, mooncake, servegen
from tollkeeper.replay.trace import MalformedTrace, Trace, TraceRequest

_HEAD_BYTES: Final = 4096


class TraceFormat(StrEnum):
    """The supported formats of traces."""

    AZURE = "azure"
    MOONCAKE = "mooncake"
    VTC = "vtc"
    SERVEGEN = "servegen"


_READERS: Final[Mapping[TraceFormat, Callable[[Path], Iterator[TraceRequest]]]] = {
    TraceFormat.AZURE: csv_traces.read_azure,
    TraceFormat.MOONCAKE: mooncake.read_mooncake,
    TraceFormat.VTC: csv_traces.read_vtc,
    TraceFormat.SERVEGEN: servegen.read_servegen,
}


def read_trace(
    path: Path, format_: TraceFormat | None = None, *, limit: int | None = None, from_seconds: float = 0.0
) -> Trace:
    """Read at most `limit` requests of a trace, from `from_seconds` after its start; by default detect the format.

    ServeGen's traces start at midnight, all others with their first request. Raises ConfigurationError if the trace
    does not exist or its format is unknown, MalformedTrace if a row is invalid.
    """
    chosen = format_ or detect_format(path)
    try:
        found = _READERS[chosen](path)
        first = next(found, None)
        if first is None:
            raise MalformedTrace(f"{path.name} has no requests")
        start = from_seconds + (0.0 if chosen is TraceFormat.SERVEGEN else first.at_seconds)
        later = dropwhile(lambda request: request.at_seconds < start, _with(first, found))
        requests = sorted(islice(later, limit), key=lambda request: request.at_seconds)
    except OSError as error:
        raise ConfigurationError(f"trace {path} cannot be read: {error.strerror}") from error
    if not requests:
        raise ConfigurationError(f"{path.name} has no request {from_seconds:g} s after its beginning or later")
    begin = requests[0].at_seconds
    shifted = tuple(replace(request, at_seconds=request.at_seconds - begin) for request in requests)
    return Trace(path.name, chosen, shifted, mooncake.BLOCK_TOKENS)


def detect_format(path: Path) -> TraceFormat:
    """Return a trace's format, detected from its first line. Raises ConfigurationError if it is unknown."""
    try:
        if path.is_dir():
            if servegen.client_files(path):
                return TraceFormat.SERVEGEN
            raise ConfigurationError(f"{path} is a folder without ServeGen's chunk-N-trace.csv; name a trace's file")
        if servegen.CLIENT_FILE.match(path.name):
            return TraceFormat.SERVEGEN
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES).decode("utf-8-sig", errors="replace").lstrip()
    except FileNotFoundError as error:
        raise ConfigurationError(f"there is no trace {path}") from error
    except OSError as error:
        raise ConfigurationError(f"trace {path} cannot be read: {error.strerror}") from error
    first = head.splitlines()[0] if head else ""
    columns = {column.strip() for column in first.split(",")}
    if columns >= set(csv_traces.AZURE_COLUMNS):
        return TraceFormat.AZURE
    if columns >= set(csv_traces.VTC_COLUMNS):
        return TraceFormat.VTC
    if first.startswith("{") and f'"{mooncake.MARK}"' in first:
        return TraceFormat.MOONCAKE
    known = ", ".join(TraceFormat)
    raise ConfigurationError(f"the format of {path.name} cannot be told from its first line; name it: --format {known}")


def _with(first: TraceRequest, rest: Iterator[TraceRequest]) -> Iterator[TraceRequest]:
    yield first
    yield from rest
