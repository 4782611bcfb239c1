"""What the leased counters of one gateway know together: whether Redis is there, and who has something to tell it."""

from collections.abc import Sequence
from typing import Any, Final, Protocol

from backends.counters.courier import Keys
from backends.counters.server_clock import ServerClock

_SECOND_NS: Final = 1_000_000_000
_LEARNING_SECONDS: Final = 0.5
_SHORTEST_TURN_SECONDS: Final = 0.02


class LeasedPart(Protocol):
    """What is counted under one key of Redis: a window, or one period of an escrow."""

    def pack(self, keys: Keys, need: int, is_seek: bool) -> list[object]:
        """Give the line to send, as things stand now; what is not wanted any more is given back with it."""

    def deliver(self, result: Sequence[Any]) -> None:
        """Take what was granted."""

    def undo(self) -> None:
        """Take back what `pack` did."""

    def is_due(self, now_ns: int) -> bool:
        """Say whether there is something to tell or to ask now (monotonic time)."""

    def is_settled(self) -> bool:
        """Say whether there is nothing to tell and nothing leased, so that it need not be looked at."""

    def forget_grants(self) -> None:
        """Take it that nothing of what was granted to this gateway's life counts any more."""

    def forget_data(self) -> None:
        """Take it that Redis knows nothing of this any more, and tell it anew."""


class Link:
    """How this gateway stands with Redis, and its counters that are not at rest."""

    __slots__ = ("active", "clock", "gateways", "is_away", "is_closing", "prefix", "takes", "usable_until_ns")

    def __init__(self, clock: ServerClock, prefix: str) -> None:
        self.clock = clock
        self.prefix = prefix
        self.is_away = False
        self.is_closing = False  # nothing more is leased
        self.gateways = 1  # alive, as last heard
        self.usable_until_ns = 0  # monotonic: until when what was granted to this gateway's life may be used
        self.active: dict[LeasedPart, None] = {}
        self.takes = 0


class Pace:
    """How fast a counter is drawn on, as a moving average of about half a second, and in what portions."""

    __slots__ = ("_per_second", "_since_ns", "_taken", "last_ns", "portion")

    def __init__(self) -> None:
        self._per_second = 0.0
        self._since_ns = 0
        self._taken = 0
        self.portion = 0.0  # what one request takes, about
        self.last_ns = 0  # when something was last taken (monotonic)

    def take(self, amount: int, now_ns: int) -> None:
        """Note that an amount was taken."""
        self._taken += amount
        self.portion += (amount - self.portion) * 0.125
        self.last_ns = now_ns

    def expected(self, seconds: float, kept_seconds: float, now_ns: int) -> int:
        """Give what will be taken in so many seconds: two portions at least if one was taken of late."""
        passed = (now_ns - self._since_ns) / _SECOND_NS
        if passed >= _SHORTEST_TURN_SECONDS:
            weight = min(passed / _LEARNING_SECONDS, 1.0)
            self._per_second += (self._taken / passed - self._per_second) * weight
            self._taken, self._since_ns = 0, now_ns
        if now_ns - self.last_ns > kept_seconds * _SECOND_NS:
            return 0
        return int(max(self._per_second * seconds, 2 * self.portion)) + 1
