"""Recent work per replica, with a half-life of ten minutes: tokens to compute, weighted by the replica's slowness.

Forward decay (Cormode and others, 2009): later work gets more weight, so that older values need no update.
"""

from typing import Final

_HALF_LIFE_NS: Final = 600e9
_MOST_HALF_LIVES: Final = 100.0  # after which all values are scaled down, because 2**1024 exceeds a float


class WorkBook:
    """Recent work by replica name, as numbers that can be compared with each other. `weight` converts tokens to the
    same unit.
    """

    __slots__ = ("_base_ns", "of", "total")

    def __init__(self) -> None:
        self.of: dict[str, float] = {}
        self.total = 0.0
        self._base_ns = 0

    def weight(self, now_ns: int) -> float:
        """Return the weight of a token at this time."""
        exponent = (now_ns - self._base_ns) / _HALF_LIFE_NS
        if exponent > _MOST_HALF_LIVES:
            kept = 0.5**exponent
            self.of = {name: work * kept for name, work in self.of.items()}
            self.total = sum(self.of.values())
            self._base_ns, exponent = now_ns, 0.0
        weight: float = 2.0**exponent
        return weight

    def join(self, name: str) -> None:
        """Add a replica with the mean work of the others."""
        self.of[name] = self.total / len(self.of) if self.of else 0.0
        self.total += self.of[name]

    def leave(self, name: str) -> None:
        """Remove a replica."""
        self.total -= self.of.pop(name, 0.0)

    def add(self, name: str, tokens: float, now_ns: int) -> None:
        """Add tokens that a replica is to compute."""
        more = tokens * self.weight(now_ns)
        self.of[name] += more
        self.total += more
