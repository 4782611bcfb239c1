"""A recorded workload: when each request came, how long it and its answer were, and what is known of who sent it."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contracts.errors import TollkeeperError

MAX_TOKENS: Final = 100_000_000  # of one request: beyond any model's context, so a column was misread
_DECIMALS: Final = 9


class MalformedTrace(TollkeeperError):
    """A trace's file is not what its format says. The message names file, line and value."""

    code = "malformed_trace"


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request. `at_seconds` counts from the trace's beginning.

    `client` is empty if the trace does not tell clients apart. `prefix_blocks` name the prompt's blocks from its
    beginning: two requests with the same first ids begin with the same text.
    """

    at_seconds: float
    input_tokens: int
    output_tokens: int
    client: str = ""
    prefix_blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Trace:
    """A workload in the order of arrival, from 0 seconds on. `block_tokens` is the length of a prefix block."""

    name: str
    format: str
    requests: tuple[TraceRequest, ...]
    block_tokens: int = 512

    @property
    def clients(self) -> tuple[str, ...]:
        """Name the clients in the order of their first request; none if the trace does not tell them apart."""
        return tuple(dict.fromkeys(request.client for request in self.requests if request.client))


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a trace's file, for values and for what is wrong with them."""

    path: Path
    where: str  # "line 3"

    def error(self, what: str) -> MalformedTrace:
        """Create an error that names this place."""
        return MalformedTrace(f"{self.path.name}, {self.where}: {what}")

    def tokens(self, name: str, value: object) -> int:
        """Read a token count. Raises MalformedTrace on anything but a whole number of 0 to 100 million."""
        try:
            count = int(value) if isinstance(value, str | int) else -1
        except ValueError:
            count = -1
        if not 0 <= count <= MAX_TOKENS:
            raise self.error(f"{name} is {_shown(value)}; it must be a whole number of 0 to {MAX_TOKENS:,}")
        return count

    def number(self, name: str, value: object) -> float:
        """Read a number. Raises MalformedTrace if it is not one, is negative or has no end."""
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
