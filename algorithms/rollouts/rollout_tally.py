"""Results of a rollout's arm: counts, sums and histograms that can be added up over time and gateways."""

import math
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

_GROWTH: Final = 1.05  # ratio of a histogram's buckets: values are exact to 5 %
_LOG: Final = math.log(_GROWTH)
_LEAST_MS: Final = 0.01  # upper end of the first bucket
TAIL: Final = 0.95


class Histogram(msgspec.Struct):
    """Number of values (milliseconds) per logarithmic bucket."""

    counts: dict[int, int] = {}
    total: int = 0

    def add(self, value_ms: float, times: int = 1) -> None:
        """Count a value."""
        step = 0 if value_ms <= _LEAST_MS else 1 + int(math.log(value_ms / _LEAST_MS) / _LOG)
        self.counts[step] = self.counts.get(step, 0) + times
        self.total += times

    def merge(self, other: "Histogram") -> None:
        """Add another histogram's counts."""
        for step, count in other.counts.items():
            self.counts[step] = self.counts.get(step, 0) + count
        self.total += other.total

    def at_rank(self, rank: int) -> float:
        """Return the value at a rank (from 1, ascending), as the middle of its bucket. Raises ValueError for a rank
        above the total.
        """
        seen = 0
        for step in sorted(self.counts):
            seen += self.counts[step]
            if seen >= rank:
                return _LEAST_MS if step == 0 else _LEAST_MS * _GROWTH ** (step - 0.5)
        raise ValueError(f"rank {rank} is above the {self.total} values that there are")

    def quantile(self, share: float = TAIL) -> float | None:
        """Return the value that a `share` of the values does not exceed; `None` if there are none."""
        return self.at_rank(max(math.ceil(self.total * share), 1)) if self.total else None


class Moments(msgspec.Struct):
    """Count, sum and sum of squares, for a mean and its variance."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self.count += 1
        self.total += value
        self.squares += value * value

    def merge(self, other: "Moments") -> None:
        """Add another's values."""
        self.count += other.count
        self.total += other.total
        self.squares += other.squares

    @property
    def mean(self) -> float | None:
        """Return the mean; `None` if there are no values."""
        return self.total / self.count if self.count else None

    @property
    def variance_of_mean(self) -> float:
        """Return the variance of the mean; 0 for fewer than two values."""
        if self.count < 2:
            return 0.0
        spread = max(self.squares - self.total * self.total / self.count, 0.0) / (self.count - 1)
        return spread / self.count


class ObservedRequest(msgspec.Struct, frozen=True):
    """One request's result. `None`: unknown, or there was none."""

    failed: bool
    refused: bool | None = None
    ttft_ms: float | None = None
    duration_ms: float | None = None
    gaps_ms: tuple[float, ...] = ()
    cost_usd: float | None = None  # only for comparison; bills are computed exactly elsewhere
    output_tokens: int | None = None


class ArmTally(msgspec.Struct):
    """One arm's results over some time. Times are those of requests that did not fail."""

    requests: int = 0
    errors: int = 0
    judged: int = 0  # requests whose text was checked for a refusal
    refusals: int = 0
    ttft_ms: Histogram = msgspec.field(default_factory=Histogram)
    gaps_ms: Histogram = msgspec.field(default_factory=Histogram)
    duration_ms: Histogram = msgspec.field(default_factory=Histogram)
    cost_usd: Moments = msgspec.field(default_factory=Moments)
    output_tokens: Moments = msgspec.field(default_factory=Moments)

    def add(self, seen: ObservedRequest) -> None:
        """Count a request."""
        self.requests += 1
        if seen.failed:
            self.errors += 1
            return
        if seen.refused is not None:
            self.judged += 1
            self.refusals += seen.refused
        if seen.ttft_ms is not None:
            self.ttft_ms.add(seen.ttft_ms)
        if seen.duration_ms is not None:
            self.duration_ms.add(seen.duration_ms)
        for gap_ms in seen.gaps_ms:
            self.gaps_ms.add(gap_ms)
        if seen.cost_usd is not None:
            self.cost_usd.add(seen.cost_usd)
        if seen.output_tokens is not None:
            self.output_tokens.add(seen.output_tokens)

    def merge(self, other: "ArmTally") -> None:
        """Add another tally."""
        self.requests += other.requests
        self.errors += other.errors
        self.judged += other.judged
        self.refusals += other.refusals
        self.ttft_ms.merge(other.ttft_ms)
        self.gaps_ms.merge(other.gaps_ms)
        self.duration_ms.merge(other.duration_ms)
        self.cost_usd.merge(other.cost_usd)
        self.output_tokens.merge(other.output_tokens)


class RolloutTotals(msgspec.Struct):
    """The results that one or all gateways observed: both arms over the window, and totals since the step's
    beginning.
    """

    candidate: ArmTally = msgspec.field(default_factory=ArmTally)  # over the window, as the next
    incumbent: ArmTally = msgspec.field(default_factory=ArmTally)
    incumbent_before: ArmTally = msgspec.field(default_factory=ArmTally)  # since the gateway knows the rollout
    step_requests: int = 0  # of the candidate, since the current step began

    def merge(self, other: "RolloutTotals") -> None:
        """Add another gateway's results."""
        self.candidate.merge(other.candidate)
        self.incumbent.merge(other.incumbent)
        self.incumbent_before.merge(other.incumbent_before)
        self.step_requests += other.step_requests


def summed(parts: Iterable[RolloutTotals]) -> RolloutTotals:
    """Return the sum of several gateways' results."""
    found = RolloutTotals()
    for part in parts:
        found.merge(part)
    return found


def to_plain(observed: RolloutTotals) -> dict[str, object]:
    """Return the results as plain data for JSON."""
    plain: dict[str, object] = msgspec.to_builtins(observed, str_keys=True)
    return plain


def from_plain(plain: Mapping[str, object]) -> RolloutTotals:
    """Return results from the data of `to_plain`. Raises msgspec.ValidationError for invalid data."""
    return msgspec.convert(plain, RolloutTotals, strict=False)


class SlidingTally:
    """An arm's tally over the last `window_ns`, in `parts` pieces that expire one by one. Times are monotonic."""

    def __init__(self, window_ns: int, parts: int = 30) -> None:
        self._part_ns = max(window_ns // parts, 1)
        self._parts = parts
        self._pieces: dict[int, ArmTally] = {}

    def add(self, seen: ObservedRequest, now_ns: int) -> None:
        """Count a request that ended now."""
        number = now_ns // self._part_ns
        piece = self._pieces.get(number)
        if piece is None:
            piece = self._pieces[number] = ArmTally()
            self._forget(number)
        piece.add(seen)

    def total(self, now_ns: int) -> ArmTally:
        """Return the tally of the window that ends now."""
        self._forget(now_ns // self._part_ns)
        found = ArmTally()
        for piece in self._pieces.values():
            found.merge(piece)
        return found

    def _forget(self, number: int) -> None:
        for old in [each for each in self._pieces if each <= number - self._parts]:
            del self._pieces[old]
