"""Shared state of leased counters: whether Redis is reachable, and which counters have to report something."""

from collections.abc import Sequence
from typing import Any, Final, Protocol

from backends.counters.batch_sender import Keys
from backends.counters.server_clock import ServerClock

_SECOND_NS: Final = 1_000_000_000
_LEARNING_SECONDS: Final = 0.5
_SHORTEST_TURN_SECONDS: Final = 0.02
_SPAN_SECONDS: Final = 60  # history considered, and time without Redis that a lease should cover
_STEP_SECONDS: Final = 5
_STEPS: Final = _SPAN_SECONDS // _STEP_SECONDS
_MARGIN: Final = 1.5  # the next minute may need more than the last
_LATE_SECONDS: Final = 10  # an increase this recent counts as if it had lasted the whole minute
_RESTING_SECONDS: Final = 3600.0  # time since the last use for which a small lease is kept
_RESTING_PORTIONS: Final = 4


class LeasedAmount(Protocol):
    """The amounts stored under one key of Redis: a window, or one period of an escrow counter."""

    def pack(self, keys: Keys, need: int, is_seek: bool) -> list[object]:
        """Return the line to send for the current state, including surplus that is returned."""

    def deliver(self, result: Sequence[Any]) -> None:
        """Accept the amounts that Redis granted."""

    def undo(self) -> None:
        """Revert the effects of `pack`."""

    def is_due(self, now_ns: int) -> bool:
        """Return whether there is something to report or to request now (monotonic time)."""

    def is_settled(self) -> bool:
        """Return whether nothing is to be reported and nothing is leased, so that no check is needed."""

    def forget_grants(self, *, keeps_lease: bool = False) -> None:
        """Stop using amounts that Redis granted to this gateway's session: Redis has ended the session.

        With `keeps_lease`, amounts granted under a budget lease stay valid.
        """

    def forget_data(self) -> None:
        """Assume that Redis has lost this data, and report it again."""


class LeaseConnection:
    """This gateway's connection state with Redis, and its counters with pending work."""

    __slots__ = (
        "active",
        "clock",
        "gateways",
        "is_away",
        "is_closing",
        "lease_until_ns",
        "prefix",
        "takes",
        "usable_until_ns",
    )

    def __init__(self, clock: ServerClock, prefix: str) -> None:
        self.clock = clock
        self.prefix = prefix
        self.is_away = False
        self.is_closing = False  # no further leases are requested
        self.gateways = 1  # number alive, as last reported
        self.usable_until_ns = 0  # monotonic: until when grants to this gateway's session may be used
        self.lease_until_ns = 0  # the same for leases on budgets
        self.active: dict[LeasedAmount, None] = {}
        self.takes = 0


class Pace:
    """How fast a counter is used, as a moving average of about half a second, and in what portions."""

    __slots__ = ("_per_second", "_since_ns", "_taken", "last_ns", "portion")

    def __init__(self) -> None:
        self._per_second = 0.0
        self._since_ns = 0
        self._taken = 0
        self.portion = 0.0  # approximate amount of one request
        self.last_ns = 0  # time of the last use (monotonic)

    def take(self, amount: int, now_ns: int) -> None:
        """Record that an amount was taken."""
        self._taken += amount
        self.portion += (amount - self.portion) * 0.125
        self.last_ns = now_ns

    def expected(self, seconds: float, kept_seconds: float, now_ns: int) -> int:
        """Return the amount expected to be taken in `seconds`: at least two portions if one was taken recently."""
        passed = (now_ns - self._since_ns) / _SECOND_NS
        if passed >= _SHORTEST_TURN_SECONDS:
            weight = min(passed / _LEARNING_SECONDS, 1.0)
            self._per_second += (self._taken / passed - self._per_second) * weight
            self._taken, self._since_ns = 0, now_ns
        if now_ns - self.last_ns > kept_seconds * _SECOND_NS:
            return 0
        return int(max(self._per_second * seconds, 2 * self.portion)) + 1


class Consumption:
    """A budget's use in the last minute, and the expected need of the next.

    `level` is the settled plus reserved amount: it rises when an amount is taken and falls when some is released.
    """

    __slots__ = ("_largest", "_levels", "_peak", "_peaks", "_step", "last_ns")

    def __init__(self) -> None:
        self._levels: list[tuple[int, int]] = []  # at the first use within a step: time, and the level before it
        self._peaks: list[tuple[int, int]] = []  # the maximum reserved within a step
        self._step = -1
        self._peak = 0
        self._largest = 0  # largest amount of a single request
        self.last_ns = 0  # time of the last use (monotonic); 0: never

    def note(self, taken: int, level: int, reserved: int, now_ns: int) -> None:
        """Record that `taken` is about to be taken at this level, with `reserved` reserved."""
        step = now_ns // (_STEP_SECONDS * _SECOND_NS)
        if step != self._step:
            self._end_step(step)
        if not self._levels or self._levels[-1][0] < step * _STEP_SECONDS * _SECOND_NS:
            self._levels.append((now_ns, level))
        self._peak = max(self._peak, reserved + taken)
        self._largest = max(self._largest, taken)
        self.last_ns = now_ns

    def is_resting(self, now_ns: int) -> bool:
        """Return whether nothing was taken for a minute."""
        return not self.last_ns or now_ns - self.last_ns > _SPAN_SECONDS * _SECOND_NS

    def minute(self, level: int, now_ns: int) -> int:
        """Return what the next minute may need beyond what is in use, by the use of the last minute."""
        if self.is_resting(now_ns):
            return 0
        now = now_ns // (_STEP_SECONDS * _SECOND_NS)
        if now != self._step:
            self._end_step(now)
        most = 0.0
        late_ns = now_ns - _LATE_SECONDS * _SECOND_NS
        late = next((each for each in self._levels if each[0] >= late_ns), None)
        for began_ns, before in (*self._levels[:1], *(() if late is None else (late,))):
            most = max(most, (level - before) / max((now_ns - began_ns) / _SECOND_NS, _STEP_SECONDS))
        peak = max([self._peak, *(peak for _, peak in self._peaks)])
        return int(_MARGIN * most * _SPAN_SECONDS) + peak + 2 * self._largest

    def resting(self, now_ns: int) -> int:
        """Return the amount to keep leased while the budget is not used, so that the first requests after a pause need
        not wait.
        """
        if not self.last_ns or now_ns - self.last_ns > _RESTING_SECONDS * _SECOND_NS:
            return 0
        return _RESTING_PORTIONS * self._largest

    def _end_step(self, now: int) -> None:
        if self._step >= 0:
            self._peaks.append((self._step, self._peak))
        self._step, self._peak = now, 0
        oldest = now - _STEPS
        self._levels = [each for each in self._levels if each[0] >= oldest * _STEP_SECONDS * _SECOND_NS]
        self._peaks = [each for each in self._peaks if each[0] >= oldest]
