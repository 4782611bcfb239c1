"""How much a run of `python -m bench.gateway` measures."""

from dataclasses import dataclass
from typing import Final, Self

from bench.load.result import Load, Mode
from bench.load.rig import Patience
from bench.report import Report

_SLOPE_REQUESTS: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
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
        """Return the plan of a quick or a full run."""
        if report.quick:
            return cls(
                rounds=1,
                slow_rounds=1,
                processes=1,
                rounds_each=1,
                seconds=2.0,
                warm_up_seconds=0.5,
                rate_seconds=3.0,
                lag_seconds=3.0,
                stream_seconds=2.5,
                slope_requests=None,
                patience=Patience(0, 0.0),
                with_rivals=False,
            )
        return cls(
            rounds=5,
            slow_rounds=3,
            processes=3,
            rounds_each=6,
            seconds=8.0,
            warm_up_seconds=2.0,
            rate_seconds=4.0,
            lag_seconds=20.0,
            stream_seconds=10.0,
            slope_requests=_SLOPE_REQUESTS,
            patience=Patience(3, 15.0),
            with_rivals=True,
        )

    def load(self, mode: Mode, connections: int, **more: int) -> Load:
        """Return a load of this plan's length."""
        seconds = {"closed": self.seconds, "rate": self.rate_seconds, "stream": self.stream_seconds}[mode]
        warm_up = self.warm_up_seconds
        if mode == "stream":  # they start spread over the life of one, 1.3 s: only after that are all there
            warm_up = max(warm_up, 1.5)
        elif mode == "rate":  # a hundred requests
            warm_up = min(warm_up, 1.0)
        return Load(mode=mode, connections=connections, seconds=seconds, warm_up_seconds=warm_up, **more)
