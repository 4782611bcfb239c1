"""Peak EWMA (Finagle): the replica with the lowest latency times load. A rise counts at once, a fall gradually."""

from algorithms.routing.ask import Ask, Sight
from algorithms.routing.policies.base import by_score


class PeakEwmaPolicy:
    """Ranks by the decayed peak of times to first token, multiplied by the requests in progress."""

    wants_prefixes = False

    def rank(self, ask: Ask, sight: Sight) -> list[int]:
        """Return the indexes, fastest first. A replica without measurements is tried before it has two requests."""
        now = sight.now_ns
        known = [one.latency_ns(now) for one in sight.replicas]
        guess = max(known) or 1.0
        scores = [
            (latency or (guess if one.running else 0.0)) * (one.running + 1) / one.weight
            for latency, one in zip(known, sight.replicas, strict=True)
        ]
        return by_score(scores, sight)
