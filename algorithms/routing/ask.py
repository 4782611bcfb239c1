"""Input of a routing policy: facts about the request, and the prefix index's answer."""

from collections.abc import Mapping, Sequence

from algorithms.routing.replica import Replica
from algorithms.routing.work_book import WorkBook


class Ask:
    """A request to be placed: its prompt's length and its blocks' keys, in tokens; what it may produce; its session."""

    __slots__ = ("block_tokens", "is_whole", "keys", "output_tokens", "session", "tokens")

    def __init__(
        self,
        tokens: int,
        keys: Sequence[int] = (),
        block_tokens: int = 16,
        output_tokens: int = 0,
        session: str = "",
        is_whole: bool = False,
    ) -> None:
        """`is_whole`: the answer is asked for in one piece."""
        self.tokens = tokens
        self.keys = keys
        self.block_tokens = block_tokens
        self.output_tokens = output_tokens
        self.session = session
        self.is_whole = is_whole


class Sight:
    """A pool's replicas at this moment, and who of them has how many of the prompt's tokens in its cache.

    `places` are by bit. `matches` are (bits, tokens) pairs, the fewest tokens first; whose bit is in none has nothing
    of it. `last_place` served the session last. `allowed` are the places that may see the prompt; `None`: all.
    """

    __slots__ = ("allowed", "last_place", "matches", "now_ns", "places", "replicas", "work")

    def __init__(
        self,
        replicas: Sequence[Replica],
        places: Mapping[int, int],
        now_ns: int,
        matches: list[tuple[int, int]],
        work: WorkBook,
        last_place: int | None = None,
        allowed: Sequence[int] | None = None,
    ) -> None:
        self.replicas = replicas
        self.places = places
        self.now_ns = now_ns
        self.matches = matches
        self.work = work
        self.last_place = last_place
        self.allowed = allowed

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
