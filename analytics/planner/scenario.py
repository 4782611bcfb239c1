"""One plan: a workload, replicas, and what if. Which changes there are, and what each does to a plan."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

from analytics.planner.outcome import Outcome
from analytics.planner.setup import ReplicaSetup
from analytics.planner.simulation import Outage, Simulation
from analytics.planner.workload import Workload
from contracts.errors import InvalidRequest

_HOUR_NS: Final = 3_600_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """Replicas on machines that may be taken back: which share of them, at what discount, how often, for how long.

    Interruptions come independently of each other, the given number of an hour and machine.
    """

    share: float
    discount: Decimal = Decimal("0.6")
    interruptions_per_hour: float = 0.05
    return_seconds: float = 180.0

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise InvalidRequest(f"a spot share of {self.share:g} cannot be; use 0 to 1", param="spot_share")
        if not 0 <= self.discount <= 1:
            raise InvalidRequest(f"a spot discount of {self.discount} cannot be; use 0 to 1", param="spot_discount")
        if self.interruptions_per_hour < 0 or self.return_seconds <= 0:
            raise InvalidRequest("spot machines are interrupted 0 or more times an hour, for more than 0 seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A workload served by `replicas` of one kind. The same plan and seed give the same outcome."""

    workload: Workload
    setup: ReplicaSetup
    replicas: int = 1
    policy: str = "cost"
    spot: Spot | None = None
    seed: int = 0

    def play(self) -> Outcome:
        """Simulate it. Raises InvalidRequest on what cannot be."""
        return Simulation(self.setups(), policy=self.policy, seed=self.seed, outages=self.outages()).run(self.workload)

    def setups(self) -> list[ReplicaSetup]:
        """Return every replica's setup; the last ones are the spot machines."""
        regular = [self.setup] * self.replicas
        if self.spot is None or self.setup.usd_per_gpu_hour is None:
            return regular
        cheap = replace(self.setup, usd_per_gpu_hour=self.setup.usd_per_gpu_hour * (1 - self.spot.discount))
        return [*regular[: self.replicas - self._spots], *[cheap] * self._spots]

    def outages(self) -> list[Outage]:
        """Draw when spot machines are away."""
        if self.spot is None or not self.spot.interruptions_per_hour:
            return []
        source = random.Random(f"{self.seed}/spot")
        until = self.workload.requests[-1].at_ns
        away_ns = self.spot.return_seconds * 1e9
        found = []
        for place in range(self.replicas - self._spots, self.replicas):
            at = 0.0
            while (at := at + source.expovariate(self.spot.interruptions_per_hour) * _HOUR_NS) < until:
                found.append(Outage(place, at, at + away_ns))
                at += away_ns
        return found

    @property
    def _spots(self) -> int:
        return round(self.spot.share * self.replicas) if self.spot is not None else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What has to be kept, in milliseconds at the 95th percentile; `None`: not asked for. All must be served."""

    ttft_p95_ms: float | None = None
    gap_p95_ms: float | None = None

    def __post_init__(self) -> None:
        if self.ttft_p95_ms is None and self.gap_p95_ms is None:
            raise InvalidRequest("an objective bounds the time to first token, the inter-token latency, or both")
        for name in ("ttft_p95_ms", "gap_p95_ms"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise InvalidRequest(f"{name} is {value:g}; it must be above 0", param=name)

    def is_kept(self, outcome: Outcome) -> bool:
        """Return whether an outcome keeps it."""
        if outcome.served < outcome.requests or outcome.ttft_ms is None:
            return False
        if self.ttft_p95_ms is not None and outcome.ttft_ms.p95 > self.ttft_p95_ms:
            return False
        gap = outcome.gap_ms
        return self.gap_p95_ms is None or gap is None or gap.p95 <= self.gap_p95_ms


@dataclass(frozen=True, slots=True)
class Sizing:
    """The fewest replicas found that keep an objective, `None` if none up to `most` do; and all that was tried."""

    replicas: int | None
    tried: Sequence[tuple[int, Outcome]]
    most: int

    @property
    def outcome(self) -> Outcome | None:
        """Return what the found number comes to."""
        return next((outcome for count, outcome in self.tried if count == self.replicas), None)


def replicas_needed(
    plan: Plan, objective: Objective, most: int = 256, on_try: Callable[[int], None] | None = None
) -> Sizing:
    """Find how many replicas keep an objective: doubled until it is kept, then halved in between.

    More replicas are taken to be no worse, which holds but for what shared prefixes lose by being spread. `on_try` is
    told each number before it is played.
    """
    tried: dict[int, Outcome] = {}

    def keeps(count: int) -> bool:
        if count not in tried:
            if on_try is not None:
                on_try(count)
            tried[count] = replace(plan, replicas=count).play()
        return objective.is_kept(tried[count])

    low, high = 0, 1
    while not keeps(high):
        low = high
        if high >= most:
            return Sizing(None, sorted(tried.items()), most)
        high = min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        if keeps(middle):
            high = middle
        else:
            low = middle
    return Sizing(high, sorted(tried.items()), most)
