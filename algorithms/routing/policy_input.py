"""The input of a routing policy: the request, and the pool's state with the prefix index's answer."""

from collections.abc import Mapping, Sequence

from algorithms.routing.replica import Replica
from algorithms.routing.work_book import WorkBook


class RoutingRequest:
    """A request to be routed: length of its prompt and keys of its blocks, expected output in tokens, and session."""

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
        """`is_whole`: the answer is not streamed."""
        self.tokens = tokens
        self.keys = keys
        self.block_tokens = block_tokens
        self.output_tokens = output_tokens
        self.session = session
        self.is_whole = is_whole


class PoolView:
    """A pool's replicas at this moment, with the number of the prompt's tokens that each has cached.

    `places` maps a replica's bit to its index. `matches` are (bits, tokens) pairs, fewest tokens first; replicas in
    none have nothing cached. `last_place` is the index of the replica that last served the session. `allowed` are the
    indexes of the replicas that may receive the prompt; `None`: all.
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
        """Return how many of the prompt's tokens the replica at an index presumably has cached."""
        return self.cached_of(self.replicas[place])

    def cached_of(self, replica: Replica) -> int:
        """Return how many of the prompt's tokens a replica presumably has cached."""
        bit = replica.bit
        for bits, tokens in self.matches:
            if bits & bit:
                return tokens
        return 0

    def holders(self, most: int) -> list[int]:
        """Return the indexes of at most `most` allowed replicas with a part of the prompt cached, the longest part
        first.
        """
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
