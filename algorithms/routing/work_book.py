"""The work that replicas were given lately, half forgotten every ten minutes: tokens to compute, which count for more
at a replica that is slower than its siblings.

Forward decay (Cormode and others, 2009): what comes later weighs more, so that nothing has to be decayed to compare.
"""

from typing import Final

_HALF_LIFE_NS: Final = 600e9
_MOST_HALF_LIVES: Final = 100.0  # since the base, before all is scaled down: a power beyond 1,024 is not a number


class WorkBook:
    """Works by replica's name. Values are comparable with each other; `weight` makes tokens comparable with them."""

    __slots__ = ("_base_ns", "of", "total")

    def __init__(self) -> None:
        self.of: dict[str, float] = {}
        self.total = 0.0
        self._base_ns = 0

    def weight(self, now_ns: int) -> float:
        """Return what a token given now counts."""
        exponent = (now_ns - self._base_ns) / _HALF_LIFE_NS
        if exponent > _MOST_HALF_LIVES:
            kept = 0.5**exponent
            self.of = {name: work * kept for name, work in self.of.items()}
            self.total = sum(self.of.values())
            self._base_ns, exponent = now_ns, 0.0
        weight: float = 2.0**exponent
        return weight

    def join(self, name: str) -> None:
        """Start with a replica, which is taken to have had as much as the others."""
        self.of[name] = self.total / len(self.of) if self.of else 0.0
        self.total += self.of[name]

    def leave(self, name: str) -> None:
        """Forget a replica."""
        self.total -= self.of.pop(name, 0.0)

    def add(self, name: str, tokens: float, now_ns: int) -> None:
        """Count tokens that a replica is given to compute."""
        more = tokens * self.weight(now_ns)
        self.of[name] += more
        self.total += more
