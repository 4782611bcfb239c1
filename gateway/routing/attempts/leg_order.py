"""Orders a fallback chain while the targets of some of its models may not be called."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from contracts.serving.configuration import PoolSpec
from gateway.routing.attempts.turn_order import meanwhile
from gateway.routing.health.breaker import Leave
from gateway.routing.health.health_book import HealthBook


class _Leg(Protocol):
    @property
    def pool(self) -> PoolSpec: ...


LegT = TypeVar("LegT", bound=_Leg)


def arranged(legs: Sequence[LegT], book: HealthBook, now_ns: int) -> list[LegT]:
    """Return the chain with those models last whose targets all have open circuits or asked for a pause.

    If the first model is moved because its provider is down, the provider's playbook decides which one comes next.
    """
    there = [leg for leg in legs if _is_there(leg.pool, book, now_ns)]
    if len(there) == len(legs):
        return list(legs)
    if there and there[0] is not legs[0]:
        places = meanwhile(_provider(legs[0].pool), book)
        there.sort(key=lambda leg: places.get(_provider(leg.pool), len(places)))
    return there + [leg for leg in legs if leg not in there]


def _is_there(pool: PoolSpec, book: HealthBook, now_ns: int) -> bool:
    for spec in pool.targets:
        health = book.of(spec)
        if not health.is_away or health.ask(now_ns) >= Leave.PROBE:
            return True
    return False


def _provider(pool: PoolSpec) -> str:
    return pool.targets[0].provider or pool.targets[0].kind
