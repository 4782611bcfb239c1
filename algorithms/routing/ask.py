"""Input of a routing policy: facts about the request, and the prefix index's answer."""

from collections.abc import Mapping, Sequence

import msgspec

from algorithms.routing.replica import Replica
from algorithms.routing.work_book import WorkBook


class Ask(msgspec.Struct):
    """A request to be placed: its prompt's length and its blocks' keys, in tokens; what it may produce; its session."""

    tokens: int
    keys: Sequence[int] = ()
    block_tokens: int = 16
    output_tokens: int = 0
    session: str = ""
    is_whole: bool = False  # the answer is asked for in one piece


class Sight(msgspec.Struct):
    """A pool's replicas at this moment, and who of them has how many of the prompt's tokens in its cache.

    `matches` are (bits, tokens) pairs, the fewest tokens first; whose bit is in none has nothing of it.
    """

    replicas: Sequence[Replica]
    places: Mapping[int, int]  # by bit
    now_ns: int
    matches: list[tuple[int, int]]
    work: WorkBook
    last_place: int | None = None  # which served the session last
    allowed: Sequence[int] | None = None  # places that may see the prompt; `None`: all

    def cached(self, place: int) -> int:
        """Return how many of the prompt's tokens a replica is taken to have in its cache."""
        return self.cached_of(self.replicas[place])

    def cached_of(self, replica: Replica) -> int:
        """Return how many of the prompt's tokens a replica is taken to have in its cache."""
        bit = replica.bit
        for bits, tokens in self.matches:
            if bits & bit:
                return tokens
        return 0

    def holders(self, most: int) -> list[int]:
        """Return who has something of the prompt, the most first, and may see it."""
        found: list[int] = []
        places = self.places
        may = -1 if self.allowed is None else sum([self.replicas[place].bit for place in self.allowed])
        for bits, _ in reversed(self.matches):
            bits &= may
            while bits:
                if len(found) == most:
                    return found
                bit = bits & -bits
                bits ^= bit
                place = places.get(bit)
                if place is not None:
                    found.append(place)
        return found
