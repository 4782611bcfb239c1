"""Counters in this process's memory, for an installation with one gateway process."""

import asyncio
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from backends.processes.beat import until_beat
from contracts.rules.limits import BudgetSpec, LimitSpec, Rule
from gateway.limits.budgets.budget import BudgetCounter, OnSettled, OnSettledLate
from gateway.limits.counters.base import Counter, Line, Shortage
from gateway.limits.counters.escrow import ConcurrencyCounter, ConversationCounter, EscrowCounter
from gateway.limits.counters.retry_slots import MAX_SLOTS_OF_ONE, RetrySlot
from gateway.limits.counters.sliding import SlidingCounter

_LimitCounter: TypeAlias = SlidingCounter | ConcurrencyCounter | ConversationCounter
_Name: TypeAlias = tuple[str, str]  # rule id, subject

_SECOND_NS: Final = 1_000_000_000
_MILLISECOND_NS: Final = 1_000_000
_ROUND_SECONDS: Final = 5.0  # period in which every counter is checked once
_TURN_SECONDS: Final = 0.25
_SHORT_TURN_SECONDS: Final = 0.05  # used if there are many counters
_MOST_A_TURN: Final = 1000  # counters checked in one turn of the event loop: below a millisecond
_GENERATION_NS: Final = 600 * _SECOND_NS
_UNOWNED: Final = 3  # references to a counter that only the store holds: its own, the sweep's, getrefcount's
_MAX_ROUNDS: Final = 100


