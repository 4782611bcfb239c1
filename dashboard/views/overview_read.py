"""The overview as pages read it: sums at once, percentiles that take longer as soon as they are there."""

from dataclasses import replace
from typing import Final

from analytics.overview import Overview, overview, with_latency
from dashboard.slow_answers import Pending
from dashboard.visit import Visit

WAITING: Final = "…"
COUNTED: Final = "being counted"
_KEPT_SECONDS: Final = 60.0


def read_overview(visit: Visit) -> Overview:
    """Give the overview of what is asked for; `has_latency` is false while its percentiles are still being read."""
    scope = visit.scope
    quick = visit.read(overview, scope, is_quick=True)
    if quick.has_latency:
        return quick
    covered = scope.covered  # the same for as long as these hours or days are, so that one answer does for all
    whole = visit.read_slow(overview, replace(scope, start=covered.start, end=covered.end), keep_seconds=_KEPT_SECONDS)
    return quick if isinstance(whole, Pending) else with_latency(quick, whole)
