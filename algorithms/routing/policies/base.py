"""The interface of a routing policy, which ranks replicas for a request."""

from collections.abc import Callable
from typing import Protocol

from algorithms.routing.policy_input import PoolView, RoutingRequest

Random = Callable[[], float]  # in [0, 1)


class Policy(Protocol):
    """Ranks replicas. `wants_prefixes`: it uses the replicas' cached prefixes."""

    wants_prefixes: bool

    def rank(self, request: RoutingRequest, view: PoolView) -> list[int]:
        """Return the indexes of replicas, best first, the others as fallbacks; in a large pool not all of them."""


def by_score(scores: list[float], view: PoolView) -> list[int]:
    """Return all indexes, lowest score first; equal scores by past work, suspect replicas last."""
    now, replicas, work = view.now_ns, view.replicas, view.work.of
    return sorted(
        range(len(scores)),
        key=lambda place: (replicas[place].is_suspect(now), scores[place], work[replicas[place].id]),
    )
