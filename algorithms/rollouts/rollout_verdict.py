"""Decides whether a candidate is significantly worse than its incumbent by more than is allowed."""

import math
from typing import Final

import msgspec

from algorithms.rollouts.rollout_tally import TAIL, ArmTally, Histogram, RolloutTotals
from contracts.serving.rollouts import RolloutGuards

# Checked every second, so chance has many tries: a false alarm has a probability of 1 in 740 per check, one-sided.
_Z: Final = 3.0
_GAP_SHARE: Final = 20  # ratio of other times to inter-token times


class Breach(msgspec.Struct, frozen=True):
    """A limit that the candidate exceeds: the metric, both arms' values, and the limit."""

    metric: str
    candidate: float
    incumbent: float
    bound: float
    requests: int  # of the candidate, on which the value is based

    @property
    def words(self) -> str:
        """Return the breach as a sentence."""
        return (
            f"{self.metric} of the candidate is {self.candidate:.4g} over {self.requests} requests; "
            f"the incumbent has {self.incumbent:.4g}, and {self.bound:.4g} is the most"
        )


def breaches_of(observed: RolloutTotals, guards: RolloutGuards) -> list[Breach]:
    """Return every limit that the candidate exceeds significantly; empty if there are too few requests."""
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
    """Return Wilson's confidence interval of a proportion (Wilson 1927, JASA 22:209)."""
    if trials == 0:
        return 0.0, 1.0
    share, square = successes / trials, z * z
    middle = (share + square / (2 * trials)) / (1 + square / trials)
    half = z * math.sqrt(share * (1 - share) / trials + square / (4 * trials * trials)) / (1 + square / trials)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def least_difference(first: tuple[int, int], second: tuple[int, int], z: float = _Z) -> float:
    """Return the lower bound of Newcombe's interval for a difference of proportions (1998, Statistics in Medicine
    17:873).

    Each argument is (successes, trials); both trials must be positive.
    """
    share_1, share_2 = first[0] / first[1], second[0] / second[1]
    low_1, high_2 = wilson(*first, z)[0], wilson(*second, z)[1]
    return share_1 - share_2 - math.sqrt((share_1 - low_1) ** 2 + (high_2 - share_2) ** 2)


def least_tail(values: Histogram, z: float = _Z) -> float:
    """Return the lower bound of the 95th percentile's confidence interval, by ranks (binomial, normal approximation).

    `values` must not be empty.
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
