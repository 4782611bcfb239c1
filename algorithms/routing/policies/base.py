"""The interface of a policy. It sees the request and the replicas, and says who should be asked first."""

from collections.abc import Callable
from typing import Protocol

from algorithms.routing.ask import Ask, Sight

Random = Callable[[], float]  # from 0 to 1, without 1


class Policy(Protocol):
    """Ranks replicas. `wants_prefixes`: it looks at what the caches hold."""

    wants_prefixes: bool

    def rank(self, ask: Ask, sight: Sight) -> list[int]:
        """Return the places of replicas, the one to ask first, then those to fall back to; not all of a large pool."""


def by_score(scores: list[float], sight: Sight) -> list[int]:
    """Return all places, the lowest score first; equal ones by the work they had, suspects last."""
    now, replicas, work = sight.now_ns, sight.replicas, sight.work.of
    return sorted(
        range(len(scores)),
        key=lambda place: (replicas[place].is_suspect(now), scores[place], work[replicas[place].id]),
    )
