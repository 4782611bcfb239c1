"""The replica with the lowest latency times load (Finagle's peak EWMA: a rise counts at once, a fall slowly)."""

from algorithms.routing.ask import Ask, Sight
from algorithms.routing.policies.base import by_score


class PeakEwmaPolicy:
    """Chooses by the decayed peak of times to first token, times the requests in progress."""

    wants_prefixes = False

    def rank(self, ask: Ask, sight: Sight) -> list[int]:
        """Return the places, the quickest first; one of which nothing is known is asked before it has two to do."""
        now = sight.now_ns
        known = [one.latency_ns(now) for one in sight.replicas]
        guess = max(known) or 1.0
        scores = [
            (latency or (guess if one.running else 0.0)) * (one.running + 1) / one.weight
            for latency, one in zip(known, sight.replicas, strict=True)
        ]
        return by_score(scores, sight)
