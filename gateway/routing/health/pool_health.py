"""State that a pool's targets share: failure policy, retry and hedging budgets, and times to first token."""

import math
from statistics import median
from typing import Final

from contracts.serving.failures import FailurePolicy
from gateway.routing.attempts.retry_budget import RetryBudget
from gateway.routing.health.target_health import TargetHealth

_SECOND_NS: Final = 1_000_000_000
_HEDGES_PER_SECOND: Final = 1.0  # beyond the share of a pool's requests
_MOST_SLOW_SHARE: Final = 0.5  # maximum part of a pool whose circuits may open because it is slow
_WINDOW_SECONDS: Final = 30.0  # used without a breaker's window
# Of latencies' exponential histogram:
_LEAST_NS: Final = 1_000_000  # the first bucket: up to a millisecond
_GROWTH: Final = math.log(1.1)
_BUCKETS: Final = 160  # up to an hour


class Latencies:
    """Counts of durations in two halves of a window; `turn` drops the older half. Quantiles are accurate to 10 %."""

    __slots__ = ("_last", "_now", "count")

    def __init__(self) -> None:
        self._now = [0] * _BUCKETS
        self._last = [0] * _BUCKETS
        self.count = 0  # in both halves

    def add(self, took_ns: int) -> None:
        """Count a duration in nanoseconds."""
        place = 0 if took_ns <= _LEAST_NS else int(math.log(took_ns / _LEAST_NS) / _GROWTH) + 1
        self._now[min(place, _BUCKETS - 1)] += 1
        self.count += 1

    def quantile_ns(self, share: float) -> int | None:
        """Return the duration that a share (0 to 1) of them did not exceed, rounded up; `None` if there are none."""
        if not self.count:
            return None
        wanted, seen = math.ceil(share * self.count), 0
        for place in range(_BUCKETS):
            seen += self._now[place] + self._last[place]
            if seen >= wanted:
                return round(_LEAST_NS * math.exp(place * _GROWTH))
        raise AssertionError("the count is the buckets' sum")

    def turn(self) -> None:
        """Start the next half of the window."""
        self._last, self._now = self._now, [0] * _BUCKETS
        self.count = sum(self._last)


class PoolHealth:
    """The health of one pool. Times are monotonic nanoseconds."""

    __slots__ = (
        "_turned_ns",
        "away",
        "budget",
        "firsts",
        "hedges_lost",
        "hedges_won",
        "hedging",
        "id",
        "is_probe_due",
        "policy",
        "targets",
    )

    def __init__(self, name: str, policy: FailurePolicy, now_ns: int) -> None:
        self.id = name
        self.budget = RetryBudget(policy.retry_share, policy.retries_per_second)
        self.hedging = RetryBudget(0.0, _HEDGES_PER_SECOND)
        self.firsts = Latencies()  # times to first token, or to complete answers if tokens are not seen; for hedging
        self.hedges_won = 0
        self.hedges_lost = 0
        self.is_probe_due = False  # at one of the targets: the next request must go there
        self.targets: dict[str, TargetHealth] = {}
        self.away: set[str] = set()  # those of them that there is a reason not to call
        self._turned_ns = now_ns
        self.adopt(policy)

    def adopt(self, policy: FailurePolicy) -> None:
        """Apply a new failure policy."""
        self.policy = policy
        self.budget.share, self.budget.per_second = policy.retry_share, policy.retries_per_second
        self.hedging.share = 0.0 if policy.hedge is None else policy.hedge.share

    def count_request(self) -> None:
        """Count a request. A share of the requests may be retried."""
        self.budget.requests += 1
        self.hedging.requests += 1

    def note_probe(self) -> None:
        """Record that one unavailable target is being probed; calls to the others go on as before."""
        if self.is_probe_due:
            self.is_probe_due = False
            for health in self.targets.values():
                health.is_plain = not health.is_away

    def look(self, now_ns: int) -> None:
        """Decay old counts, find targets that are much slower than the others, and end pauses that are over."""
        breaker = self.policy.breaker
        if breaker is not None and breaker.slow_factor is not None and len(self.targets) > 1:
            self._leave_slow_ones(breaker.slow_factor, breaker.slow_seconds, breaker.least_requests, now_ns)
        window_seconds = _WINDOW_SECONDS if breaker is None else breaker.window_seconds
        if now_ns - self._turned_ns >= window_seconds * _SECOND_NS / 2:
            self._turned_ns = now_ns
            self.firsts.turn()
            for health in self.targets.values():
                health.turn()
        self.is_probe_due = any([health.is_away and health.wants_probe(now_ns) for health in self.targets.values()])
        for health in self.targets.values():
            if health.breaker is not None:
                health.breaker.turn(now_ns)
            health.look(now_ns)

    def _leave_slow_ones(self, factor: float, least_seconds: float, least: int, now_ns: int) -> None:
        """Open the circuits of targets that are many times slower than the others, of at most half the pool."""
        for is_whole in (False, True):
            means = {health.id: mean for health in self.targets.values() if (mean := health.mean_ns(is_whole, least))}
            for name, mean in means.items():
                others = [other for one, other in means.items() if one != name]
                health = self.targets[name]
                if not others or health.breaker is None or not health.breaker.is_calm:
                    continue
                away = sum([one.breaker is not None and not one.breaker.is_calm for one in self.targets.values()])
                if away + 1 > len(self.targets) * _MOST_SLOW_SHARE:
                    return
                usual = median(others)
                bar = max(usual * factor, usual + least_seconds * _SECOND_NS)
                if mean > bar:
                    what, took, usually = "answer" if is_whole else "first token", mean / 1e9, usual / 1e9
                    health.breaker.open(now_ns, f"its {what} takes {took:.2f} s, its siblings' {usually:.2f} s")
                    health.breaker.slow_bar_ns, health.slow_is_whole = round(bar), is_whole
                    health.forget_times()
