"""Counts events in a sliding window with thirteen integers, independent of the number of events."""

from typing import Final

_SLOTS: Final = 12


class WindowCount:
    """Counts events in a sliding window, in slots of a twelfth of its length.

    An event counts for the window's length, and for up to one slot longer, so a limit is never exceeded. Times are
    non-decreasing nanoseconds.
    """

    __slots__ = ("_counts", "_slot_ns", "_newest")

    def __init__(self, window_seconds: float) -> None:
        self._slot_ns = max(int(window_seconds * 1_000_000_000) // _SLOTS, 1)
        self._counts = [0] * (_SLOTS + 1)  # newest last
        self._newest = 0

    def add(self, now_ns: int) -> None:
        """Count an event."""
        self._move(now_ns)
        self._counts[-1] += 1

    def count(self, now_ns: int) -> int:
        """Return the number of events in the window that ends now."""
        self._move(now_ns)
        return sum(self._counts)

    def seconds_until_below(self, limit: int, now_ns: int) -> float:
        """Return the seconds until fewer than `limit` events are in the window, without further events; 0 if that is so
        now.
        """
        left = self.count(now_ns)
        for index, events in enumerate(self._counts):
            if left < limit:
                break
            left -= events
            if left < limit:
                return ((self._newest + index + 1) * self._slot_ns - now_ns) / 1_000_000_000
        return 0.0

    def _move(self, now_ns: int) -> None:
        slot = now_ns // self._slot_ns
        passed = slot - self._newest
        if passed <= 0:
            return
        keep = self._counts[passed:] if passed <= _SLOTS else []
        self._counts = keep + [0] * (_SLOTS + 1 - len(keep))
        self._newest = slot
