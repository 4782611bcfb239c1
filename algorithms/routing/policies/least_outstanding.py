"""The replica with the fewest requests in progress, for its weight."""

from algorithms.routing.ask import Ask, Sight
from algorithms.routing.policies.base import by_score


class LeastOutstandingPolicy:
    """Chooses by requests in progress, ours and, where the engine tells, others'."""

    wants_prefixes = False

    def rank(self, ask: Ask, sight: Sight) -> list[int]:
        """Return the places, the idlest first."""
        return by_score([(one.running + one.room.others) / one.weight for one in sight.replicas], sight)