class MemoryStore:
    """Counters by rule and subject, created on first use and forgotten when idle.

    A counter that a caller still references is not forgotten, whatever its count: otherwise there would be two counters
    with the whole amount each. `generation` changes every ten minutes while there are such counters, so that callers
    release them.
    """

    is_shared = False
    has_leases = True  # nothing is leased

    def __init__(
        self,
        on_settled: OnSettled | None = None,
        on_settled_late: OnSettledLate | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.generation = 0
        self._on_settled = on_settled
        self._on_settled_late = on_settled_late
        self._clock = clock
        self._limits: dict[_Name, _LimitCounter] = {}
        self._budgets: dict[_Name, BudgetCounter] = {}
        self._to_visit: deque[tuple[bool, _Name]] = deque()  # whether it is a budget, and its name: each counter once
        self._holders: dict[int, SlidingCounter] = {}  # counters that may have retry slots, by identity
        self._idle_in_hand = 0
        self._generation_moved_ns = clock()

    def open(self, rule: Rule, subject: str) -> Counter:
        """Return the counter of a rule and a subject: the same object as long as it is not idle.

        If the rule's amount, window or period has changed, the count continues; with another metric it is new. Raises
        ConfigurationError if a budget's time zone is unknown.
        """
        if isinstance(rule, LimitSpec):
            limit = self._limits.get((rule.id, subject))
            if limit is None or limit.rule is not rule:
                limit = self._open_limit(rule, subject, limit)
            return limit
        return self.open_budget(rule, subject)

    def open_budget(self, rule: BudgetSpec, subject: str) -> BudgetCounter:
        """Return the counter of a budget and a subject, as `open` does."""
        budget = self._budgets.get((rule.id, subject))
        if budget is None or budget.rule is not rule:
            budget = self._open_budget(rule, subject, budget)
        return budget

    async def start(self) -> None:
        """Do nothing: there are no other gateways to join."""

    async def seek_room(
        self,
        lines: Sequence[Line],
        claimant: str,
        now_ns: int,
        *,
        may_claim: bool = True,
        most_places: int = MAX_SLOTS_OF_ONE,
        least: Sequence[Line] = (),
    ) -> Shortage | None:
        """Return `None` if all lines have room now; else the shortage, and until when the claimant's retry slot is
        reserved.

        A slot is reserved at every sliding counter of the request, for the time at which it fits into all of them. No
        slot can be reserved if concurrency or a budget is short: the wait for concurrency is an estimate. Never waits.
        """
        ours = [(_own(counter), amount) for counter, amount in lines]
        name = claimant if may_claim else ""
        short = [(counter, amount) for counter, amount in ours if counter.room(now_ns, name) < amount]
        if not short or (name and (_fits_place(short, dict(least), name, now_ns) or _make_way(short, name, now_ns))):
            return None
        return self._shortage(ours, short, claimant, name, now_ns, most_places)

    def _shortage(
        self,
        ours: "list[tuple[_OwnCounter, int]]",
        short: "list[tuple[_OwnCounter, int]]",
        claimant: str,
        name: str,
        now_ns: int,
        most_places: int,
    ) -> Shortage:
        """Return the counter with the longest shortage; reserve a retry slot for the claimant if possible.

        `name` is the claimant's, if it may use a slot that is reserved for it.
        """
        last, asked, due_ns = short[0][0], short[0][1], now_ns
        for counter, amount in short:
            free_ns = counter.earliest(amount, now_ns, now_ns)
            if free_ns is None:
                return Shortage(counter, amount, counter.state(now_ns), None)
            if free_ns > due_ns:
                last, asked, due_ns = counter, amount, free_ns
        common_ns = _common_moment(ours, now_ns, due_ns)
        due_ns = due_ns if common_ns is None else common_ns
        is_held = False
        if common_ns is not None and all(isinstance(counter, SlidingCounter) for counter, _ in short):
            is_held = self._hold(ours, claimant, now_ns, due_ns, most_places)
            own_ns = None if is_held or not name else _own_turn(short, name, now_ns)
            if own_ns is not None:
                is_held, due_ns = True, own_ns
        return Shortage(last, asked, last.state(now_ns), (due_ns - now_ns) / _SECOND_NS, is_held)

    async def run(self) -> None:
        """Forget idle counters, a bounded number in one turn of the event loop, until cancelled."""
        while True:
            a_second = len(self._to_visit) / _ROUND_SECONDS
            turn = _TURN_SECONDS if a_second * _TURN_SECONDS < _MOST_A_TURN else _SHORT_TURN_SECONDS
            self.forget_idle(min(_MOST_A_TURN, int(a_second * turn) + 1))
            await asyncio.sleep(until_beat(turn))

    async def close(self) -> None:
        """Do nothing: there are no leases to release."""

    def status(self) -> dict[str, object]:
        """Return the number of counters and of reserved retry slots."""
        now_ns = self._clock()
        places = 0
        for name, holder in list(self._holders.items()):
            held = holder.retry_slots(now_ns)
            places += held
            if not held:
                del self._holders[name]
        return {"kind": "memory", "counters": len(self._limits) + len(self._budgets), "retry_slots": places}

    def open_window(self, rule: LimitSpec, subject: str) -> SlidingCounter:
        """Return the counter of a limit with a window and a subject, as `open` does."""
        counter = self.open(rule, subject)
        assert isinstance(counter, SlidingCounter)
        return counter

    def windows(self) -> Iterator[SlidingCounter]:
        """Yield the counters of sliding windows, for persisting their charges."""
        return iter([counter for counter in self._limits.values() if isinstance(counter, SlidingCounter)])

    def budgets(self) -> Iterator[BudgetCounter]:
        """Yield the counters of budgets, for persisting their totals."""
        return iter(list(self._budgets.values()))

    def forget_idle(self, most: int) -> None:
        """Check the next `most` counters and forget those that are idle and not referenced by a caller."""
        now_ns = self._clock()
        for _ in range(min(most, len(self._to_visit))):
            entry = self._to_visit.popleft()
            is_budget, name = entry
            counter = self._budgets[name] if is_budget else self._limits[name]
            if not counter.is_idle(now_ns):
                self._to_visit.append(entry)
                continue
            self._holders.pop(id(counter), None)
            if sys.getrefcount(counter) > _UNOWNED:
                self._to_visit.append(entry)
                self._idle_in_hand += 1
            elif is_budget:
                del self._budgets[name]
            else:
                del self._limits[name]
        if self._idle_in_hand and now_ns - self._generation_moved_ns >= _GENERATION_NS:
            self.generation += 1
            self._generation_moved_ns = now_ns
            self._idle_in_hand = 0

    def _open_limit(self, rule: LimitSpec, subject: str, known: _LimitCounter | None) -> _LimitCounter:
        kind = _kind_of(rule)
        if known is not None and type(known) is kind and known.rule.metric == rule.metric:
            known.adopt(rule, self._clock())
            return known
        name = (rule.id, subject)
        if known is None:
            self._to_visit.append((False, name))
        counter = self._limits[name] = kind(rule, subject)
        return counter

    def _open_budget(self, rule: BudgetSpec, subject: str, known: BudgetCounter | None) -> BudgetCounter:
        if known is not None and known.rule.metric == rule.metric:
            known.adopt(rule, self._clock())
            return known
        name = (rule.id, subject)
        if known is None:
            self._to_visit.append((True, name))
        counter = self._budgets[name] = BudgetCounter(rule, subject, self._on_settled, self._on_settled_late)
        return counter

    def _hold(
        self, ours: Sequence[tuple["_OwnCounter", int]], claimant: str, now_ns: int, due_ns: int, most: int
    ) -> bool:
        sliding = [(counter, amount) for counter, amount in ours if isinstance(counter, SlidingCounter)]
        if not all(counter.may_hold(claimant, now_ns, due_ns, most) for counter, _ in sliding):
            return False
        for counter, amount in sliding:
            counter.hold(claimant, amount, due_ns)
            self._holders[id(counter)] = counter
        return True


def _fits_place(
    short: Sequence[tuple["_OwnCounter", int]], least: dict[Counter, int], claimant: str, now_ns: int
) -> bool:
    """Return whether the claimant's due retry slots have room for its minimum at each counter that is short."""
    for counter, asked in short:
        room = counter.room(now_ns, claimant)
        if room < least.get(counter, asked) or room <= counter.room(now_ns):
            return False
    return True


def _make_way(short: Sequence[tuple["_OwnCounter", int]], claimant: str, now_ns: int) -> bool:
    """Let a claimant that retries early use up its own later slots; return whether it then has room."""
    given: list[tuple[SlidingCounter, list[RetrySlot]]] = []
    for counter, amount in short:
        places = counter.make_way(claimant, amount, now_ns) if isinstance(counter, SlidingCounter) else None
        if places is None:
            for before, kept in given:
                before.hold_again(kept)
            return False
        assert isinstance(counter, SlidingCounter)
        given.append((counter, places))
    return True


def _own_turn(short: Sequence[tuple["_OwnCounter", int]], claimant: str, now_ns: int) -> int | None:
    """Return when the claimant's next slot is due, if it has one at each counter that is short."""
    turns = [
        counter.next_slot(claimant, amount, now_ns) for counter, amount in short if isinstance(counter, SlidingCounter)
    ]
    known = [turn for turn in turns if turn is not None]
    return max(known) if known and len(known) == len(turns) else None


_OwnCounter: TypeAlias = SlidingCounter | EscrowCounter


def _kind_of(rule: LimitSpec) -> type[_LimitCounter]:
    if rule.window is not None:
        return SlidingCounter
    return ConversationCounter if rule.scope.level == "conversation" else ConcurrencyCounter


def _own(counter: Counter) -> _OwnCounter:
    assert isinstance(counter, SlidingCounter | EscrowCounter), "a counter of another store"
    return counter


def _common_moment(lines: Sequence[tuple[_OwnCounter, int]], now_ns: int, from_ns: int) -> int | None:
    """Return the earliest time, not before `from_ns`, from which on all lines fit; `None` if none was found.

    It is a whole number of milliseconds from now, as clients are told, so that a client is never early for its slot.
    """
    agreed_ns = from_ns
    for _ in range(_MAX_ROUNDS):
        agreed_ns = moment_ns = now_ns - (now_ns - agreed_ns) // _MILLISECOND_NS * _MILLISECOND_NS
        for counter, amount in lines:
            free_ns = counter.earliest(amount, now_ns, agreed_ns)
            if free_ns is None:
                return None
            agreed_ns = free_ns
        if agreed_ns == moment_ns:
            return moment_ns
    return None
