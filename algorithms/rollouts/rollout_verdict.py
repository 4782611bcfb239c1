"""Whether a candidate is worse than its incumbent by more than it may be, and how sure that is."""

import math
from typing import Final

import msgspec

from algorithms.rollouts.rollout_tally import TAIL, ArmTally, Histogram, Observed
from contracts.serving.rollouts import RolloutGuards

# Looked at every second, so that chance has many tries: 1 in 740 at a look, one-sided.
_Z: Final = 3.0
_GAP_SHARE: Final = 20  # times between tokens are that much smaller than others


class Breach(msgspec.Struct, frozen=True):
    """A bound that the candidate has passed: of what, what both arms had, and what it may be at most."""

    metric: str
    candidate: float
    incumbent: float
    bound: float
    requests: int  # of the candidate, that it is told by

    @property
    def words(self) -> str:
        """Return the verdict in words for people."""
        return (
            f"{self.metric} of the candidate is {self.candidate:.4g} over {self.requests} requests; "
            f"the incumbent has {self.incumbent:.4g}, and {self.bound:.4g} is the most"
        )


def breaches_of(observed: Observed, guards: RolloutGuards) -> list[Breach]:
    """Return every bound that the candidate has passed, beyond what chance explains; none if too little is known."""
    candidate, least = observed.candidate, guards.min_requests
    incumbent = observed.incumbent if observed.incumbent.requests >= least else observed.incumbent_before
    if candidate.requests < least or incumbent.requests < least:
        return []
    gap_ms = guards.min_difference_ms / _GAP_SHARE
    found = (
        _share(
            "error rate",
            (candidate.errors, candidate.requests),
            (incumbent.errors, incumbent.requests),
            guards.max_error_increase,
            least,
        ),
        _share(
            "refusal rate",
            (candidate.refusals, candidate.judged),
            (incumbent.refusals, incumbent.judged),
            guards.max_refusal_increase,
            least,
        ),
        _tail("ttft p95 (ms)", candidate.ttft_ms, incumbent.ttft_ms, guards.max_ttft_ratio, guards),
        _tail(
            "inter-token p95 (ms)", candidate.gaps_ms, incumbent.gaps_ms, guards.max_inter_token_ratio, guards, gap_ms
        ),
        _tail("duration p95 (ms)", candidate.duration_ms, incumbent.duration_ms, guards.max_duration_ratio, guards),
        _cost(candidate, incumbent, guards),
    )
    return [breach for breach in found if breach is not None]


def wilson(successes: int, trials: int, z: float = _Z) -> tuple[float, float]:
    """Return Wilson's interval of a share (Wilson 1927, JASA 22:209)."""
    if trials == 0:
        return 0.0, 1.0
    share, square = successes / trials, z * z
    middle = (share + square / (2 * trials)) / (1 + square / trials)
    half = z * math.sqrt(share * (1 - share) / trials + square / (4 * trials * trials)) / (1 + square / trials)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def least_difference(first: tuple[int, int], second: tuple[int, int], z: float = _Z) -> float:
    """Return the lower end of Newcombe's interval of a difference of shares (1998, Statistics in Medicine 17:873).

    Each is (successes, trials); both trials are above 0.
    """
    share_1, share_2 = first[0] / first[1], second[0] / second[1]
    low_1, high_2 = wilson(*first, z)[0], wilson(*second, z)[1]
    return share_1 - share_2 - math.sqrt((share_1 - low_1) ** 2 + (high_2 - share_2) ** 2)


def least_tail(values: Histogram, z: float = _Z) -> float:
    """Return the lower end of the 95th percentile's interval, by the ranks it may have (binomial, normal
    approximation).

    `values` has at least one.
    """
    rank = values.total * TAIL - z * math.sqrt(values.total * TAIL * (1 - TAIL))
    return values.at_rank(max(math.floor(rank), 1))


def _share(
    metric: str, candidate: tuple[int, int], incumbent: tuple[int, int], most: float | None, least: int
) -> Breach | None:
    if most is None or candidate[1] < least or incumbent[1] < least:
        return None
    if least_difference(candidate, incumbent) <= most:
        return None
    share = incumbent[0] / incumbent[1]
    return Breach(metric, candidate[0] / candidate[1], share, share + most, candidate[1])


def _tail(
    metric: str,
    candidate: Histogram,
    incumbent: Histogram,
    ratio: float | None,
    guards: RolloutGuards,
    difference_ms: float | None = None,
) -> Breach | None:
    if ratio is None or min(candidate.total, incumbent.total) < guards.min_requests:
        return None
    usual, tail = incumbent.quantile(), candidate.quantile()
    assert usual is not None and tail is not None
    bound = max(usual * ratio, usual + (guards.min_difference_ms if difference_ms is None else difference_ms))
    if least_tail(candidate) <= bound:
        return None
    return Breach(metric, tail, usual, bound, candidate.total)


def _cost(candidate: ArmTally, incumbent: ArmTally, guards: RolloutGuards) -> Breach | None:
    new, old, ratio = candidate.cost_usd, incumbent.cost_usd, guards.max_cost_ratio
    if ratio is None or min(new.count, old.count) < guards.min_requests:
        return None
    assert new.mean is not None and old.mean is not None
    excess = new.mean - ratio * old.mean
    if excess <= _Z * math.sqrt(new.variance_of_mean + ratio * ratio * old.variance_of_mean):
        return None
    return Breach("mean cost (USD)", new.mean, old.mean, ratio * old.mean, new.count)
