"""Whose turn it is among entries that share requests by weight."""

from collections.abc import Sequence
from zlib import crc32

from gateway.routes.plan import Branch


class Turns:
    """Weighted round robin, smooth, one turn counter a route. A conversation stays with the entry it began with."""

    def __init__(self) -> None:
        self._credit: dict[tuple[str, str], int] = {}

    def order(self, route: str, branches: Sequence[Branch], conversation: str, *, takes_turn: bool) -> list[Branch]:
        """Give the branches, the one whose turn it is first and the others behind it by weight.

        Smooth weighted round robin (nginx, 2012), as among a pool's targets: over sum-of-weights turns each is first
        exactly weight times. A conversation's first is drawn by its id, by weight, and the same as long as the same
        branches are open. `takes_turn` false looks at whose turn it would be.
        """
        if len(branches) < 2:
            return list(branches)
        if conversation:
            first = _drawn(route, branches, conversation)
        else:
            first = self._next(route, branches, takes_turn=takes_turn)
        others = sorted((branch for branch in branches if branch is not first), key=lambda branch: -branch.weight)
        return [first, *others]

    def _next(self, route: str, branches: Sequence[Branch], *, takes_turn: bool) -> Branch:
        credits = [self._credit.get((route, branch.label), 0) + branch.weight for branch in branches]
        best = credits.index(max(credits))
        if takes_turn:
            credits[best] -= sum(branch.weight for branch in branches)
            for branch, credit in zip(branches, credits, strict=True):
                self._credit[route, branch.label] = credit
        return branches[best]


def _drawn(route: str, branches: Sequence[Branch], conversation: str) -> Branch:
    place = crc32(f"{route}/{conversation}".encode()) % sum(branch.weight for branch in branches)
    for branch in branches:
        place -= branch.weight
        if place < 0:
            return branch
    raise AssertionError("a place below the sum of weights is within one of them")
