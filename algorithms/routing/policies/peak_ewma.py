"""Peak EWMA (Finagle): the replica with the lowest latency times load. A rise counts at once, a fall gradually."""

from algorithms.routing.policies.base import by_score
from algorithms.routing.policy_input import PoolView, RoutingRequest


class PeakEwmaPolicy:
    """Ranks by the decayed peak of times to first token, multiplied by the requests in progress."""

    wants_prefixes = False

    def rank(self, request: RoutingRequest, view: PoolView) -> list[int]:
        """Return the indexes, fastest first. A replica without measurements is tried before it has two requests."""
        now = view.now_ns
        known = [one.latency_ns(now) for one in view.replicas]
        guess = max(known) or 1.0
        scores = [
            (latency or (guess if one.running else 0.0)) * (one.running + 1) / one.weight
            for latency, one in zip(known, view.replicas, strict=True)
        ]
        return by_score(scores, view)
