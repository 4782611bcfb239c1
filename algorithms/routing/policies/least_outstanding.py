"""Least outstanding requests: the replica with the fewest requests in progress, relative to its weight."""

from algorithms.routing.policies.base import by_score
from algorithms.routing.policy_input import PoolView, RoutingRequest


class LeastOutstandingPolicy:
    """Ranks by requests in progress: this gateway's and, if the engine reports them, those of others."""

    wants_prefixes = False

    def rank(self, request: RoutingRequest, view: PoolView) -> list[int]:
        """Return the indexes, least loaded first."""
        return by_score([(one.running + one.room.others) / one.weight for one in view.replicas], view)
