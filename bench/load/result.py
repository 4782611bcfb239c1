"""What the load client is told, and what it reports."""

from dataclasses import dataclass
from typing import Literal

import msgspec

Mode = Literal["closed", "rate", "stream"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How to load: `connections` at once; in mode "rate" the given number of requests a second, in "stream" the given
    number of chunks each.

    `max_tokens` is asked for in every request; in mode "stream" it is the number of chunks. What begins within
    `warm_up_seconds` is not measured.
    """

    mode: Mode
    connections: int
    seconds: float
    warm_up_seconds: float
    prompt_bytes: int = 1024
    per_second: float = 100.0
    max_tokens: int = 64
    gap_us: int = 20_000

    def arguments(self) -> list[str]:
        """Return the load client's command line, without where it is to ask."""
        found = ["-m", self.mode, "-c", str(self.connections), "-b", str(self.prompt_bytes), "-n", str(self.max_tokens)]
        found += ["-d", f"{self.seconds:g}", "-w", f"{self.warm_up_seconds:g}"]
        if self.mode == "rate":
            found += ["-r", f"{self.per_second:g}"]
        return found + (["-g", str(self.gap_us)] if self.mode == "stream" else [])


class Quantiles(msgspec.Struct, frozen=True):
    """Of `n` times in microseconds; -1 if there are none."""

    n: int
    p50: float
    p90: float
    p99: float
    p999: float
    max: float


class LoadResult(msgspec.Struct, frozen=True):
    """What the client saw. `started` and `replies` count the warm-up and the end as well, the rest does not."""

    started: int
    replies: int
    ok: int
    err: int
    bad_streams: int
    rps: float
    lat_us: Quantiles
    chunks_per_s: float = 0.0
    measured_chunks: int = 0
    measured_reads: int = 0  # that brought at least one chunk
    ttft_us: Quantiles | None = None
    jitter_us: Quantiles | None = None


def parse_result(output: str) -> LoadResult:
    """Read the client's line. Raises RuntimeError if it is none."""
    try:
        return msgspec.json.decode(output, type=LoadResult)
    except msgspec.DecodeError as error:
        raise RuntimeError(f"the load client reports {output[:200]!r}: {error}") from error
