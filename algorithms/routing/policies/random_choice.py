"""Random choice by weight, a baseline for other policies."""

import math

from algorithms.routing.policies.base import Random, by_score
from algorithms.routing.policy_input import PoolView, RoutingRequest


class RandomPolicy:
    """Draws an order by weight (Efraimidis and Spirakis, 2006: the lowest of -ln(u) / weight comes first)."""

    wants_prefixes = False

    def __init__(self, random: Random) -> None:
        self._random = random

    def rank(self, request: RoutingRequest, view: PoolView) -> list[int]:
        """Return the indexes in random order; how often each is first is proportional to its weight."""
        return by_score([-math.log(1.0 - self._random()) / one.weight for one in view.replicas], view)
