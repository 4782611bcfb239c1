"""Any replica, by weight: what others are compared with."""

import math

from algorithms.routing.ask import Ask, Sight
from algorithms.routing.policies.base import Random, by_score


class RandomPolicy:
    """Draws an order by weight (Efraimidis and Spirakis, 2006: the least of -ln(u) / weight comes first)."""

    wants_prefixes = False

    def __init__(self, random: Random) -> None:
        self._random = random

    def rank(self, ask: Ask, sight: Sight) -> list[int]:
        """Return the places in a random order, each first as often as its weight says."""
        return by_score([-math.log(1.0 - self._random()) / one.weight for one in sight.replicas], sight)
