"""The daily allowance for shadow requests: cost so far at this gateway, and at the others as reported."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

_SECOND: Final = 10**9


def day_of(now_ns: int) -> str:
    """Return the day (UTC, ISO 8601) of a time (Unix nanoseconds)."""
    return datetime.fromtimestamp(now_ns // _SECOND, UTC).date().isoformat()


class ShadowBudget:
    """A rollout's daily allowance for shadow requests, in pico-USD. Requests in progress count at maximum cost."""

    def __init__(self) -> None:
        self.day = ""
        self._before: int | None = None  # what this gateway had spent before this object existed; `None`: not known yet
        self._spent = 0
        self._held = 0
        self._others = 0

    @property
    def here(self) -> int:
        """Return what this gateway's copies have cost today, plus the maximum cost of those in progress."""
        return (self._before or 0) + self._spent + self._held

    def take(self, day: str, amount: int, most: int) -> bool:
        """Reserve money for a copy; return whether enough is left. A new day starts from zero."""
        self._turn(day)
        if self.here + self._others + amount > most:
            return False
        self._held += amount
        return True

    def settle(self, held: int, cost: int) -> None:
        """Replace the amount reserved for a copy by its cost."""
        self._held -= held
        self._spent += cost

    def learn(self, day: str, own_before: int, others: Iterable[int]) -> None:
        """Record what the other gateways report for a day, and what this one had spent before its restart.

        The latter is used once a day: later reports contain what this object itself has reported, including
        reservations.
        """
        self._turn(day)
        self._others = sum(others)
        if self._before is None:
            self._before = own_before

    def _turn(self, day: str) -> None:
        if day != self.day:
            self.day, self._before, self._spent, self._others = day, None, 0, 0
