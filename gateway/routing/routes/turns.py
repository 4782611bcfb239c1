"""Weighted round robin among entries."""

from collections.abc import Sequence
from typing import Final
from zlib import crc32

from gateway.routing.routes.route_plan import CompiledEntry

_MOST_KEPT: Final = 4_096  # number of routes, each set of weights counted separately; a dropped one starts over

_Shares = tuple[tuple[str, int], ...]  # (label, weight) each


class Turns:
    """Smooth weighted round robin, with one turn counter per route. A conversation stays with its first entry."""

    def __init__(self) -> None:
        self._credit: dict[tuple[str, _Shares], dict[str, int]] = {}

    def order(
        self,
        route: str,
        branches: Sequence[CompiledEntry],
        conversation: str,
        *,
        takes_turn: bool,
        among: Sequence[CompiledEntry] | None = None,
    ) -> list[CompiledEntry]:
        """Return the branches: the one whose turn it is, then the others by weight.

        Smooth weighted round robin (nginx, 2012), as among a pool's targets: in sum-of-weights turns each branch is
        first exactly weight times. A conversation's branch is drawn by its id, by weight, and stays the same while the
        same branches are open. With `takes_turn` false no turn is used. `among` are all of the route's branches,
        including those closed to this request; `None`: `branches` are all. With other weights the turns start over.
        """
        if len(branches) < 2:
            return list(branches)
        if conversation:
            first = _drawn(route, branches, conversation)
        else:
            shares = tuple([(branch.label, branch.weight) for branch in among or branches])
            first = self._next((route, shares), branches, takes_turn=takes_turn)
        others = sorted((branch for branch in branches if branch is not first), key=lambda branch: -branch.weight)
        return [first, *others]

    def _next(self, key: tuple[str, _Shares], branches: Sequence[CompiledEntry], *, takes_turn: bool) -> CompiledEntry:
        known = self._credit.get(key, {})
        credits = [known.get(branch.label, 0) + branch.weight for branch in branches]
        best = credits.index(max(credits))
        if takes_turn:
            credits[best] -= sum(branch.weight for branch in branches)
            for branch, credit in zip(branches, credits, strict=True):
                known[branch.label] = credit
            self._credit[key] = known
            if len(self._credit) > _MOST_KEPT:
                del self._credit[next(iter(self._credit))]
        return branches[best]


def _drawn(route: str, branches: Sequence[CompiledEntry], conversation: str) -> CompiledEntry:
    place = crc32(f"{route}/{conversation}".encode()) % sum(branch.weight for branch in branches)
    for branch in branches:
        place -= branch.weight
        if place < 0:
            return branch
    raise AssertionError("a place below the sum of weights is within one of them")
