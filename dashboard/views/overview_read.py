"""Reads the overview: sums directly, percentiles in the background if they take long."""

from typing import Final

from analytics.overview import LatencyQuestion, Overview, overview, overview_latency, with_latency
from dashboard.slow_answers import Pending
from dashboard.visit import Visit

WAITING: Final = "…"
COUNTED: Final = "loading"
TOGETHER_HELP: Final = "0 is correct: tokens that arrive in one chunk have no time between them."
_KEPT_SECONDS: Final = 60.0


def read_overview(visit: Visit) -> Overview:
    """Return the overview of the visit's scope; `has_latency` is false while percentiles are still being read."""
    quick = visit.read(overview, visit.scope, is_quick=True)
    if quick.has_latency:
        return quick
    speed = visit.read_slow(overview_latency, LatencyQuestion.of(quick), keep_seconds=_KEPT_SECONDS)
    return quick if isinstance(speed, Pending) else with_latency(quick, speed)


def together(p50_ns: float) -> str:
    """Return an explanation if the median inter-token latency is 0; "" otherwise."""
    return "tokens arrive several at once; " if p50_ns == 0 else ""
