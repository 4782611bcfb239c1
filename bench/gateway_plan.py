"""How much a run of `python -m bench.gateway` measures."""

from dataclasses import dataclass
from typing import Final, Self

from bench.load.result import Load, Mode
from bench.load.rig import Patience
from bench.report import Report

_SLOPE_REQUESTS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured. Seconds are of one sample."""

    rounds: int
    slow_rounds: int  # of streams, which take longer
    processes: int  # of each that adds to the way
    rounds_each: int  # of these, every other in the opposite order
    seconds: float
    warm_up_seconds: float
    rate_seconds: float  # short: what others do to the caches lasts for tens of seconds
    lag_seconds: float
    stream_seconds: float
    slope_requests: int | None  # `None`: as many as come in the seconds
    patience: Patience
    with_rivals: bool

    @classmethod
    def of(cls, report: Report) -> Self:
        """Give the plan of a quick or a full run."""
        if report.quick:
            return cls(1, 1, 1, 1, 2.0, 0.5, 3.0, 3.0, 2.5, None, Patience(0, 0.0), with_rivals=False)
        return cls(5, 3, 3, 6, 8.0, 2.0, 4.0, 20.0, 10.0, _SLOPE_REQUESTS, Patience(3, 15.0), with_rivals=True)

    def load(self, mode: Mode, connections: int, **more: int) -> Load:
        """Give a load of this plan's length."""
        seconds = {"closed": self.seconds, "rate": self.rate_seconds, "stream": self.stream_seconds}[mode]
        warm_up = self.warm_up_seconds
        if mode == "stream":  # they start spread over the life of one, 1.3 s: only after that are all there
            warm_up = max(warm_up, 1.5)
        elif mode == "rate":  # a hundred requests
            warm_up = min(warm_up, 1.0)
        return Load(mode=mode, connections=connections, seconds=seconds, warm_up_seconds=warm_up, **more)
