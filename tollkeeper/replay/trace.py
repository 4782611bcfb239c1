"""A recorded workload: arrival time, lengths and client of each request."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contracts.errors import TollkeeperError

MAX_TOKENS: Final = 100_000_000  # per request: larger than any model's context, so a column was misread
_DECIMALS: Final = 9


class MalformedTrace(TollkeeperError):
    """A trace file is not in its format. The message names file, line and value."""

    code = "malformed_trace"


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request. `at_seconds` counts from the trace's start.

    `client` is "" if the trace has no clients. `prefix_blocks`: ids of the prompt's blocks from its start; requests
    with the same first ids start with the same text.
    """

    at_seconds: float
    input_tokens: int
    output_tokens: int
    client: str = ""
    prefix_blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Trace:
    """A workload in order of arrival, starting at 0 seconds. `block_tokens`: length of a prefix block in tokens."""

    name: str
    format: str
    requests: tuple[TraceRequest, ...]
    block_tokens: int = 512

    @property
    def clients(self) -> tuple[str, ...]:
        """Return the clients in order of their first request; empty if the trace has none."""
        return tuple(dict.fromkeys(request.client for request in self.requests if request.client))


@dataclass(frozen=True, slots=True)
class Place:
    """A position in a trace file, for parsing values and reporting errors."""

    path: Path
    where: str  # "line 3"

    def error(self, what: str) -> MalformedTrace:
        """Return an error that names this position."""
        return MalformedTrace(f"{self.path.name}, {self.where}: {what}")

    def tokens(self, name: str, value: object) -> int:
        """Parse a token count. Raises MalformedTrace unless it is a whole number from 0 to 100 million."""
        try:
            count = int(value) if isinstance(value, str | int) else -1
        except ValueError:
            count = -1
        if not 0 <= count <= MAX_TOKENS:
            raise self.error(f"{name} is {_shown(value)}; it must be a whole number of 0 to {MAX_TOKENS:,}")
        return count

    def number(self, name: str, value: object) -> float:
        """Parse a number. Raises MalformedTrace unless it is finite and at least 0."""
        try:
            number = float(value) if isinstance(value, str | int | float) else math.nan
        except (ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number) or number < 0:
            raise self.error(f"{name} is {_shown(value)}; it must be a number of 0 or more")
        return round(number, _DECIMALS)


def _shown(value: object) -> str:
    text = "missing" if value is None or value == "" else repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
