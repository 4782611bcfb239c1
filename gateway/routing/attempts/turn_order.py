"""The order in which a pool's candidates and the models of a fallback chain are called.

A due probe comes first, unavailable targets last or not at all.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from contracts.serving.configuration import PoolSpec, TargetSpec
from gateway.routing.health.breaker import CallPermission
from gateway.routing.health.health_book import HealthBook


class _Leg(Protocol):
    @property
    def pool(self) -> PoolSpec: ...


LegT = TypeVar("LegT", bound=_Leg)


def turns(
    candidates: Sequence[TargetSpec], book: HealthBook, clock: Callable[[], int], *, is_begun: bool
) -> Iterator[TargetSpec]:
    """Yield the candidates that may be called, in order. `is_begun`: the first is in progress already.

    Without failures their order is unchanged. Each is checked when its turn comes: one that has failed meanwhile, for
    any request, is skipped. If all are unavailable, the pool's policy decides whether they are called anyway. `clock`
    returns monotonic nanoseconds.
    """
    first = candidates[0]
    rest: Sequence[TargetSpec] = candidates
    if is_begun or book.of(first).is_plain:
        yield first
        rest = candidates[1:]
    if not rest:
        return
    was_called = rest is not candidates
    for spec in _ordered(rest, book, clock()):
        health = book.of(spec)
        if not health.is_away or health.ask(clock()) is not CallPermission.NO:
            was_called = True
            yield spec
    if not was_called and book.pool(first.pool).policy.when_all_away == "call":
        yield from candidates


def _ordered(candidates: Sequence[TargetSpec], book: HealthBook, now_ns: int) -> list[TargetSpec]:
    asked = [(spec, book.of(spec).ask(now_ns)) for spec in candidates]
    good = [spec for spec, leave in asked if leave is CallPermission.YES]
    if len(good) > 1:
        places = _meanwhile(_provider(candidates[0]), book)
        good.sort(key=lambda spec: places.get(_provider(spec), len(places)))
    probes = [spec for spec, leave in asked if leave is CallPermission.PROBE]
    return probes[:1] + good + [spec for spec, leave in asked if leave is CallPermission.RATHER_NOT] + probes[1:]


def arranged(legs: Sequence[LegT], book: HealthBook, now_ns: int) -> list[LegT]:
    """Return the chain with those models last whose targets all have open circuits or asked for a pause.

    If the first model is moved because its provider is down, the provider's playbook decides which one comes next.
    """
    there = [leg for leg in legs if _is_there(leg.pool, book, now_ns)]
    if len(there) == len(legs):
        return list(legs)
    if there and there[0] is not legs[0]:
        places = _meanwhile(_provider(legs[0].pool.targets[0]), book)
        there.sort(key=lambda leg: places.get(_provider(leg.pool.targets[0]), len(places)))
    return there + [leg for leg in legs if leg not in there]


def _is_there(pool: PoolSpec, book: HealthBook, now_ns: int) -> bool:
    for spec in pool.targets:
        health = book.of(spec)
        if not health.is_away or health.ask(now_ns) >= CallPermission.PROBE:
            return True
    return False


def _meanwhile(provider: str, book: HealthBook) -> dict[str, int]:
    """Return each provider's rank among the replacements of a provider that is down; empty if it is not down."""
    breaker = book.providers.get(provider)
    if breaker is None or breaker.is_calm:
        return {}
    return {name: place for place, name in enumerate(book.playbooks[provider].then)}


def _provider(spec: TargetSpec) -> str:
    return spec.provider or spec.kind
