"""Consistent hashing: a session, or a prompt's beginning, always goes to the same replica, unless that is overloaded.

Rendezvous hashing with bounded loads (Mirrokni and others, 2018): the first replica in the session's own order with at
most 1.25 times the mean number of requests in progress.
"""

import math
from hashlib import blake2b
from typing import Final

from algorithms.routing.policy_input import PoolView, RoutingRequest

_BOUND: Final = 1.25
_BLOCKS: Final = 4  # of a prompt that are hashed if there is no session


class ConsistentHashPolicy:
    """Ranks by a hash of the session, or else of the prompt's first blocks, within the load bound."""

    wants_prefixes = False

    def __init__(self) -> None:
        self._seeds: dict[str, int] = {}

    def rank(self, request: RoutingRequest, view: PoolView) -> list[int]:
        """Return the indexes in the session's own order, overloaded replicas last."""
        replicas, now = view.replicas, view.now_ns
        wanted = (
            _hash(request.session)
            if request.session
            else request.keys[min(_BLOCKS, len(request.keys)) - 1]
            if request.keys
            else 0
        )
        weights = sum(one.weight for one in replicas)
        bound = _BOUND * (sum(one.running for one in replicas) + 1) / weights
        order = sorted(
            range(len(replicas)),
            key=lambda place: (
                replicas[place].is_suspect(now),
                replicas[place].running + 1 > math.ceil(bound * replicas[place].weight),
                _draw(wanted, self._seed(replicas[place].id)) / replicas[place].weight,
            ),
        )
        return order

    def _seed(self, name: str) -> int:
        seed = self._seeds.get(name)
        if seed is None:
            seed = self._seeds[name] = _hash(name)
        return seed


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def _draw(wanted: int, seed: int) -> float:
    """Return an exponentially distributed value that depends only on the two numbers (splitmix64's finalizer)."""
    mixed = (wanted ^ seed) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
    return -math.log(((mixed ^ mixed >> 31) + 1) / 2.0**64)
