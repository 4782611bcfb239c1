"""Random choice by weight, a baseline for other policies."""

import math

from algorithms.routing.ask import Ask, Sight
from algorithms.routing.policies.base import Random, by_score


class RandomPolicy:
    """Draws an order by weight (Efraimidis and Spirakis, 2006: the lowest of -ln(u) / weight comes first)."""

    wants_prefixes = False

    def __init__(self, random: Random) -> None:
        self._random = random

    def rank(self, ask: Ask, sight: Sight) -> list[int]:
        """Return the indexes in random order; how often each is first is proportional to its weight."""
        return by_score([-math.log(1.0 - self._random()) / one.weight for one in sight.replicas], sight)
