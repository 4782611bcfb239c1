"""Smooth weighted round robin (nginx, 2012)."""

from algorithms.routing.ask import Ask, Sight
from algorithms.routing.policies.base import by_score


class WeightedPolicy:
    """At each turn every replica's credit grows by its weight; the highest is chosen and pays the sum of
    all weights.
    """

    wants_prefixes = False

    def __init__(self) -> None:
        self._credit: dict[str, int] = {}

    def rank(self, ask: Ask, sight: Sight) -> list[int]:
        """Return the indexes, highest credit first. In sum-of-weights turns each replica is first exactly
        weight times.
        """
        credit = self._credit
        for one in sight.replicas:
            credit[one.id] = credit.get(one.id, 0) + one.weight
        ranked = by_score([float(-credit[one.id]) for one in sight.replicas], sight)
        credit[sight.replicas[ranked[0]].id] -= sum(one.weight for one in sight.replicas)
        return ranked
