"""The daily allowance for shadow requests: cost so far at this gateway, and at the others as reported."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

_SECOND: Final = 10**9


def day_of(now_ns: int) -> str:
    """Return the day (UTC, ISO 8601) of a moment (Unix nanoseconds)."""
    return datetime.fromtimestamp(now_ns // _SECOND, UTC).date().isoformat()


class ShadowPurse:
    """A rollout's daily allowance for shadow requests, in pico-USD. Requests in progress count at maximum cost."""

    def __init__(self) -> None:
        self.day = ""
        self._before: int | None = None  # what this gateway had spent before this purse was; `None`: not told yet
        self._spent = 0
        self._held = 0
        self._others = 0

    @property
    def here(self) -> int:
        """Return what this gateway's copies have cost today, with what those in progress may."""
        return (self._before or 0) + self._spent + self._held

    def take(self, day: str, amount: int, most: int) -> bool:
        """Hold money for a copy; return whether there is that much. Another day starts over."""
        self._turn(day)
        if self.here + self._others + amount > most:
            return False
        self._held += amount
        return True

    def settle(self, held: int, cost: int) -> None:
        """Replace what was held for a copy by what it has cost."""
        self._held -= held
        self._spent += cost

    def learn(self, day: str, own_before: int, others: Iterable[int]) -> None:
        """Record what the other gateways say of a day, and what this one had spent before it was started again.

        The latter is taken once a day: later it is what this purse has told itself, with what was held at the time.
        """
        self._turn(day)
        self._others = sum(others)
        if self._before is None:
            self._before = own_before

    def _turn(self, day: str) -> None:
        if day != self.day:
            self.day, self._before, self._spent, self._others = day, None, 0, 0
