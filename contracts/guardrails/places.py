"""Non-overlapping ranges of a text. They are found by binary search, so that many of them cost little."""

from bisect import bisect_right


class Places:
    """The claimed ranges of one text."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def is_free(self, start: int, end: int) -> bool:
        """Return whether no part of a range is claimed."""
        after = bisect_right(self._ends, start)
        return after == len(self._starts) or self._starts[after] >= end

    def holds(self, start: int, end: int) -> bool:
        """Return whether one claimed range contains all of a non-empty range."""
        after = bisect_right(self._ends, start)
        return after < len(self._starts) and self._starts[after] <= start and end <= self._ends[after]

    def take(self, start: int, end: int) -> bool:
        """Claim a range; return whether it was free."""
        after = bisect_right(self._ends, start)
        if after < len(self._starts) and self._starts[after] < end:
            return False
        self._starts.insert(after, start)
        self._ends.insert(after, end)
        return True
