"""Counters without a window: concurrency slots, and whole conversations."""

from typing import ClassVar, Final

from backends.processes.native import mypyc_attr
from contracts.rules.limits import LimitSpec, Rule
from gateway.limits.counters.base import CounterState, Mark

_SECOND_NS: Final = 1_000_000_000
_DAY_NS: Final = 86_400 * _SECOND_NS
_ALWAYS_NS: Final = 1 << 100  # later than any time
_SHORTEST_WAIT_NS: Final = 50_000_000  # shortest wait that is returned for a slot: less would be polling
_MAX_LEARNED: Final = 64  # number of recent requests behind the mean holding time, approximately


class Ledger(Mark):
    """Reserved and settled amounts of one period of time."""

    __slots__ = ("reserved", "settled")

    def __init__(self) -> None:
        self.reserved = 0
        self.settled = 0


@mypyc_attr(allow_interpreted_subclasses=True)  # the leased counters inherit from this class and another
class EscrowCounter:
    """Common behaviour of counters of reserved and settled amounts. The current period ends at `_until_ns`."""

    __slots__ = ("_ceiling", "_ledger", "_until_ns", "rule", "subject")

    takes_at_once: ClassVar[bool] = True

    def __init__(self, rule: Rule, subject: str) -> None:
        self.rule = rule
        self.subject = subject
        self._ceiling = rule.amount
        self._until_ns = _ALWAYS_NS
        self._ledger = Ledger()

    def room(self, now_ns: int, claimant: str = "") -> int:
        """Return how much can be taken now. May be negative. No retry slots are reserved here."""
        if now_ns >= self._until_ns:
            self._turn(now_ns)
        ledger = self._ledger
        return self._ceiling - ledger.settled - ledger.reserved

    def take(self, amount: int, now_ns: int, claimant: str = "") -> Mark:
        """Reserve `amount` now. The caller has just checked that it fits."""
        if now_ns >= self._until_ns:
            self._turn(now_ns)
        ledger = self._ledger
        ledger.reserved += amount
        return ledger

    def take_at_once(self, amount: int, now_ns: int) -> tuple[int, Mark] | None:
        """Reserve `amount` now if there is room; return the remaining amount and the mark, else `None`."""
        if now_ns >= self._until_ns:
            self._turn(now_ns)
        ledger = self._ledger
        left = self._ceiling - ledger.settled - ledger.reserved - amount
        if left < 0:
            return None
        ledger.reserved += amount
        return left, ledger

    def undo(self, mark: Mark, amount: int) -> None:
        """Undo what `take_at_once` has just reserved."""
        assert isinstance(mark, Ledger)
        mark.reserved -= amount

    def settle(self, mark: Mark, taken: int, charged: int, now_ns: int) -> None:
        """Settle the reservation that `take` returned `mark` for: charge `charged` of its `taken`, release the rest."""
        assert isinstance(mark, Ledger)
        mark.reserved -= taken
        mark.settled += charged

    def state(self, now_ns: int) -> CounterState:
        """Return the counter's state. It does not reset by time."""
        if now_ns >= self._until_ns:
            self._turn(now_ns)
        ledger = self._ledger
        return CounterState(self.rule.amount, ledger.settled + ledger.reserved, ledger.reserved, None)

    def is_idle(self, now_ns: int) -> bool:
        """Return whether nothing is reserved, and nothing settled that still counts."""
        if now_ns >= self._until_ns:
            self._turn(now_ns)
        return not self._ledger.reserved and not self._ledger.settled

    def earliest(self, amount: int, now_ns: int, from_ns: int) -> int | None:
        """Return the earliest time, not before `from_ns`, when `amount` may fit; `None` if waiting does not help."""
        return from_ns if self.room(now_ns) >= amount else None

    def _turn(self, now_ns: int) -> None:
        """Start the period that follows `_until_ns`."""


@mypyc_attr(allow_interpreted_subclasses=True)  # the leased counters inherit from this class and another
class ConcurrencyCounter(EscrowCounter):
    """Concurrency slots. They are returned whole, whatever was charged."""

    __slots__ = ("_changed_ns", "_ended", "_held_ns")

    def __init__(self, rule: LimitSpec, subject: str) -> None:
        super().__init__(rule, subject)
        self._changed_ns = 0
        self._held_ns = 0  # slot time used by ended and running requests
        self._ended = 0

    def adopt(self, rule: LimitSpec, now_ns: int) -> None:
        """Adopt a changed rule. Running requests continue; new ones wait until there is room again."""
        self.rule = rule
        self._ceiling = rule.amount

    def take(self, amount: int, now_ns: int, claimant: str = "") -> Mark:
        """Reserve slots. The caller has just checked that they are free."""
        self._pass_time(now_ns)
        self._ledger.reserved += amount
        return self._ledger

    def take_at_once(self, amount: int, now_ns: int) -> tuple[int, Mark] | None:
        """Reserve slots if that many are free; return the number left and the mark, else `None`."""
        self._pass_time(now_ns)
        return super().take_at_once(amount, now_ns)

    def settle(self, mark: Mark, taken: int, charged: int, now_ns: int) -> None:
        """Release slots."""
        self._pass_time(now_ns)
        self._ledger.reserved -= taken
        self._ended += taken
        if self._ended >= _MAX_LEARNED:
            self._ended //= 2
            self._held_ns //= 2

    def earliest(self, amount: int, now_ns: int, from_ns: int) -> int | None:
        """Estimate when slots will be free: one is released per mean holding time divided by the limit.

        The mean follows from Little's law (slot time used over slots released), so nothing is stored per request.
        """
        if amount > self._ceiling:
            return None
        lacking = amount - self.room(now_ns)
        if lacking <= 0:
            return from_ns
        self._pass_time(now_ns)
        between_ns = self._held_ns // (max(self._ended, 1) * self._ceiling)
        return max(from_ns, now_ns + max(lacking * between_ns, _SHORTEST_WAIT_NS))

    def _pass_time(self, now_ns: int) -> None:
        if now_ns > self._changed_ns:
            self._held_ns += self._ledger.reserved * (now_ns - self._changed_ns)
            self._changed_ns = now_ns


@mypyc_attr(allow_interpreted_subclasses=True)  # the leased counters inherit from this class and another
class ConversationCounter(EscrowCounter):
    """Usage of one conversation since its start. It is forgotten after a day without a charge."""

    __slots__ = ()

    def adopt(self, rule: LimitSpec, now_ns: int) -> None:
        """Adopt a changed rule."""
        self.rule = rule
        self._ceiling = rule.amount

    def take(self, amount: int, now_ns: int, claimant: str = "") -> Mark:
        """Reserve `amount` now. The caller has just checked that it fits."""
        if now_ns >= self._until_ns:
            self._turn(now_ns)
        self._until_ns = now_ns + _DAY_NS
        self._ledger.reserved += amount
        return self._ledger

    def settle(self, mark: Mark, taken: int, charged: int, now_ns: int) -> None:
        """Settle the reservation that `take` returned `mark` for: charge `charged` of its `taken`, release the rest."""
        super().settle(mark, taken, charged, now_ns)
        if mark is self._ledger:
            self._until_ns = now_ns + _DAY_NS

    def _turn(self, now_ns: int) -> None:
        if self._ledger.reserved:  # a request that runs for a day is not a day without use
            self._until_ns = now_ns + _DAY_NS
            return
        self._ledger = Ledger()
        self._until_ns = _ALWAYS_NS
