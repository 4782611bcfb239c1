"""A plan of a workload and replicas, and the possible changes to it."""

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
class SpotMachines:
    """Spot machines: share of replicas, discount, interruptions per hour, and seconds per interruption.

    Interruptions are independent of each other (Poisson), per hour and machine.
    """

    share: float
    discount: Decimal = Decimal("0.6")
    interruptions_per_hour: float = 0.05
    return_seconds: float = 180.0

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise InvalidRequest(f"the spot share is {self.share:g}; it must be 0 to 1", param="spot_share")
        if not 0 <= self.discount <= 1:
            raise InvalidRequest(f"the spot discount is {self.discount}; it must be 0 to 1", param="spot_discount")
        if self.interruptions_per_hour < 0 or self.return_seconds <= 0:
            raise InvalidRequest(
                "a spot machine's interruptions per hour must be at least 0, and their seconds above 0"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A workload on `replicas` replicas of one kind. The same plan and seed give the same outcome."""

    workload: Workload
    setup: ReplicaSetup
    replicas: int = 1
    policy: str = "cost"
    spot: SpotMachines | None = None
    seed: int = 0

    def simulate(self) -> Outcome:
        """Simulate the plan. Raises InvalidRequest on impossible values."""
        return Simulation(self.setups(), policy=self.policy, seed=self.seed, outages=self.outages()).run(self.workload)

    def setups(self) -> list[ReplicaSetup]:
        """Return every replica's setup, spot machines last."""
        regular = [self.setup] * self.replicas
        if self.spot is None or self.setup.usd_per_gpu_hour is None:
            return regular
        cheap = replace(self.setup, usd_per_gpu_hour=self.setup.usd_per_gpu_hour * (1 - self.spot.discount))
        return [*regular[: self.replicas - self._spots], *[cheap] * self._spots]

    def outages(self) -> list[Outage]:
        """Draw the random interruptions of spot machines."""
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
    """p95 limits in milliseconds; `None`: no limit. All requests must be served."""

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
        """Return whether an outcome meets the objective."""
        if outcome.served < outcome.requests or outcome.ttft_ms is None:
            return False
        if self.ttft_p95_ms is not None and outcome.ttft_ms.p95 > self.ttft_p95_ms:
            return False
        gap = outcome.gap_ms
        return self.gap_p95_ms is None or gap is None or gap.p95 <= self.gap_p95_ms


@dataclass(frozen=True, slots=True)
class Sizing:
    """The fewest replicas that meet an objective, `None` if not even `most` do; and all simulated numbers."""

    replicas: int | None
    tried: Sequence[tuple[int, Outcome]]
    most: int

    @property
    def outcome(self) -> Outcome | None:
        """Return the outcome with the number found."""
        return next((outcome for count, outcome in self.tried if count == self.replicas), None)


def replicas_needed(
    plan: Plan, objective: Objective, most: int = 256, on_try: Callable[[int], None] | None = None
) -> Sizing:
    """Find the fewest replicas that meet an objective: double until it is met, then bisect.

    Assumes that more replicas are not worse, which is true except for shared prefixes that are spread over more caches.
    `on_try` is called with each number before its simulation.
    """
    tried: dict[int, Outcome] = {}

    def keeps(count: int) -> bool:
        if count not in tried:
            if on_try is not None:
                on_try(count)
            tried[count] = replace(plan, replicas=count).simulate()
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
