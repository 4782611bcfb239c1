"""The seam between what counts (counters, in memory or shared through Redis) and what is counted (reservations).

A counter belongs to one rule and one subject. The hot path is synchronous: within one turn of the event loop a
caller asks every counter of a request for `room` and, where all have it, takes from each: all levels or none.
Counters shared between gateways answer from what was leased to this one; `CounterStore.seek_room` fetches more.

Times are Unix nanoseconds as this process sees them; they may be told out of order by a little and never go back
for a counter: an earlier time than the last counts as the last.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeAlias

import msgspec

from backends.processes.native import mypyc_attr
from contracts.rules.limits import Rule


@mypyc_attr(allow_interpreted_subclasses=True)
class Mark:
    """Where an amount was charged: what a counter needs to give part of it back to the same window. Opaque."""

    __slots__ = ()


class CounterState(msgspec.Struct, frozen=True, gc=False):
    """How a counter stands, for headers, messages and pages. Amounts in the metric's base unit.

    `used` includes what is reserved. `reset_seconds` is when everything used now will have left the window (or the
    period ends); `None` for what does not reset by time.
    """

    amount: int
    used: int
    reserved: int
    reset_seconds: float | None

    @property
    def remaining(self) -> int:
        """Return what is left, never below zero."""
        return max(self.amount - self.used, 0)


class Counter(Protocol):
    """One rule's count of one subject.

    Invariants, whatever the order of calls: nothing counted is ever negative; in every window (or period) the sum of
    what is charged, reservations at their full height, is at most the rule's amount; a refund goes to the window that
    was charged, and does nothing once that has passed.
    """

    takes_at_once: ClassVar[bool]
    """Say whether it is a QuickCounter."""

    @property
    def rule(self) -> Rule: ...
    @property
    def subject(self) -> str: ...

    def room(self, now_ns: int, claimant: str = "") -> int:
        """Return how much could be taken at this moment, with what is held for `claimant` now. May be negative."""

    def take(self, amount: int, now_ns: int, claimant: str = "") -> Mark:
        """Charge `amount` now, first from what is reserved for `claimant`. The caller has checked that it fits."""

    def settle(self, mark: Mark, taken: int, charged: int, now_ns: int) -> None:
        """End a charge of `taken` made under `mark`: `charged` (0 to `taken`) stays, the rest is given back."""

    def state(self, now_ns: int) -> CounterState:
        """Return how the counter stands as far as this process knows."""

    def is_idle(self, now_ns: int) -> bool:
        """Return whether forgetting the counter would lose nothing: nothing is charged, reserved or held."""


class QuickCounter(Counter, Protocol):
    """A counter of this process alone, which needs no second look: it is charged in the call that asks for room."""

    def undo(self, mark: Mark, amount: int) -> None:
        """Revert an immediate charge that was just made."""

    def resets_at_ns(self) -> int:
        """Return when what was charged just now will have left the window (Unix); without a window 0."""


class LoneQuickCounter(QuickCounter, Protocol):
    """One of a kind that is asked by itself; sliding windows and budgets are asked several in one call."""

    def take_at_once(self, amount: int, now_ns: int) -> tuple[int, Mark] | None:
        """Charge `amount` now; return what is left, and the mark.

        `None`, with nothing charged, without the room, and where anything is held for anyone.
        """


Line: TypeAlias = tuple[Counter, int]  # a counter and the amount asked of it


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why a request cannot begin now: the counter that is short for the longest, and for how long.

    `wait_seconds` is `None` if waiting does not help by itself: the amount is above the limit, or a budget without a
    next period. `is_held` says that the place is kept: who comes back after that time is admitted. `share` is set where
    this gateway may use only that much of the amount, since it cannot ask what the others use. `choices` is set if
    `asked` is the least that this many choices need.
    """

    counter: Counter
    asked: int
    state: CounterState
    wait_seconds: float | None
    is_held: bool = False
    reason: str = ""  # in words, where something other than the count refuses: "the shared counters are away"
    share: int | None = None
    choices: int = 0


class CounterStore(Protocol):
    """Where counters live: this process's memory, or Redis for several gateways (`is_shared`).

    `generation` moves when idle counters have been forgotten: the one that keeps counters then opens them again.
    """

    generation: int
    is_shared: bool

    def open(self, rule: Rule, subject: str) -> Counter:
        """Return the counter of a rule and a subject: the same one as long as it is not idle.

        Rules are told apart by id. Where a rule has changed its amount, the count goes on under the new one.
        """

    async def start(self) -> None:
        """Join the other gateways that count here. Raises ConfigurationError if one of them has this name."""

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
        """Try to get room for all lines; `None` if `room` now says yes for each (the caller takes at once).

        Otherwise finds the earliest moment when all lines fit, in view of what is held for others, and holds the place
        for `claimant` (a key's id; empty: hold nothing). With `may_claim` False the request is a new one, which leaves
        to others what is held for them under the same name; otherwise who comes before its time is not kept out by its
        own places, which it then gives up. With `most_places` held already no further one is, and the claimant is told
        of its next. Whoever has a place that is due is content with `least`, should that be all it holds by now (line
        by line as in `lines`): `None` then means room for that much. Memory never waits here; Redis makes a round trip.
        """

    async def run(self) -> None:
        """Work in the background until cancelled: leases, reports, forgetting idle counters."""

    async def close(self) -> None:
        """Release what is leased and not used."""

    def status(self) -> dict[str, object]:
        """Return what GET /ready shows of it."""

    @property
    def has_leases(self) -> bool:
        """Return whether any hard budget in use may be charged. In memory: always."""
