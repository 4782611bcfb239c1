"""The interface between counters (in memory, or shared through Redis) and reservations.

A counter belongs to one rule and one subject. The hot path is synchronous: within one turn of the event loop a caller
asks each counter of a request for `room`, and if all have it, takes from each: from all levels or from none. Counters
shared between gateways answer from this gateway's lease; `CounterStore.seek_room` requests more.

Times are Unix nanoseconds of this process. They may arrive slightly out of order: a counter treats a time earlier than
its last one as the last one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeAlias

import msgspec

from backends.processes.native import mypyc_attr
from contracts.rules.limits import Rule


@mypyc_attr(allow_interpreted_subclasses=True)
class Mark:
    """Where an amount was charged: what a counter needs to refund part of it to the same window. Opaque."""

    __slots__ = ()


class CounterState(msgspec.Struct, frozen=True, gc=False):
    """A counter's state, for headers, messages and pages. Amounts are in the metric's base unit.

    `used` includes reserved amounts. `reset_seconds` is the time until everything used now has left the window (or the
    period ends); `None` if the counter does not reset by time.
    """

    amount: int
    used: int
    reserved: int
    reset_seconds: float | None

    @property
    def remaining(self) -> int:
        """Return the remaining amount, at least 0."""
        return max(self.amount - self.used, 0)


class Counter(Protocol):
    """The count of one rule for one subject.

    Invariants, in any order of calls: no count is negative; in every window (or period) the sum of the charges, with
    reservations at their full amount, is at most the rule's amount; a refund goes to the window that was charged, and
    does nothing once that has passed.
    """

    takes_at_once: ClassVar[bool]
    """Say whether it is a QuickCounter."""

    @property
    def rule(self) -> Rule: ...
    @property
    def subject(self) -> str: ...

    def room(self, now_ns: int, claimant: str = "") -> int:
        """Return how much can be taken now, including what is reserved for `claimant`. May be negative."""

    def take(self, amount: int, now_ns: int, claimant: str = "") -> Mark:
        """Charge `amount` now, first from what is reserved for `claimant`. The caller has checked that it fits."""

    def settle(self, mark: Mark, taken: int, charged: int, now_ns: int) -> None:
        """Settle the charge that `take` returned `mark` for: keep `charged` of its `taken`, refund the rest."""

    def state(self, now_ns: int) -> CounterState:
        """Return the counter's state as far as this process knows it."""

    def is_idle(self, now_ns: int) -> bool:
        """Return whether the counter can be forgotten without loss: nothing is charged or reserved."""


class QuickCounter(Counter, Protocol):
    """A counter of this process alone. It is charged in the call that asks for room."""

    def undo(self, mark: Mark, amount: int) -> None:
        """Revert an immediate charge that was just made."""


class LoneQuickCounter(QuickCounter, Protocol):
    """A quick counter that is asked on its own; sliding windows and budgets are asked in groups by one call."""

    def take_at_once(self, amount: int, now_ns: int) -> tuple[int, Mark] | None:
        """Charge `amount` now; return the remaining amount and the mark.

        Return `None` and charge nothing without room, or if a retry slot is reserved for anyone.
        """


Line: TypeAlias = tuple[Counter, int]  # a counter and the requested amount


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why a request cannot start now: the counter with the longest shortage, and its duration.

    `wait_seconds` is `None` if waiting does not help: the amount is above the limit, or the budget has no next period.
    `is_held` says that a retry slot is reserved: a retry after that time is admitted. `share` is set if this gateway
    may use only that part of the amount, because it cannot learn what others use. `choices` is set if `asked` is the
    minimum that this many choices need.
    """

    counter: Counter
    asked: int
    state: CounterState
    wait_seconds: float | None
    is_held: bool = False
    reason: str = ""  # in words, if something other than the count refuses: "the shared counters are unreachable"
    share: int | None = None
    choices: int = 0


class CounterStore(Protocol):
    """Storage of counters: this process's memory, or Redis for several gateways (`is_shared`).

    `generation` changes when idle counters have been forgotten: callers that keep counters then open them again.
    """

    generation: int
    is_shared: bool

    def open(self, rule: Rule, subject: str) -> Counter:
        """Return the counter of a rule and a subject: the same object as long as it is not idle.

        Rules are identified by id. If a rule's amount has changed, the count continues under the new amount.
        """

    async def start(self) -> None:
        """Join the other gateways that share the counters. Raises ConfigurationError if one has the same name."""

    async def seek_room(
        self,
        lines: Sequence[Line],
        claimant: str,
        now_ns: int,
        *,
        may_claim: bool = True,
        most_places: int = 256,
        least: Sequence[Line] = (),
    ) -> Shortage | None:
        """Try to get room for all lines; `None` if `room` is now sufficient for each (the caller takes at once).

        Otherwise find the earliest time at which all lines fit, considering other reserved retry slots, and reserve a
        slot for `claimant` (a key's id; empty: reserve nothing).

        - If `may_claim` is False, the request is a new one: it leaves slots reserved under the same name to retries.
          Otherwise a claimant that retries early is not blocked by its own slots; it gives them up.
        - A claimant that has `most_places` slots gets no further one, and the time of its next slot is returned.
        - A claimant with a due slot accepts `least` (one amount for each of `lines`) if its slot holds no more: `None`
          then means that there is room for that much.

        The memory store never waits; the Redis store makes a round trip.
        """

    async def run(self) -> None:
        """Run background work until cancelled: leases, reports, forgetting idle counters."""

    async def close(self) -> None:
        """Release leases that are not used."""

    def status(self) -> dict[str, object]:
        """Return the state that GET /ready shows."""

    @property
    def has_leases(self) -> bool:
        """Return whether any hard budget in use can be charged. In memory: always."""
