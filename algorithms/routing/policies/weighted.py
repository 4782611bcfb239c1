"""Smooth weighted round robin (nginx, 2012)."""

from algorithms.routing.policies.base import by_score
from algorithms.routing.policy_input import PoolView, RoutingRequest


class WeightedPolicy:
    """At each turn every replica's credit grows by its weight; the highest is chosen and pays the sum of
    all weights.
    """

    wants_prefixes = False

    def __init__(self) -> None:
        self._credit: dict[str, int] = {}

    def rank(self, request: RoutingRequest, view: PoolView) -> list[int]:
        """Return the indexes, highest credit first. In sum-of-weights turns each replica is first exactly
        weight times.
        """
        credit = self._credit
        for one in view.replicas:
            credit[one.id] = credit.get(one.id, 0) + one.weight
        ranked = by_score([float(-credit[one.id]) for one in view.replicas], view)
        credit[view.replicas[ranked[0]].id] -= sum(one.weight for one in view.replicas)
        return ranked
