"""The search for the knee: the highest request rate that still meets the objective."""

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from contracts.errors import ConfigurationError


class Measured(Protocol):
    """The parts of a load test's result that the search for the highest rate uses."""

    @property
    def rate(self) -> float: ...
    @property
    def keeps_objective(self) -> bool: ...


M = TypeVar("M", bound=Measured)


@dataclass(frozen=True, slots=True)
class Search:
    """The search strategy: doubles from `first_rate` until the objective is missed, then bisects (logarithmically).

    It ends when the interval is smaller than `resolution` (a share), after `max_steps`, or at the lowest or highest
    rate. Rates are requests per second.
    """

    first_rate: float = 1.0
    lowest_rate: float = 0.05
    highest_rate: float = 1000.0
    resolution: float = 0.1
    max_steps: int = 14

    def __post_init__(self) -> None:
        if not 0 < self.lowest_rate <= self.first_rate <= self.highest_rate:
            raise ConfigurationError(
                f"rates must be in order: 0 < lowest ({self.lowest_rate:g}) <= first ({self.first_rate:g}) "
                f"<= highest ({self.highest_rate:g}) requests per second"
            )
        if self.resolution <= 0 or self.max_steps < 1:
            raise ConfigurationError("a search needs a resolution above 0 and at least one step")

    def next_rate(self, kept: float | None, broken: float | None) -> float | None:
        """Return the next rate, from the highest that met and the lowest that missed the objective; `None`: done."""
        if kept is None and broken is None:
            return self.first_rate
        if broken is None:
            assert kept is not None
            return None if kept >= self.highest_rate else min(kept * 2, self.highest_rate)
        if kept is None:
            return None if broken <= self.lowest_rate else max(broken / 2, self.lowest_rate)
        return None if broken / kept <= 1 + self.resolution else math.sqrt(kept * broken)


@dataclass(frozen=True, slots=True)
class Knee(Generic[M]):
    """The result of a search: all steps in order, and the best that met the objective (`None` if none did).

    `is_bounded`: a higher rate missed the objective; otherwise the knee is above the highest rate tried.
    """

    steps: tuple[M, ...]
    best: M | None
    is_bounded: bool


async def find_knee(search: Search, measure: Callable[[float], Awaitable[M | None]]) -> Knee[M]:
    """Measure rates until the knee is found. A measurement of `None` (interrupted) ends the search."""
    steps: list[M] = []
    best: M | None = None
    broken: float | None = None
    while len(steps) < search.max_steps:
        rate = search.next_rate(None if best is None else best.rate, broken)
        if rate is None:
            break
        measured = await measure(rate)
        if measured is None:
            break
        steps.append(measured)
        if measured.keeps_objective:
            best = measured
        else:
            broken = rate
    return Knee(tuple(steps), best, broken is not None)
