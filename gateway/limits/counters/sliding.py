"""Sliding-window counters: any window of the rule's length, at any start, is charged at most the rule's amount.

Time is divided into buckets. A window that ends within a bucket overlaps that bucket and the preceding ones that make
up its length; their sum bounds every such window. So a counter may refuse up to one bucket's worth of time too early,
and never allows too much.
"""

from collections.abc import Sequence
from typing import ClassVar, Final, TypeAlias

from contracts.rules.limits import LimitSpec, Window
from gateway.limits.counters.base import CounterState, Mark
from gateway.limits.counters.retry_slots import MAX_SECONDS_AHEAD, MAX_SLOTS_OF_ONE, RetrySlot, RetrySlots
from gateway.limits.demand import Amounts

_MILLISECOND_NS: Final = 1_000_000
_SECOND_NS: Final = 1_000_000_000
_MINUTE_NS: Final = 60 * _SECOND_NS

# Buckets per window, the length of one, and the grace period: how long a slot stays reserved once it is due. A client
# is late by its network latency and, if it reads only Retry-After, by the rounding up to a second.
_GRIDS: Final[dict[Window, tuple[int, int, int]]] = {
    "second": (40, 25 * _MILLISECOND_NS, 250 * _MILLISECOND_NS),
    "minute": (60, _SECOND_NS, 1500 * _MILLISECOND_NS),
    "hour": (60, _MINUTE_NS, 1500 * _MILLISECOND_NS),
    "day": (96, 15 * _MINUTE_NS, 1500 * _MILLISECOND_NS),
}
_LEFT: Final = -1  # the bucket of a cell that has left every window
_FEW: Final = 16
_MAX_REMEMBERED: Final = 64


class Cell(Mark):
    """The charges of one bucket, and how much of them is settled. `following` is the next later cell."""

    __slots__ = ("amount", "bucket", "following", "settled")

    def __init__(self, bucket: int, amount: int) -> None:
        self.bucket = bucket
        self.amount = amount
        self.settled = 0
        self.following: Cell | None = None


class SlidingCounter:
    """The count of one limit for one subject over its sliding window."""

    __slots__ = (
        "_amount",
        "_bucket",
        "_buckets",
        "_cell",
        "_first",
        "_grace",
        "_held",
        "_last",
        "_remembered",
        "_total",
        "_until_ns",
        "_width_ns",
        "_window",
        "rule",
        "subject",
    )

    takes_at_once: ClassVar[bool] = True

    def __init__(self, rule: LimitSpec, subject: str) -> None:
        assert rule.window is not None
        self.rule: LimitSpec = rule
        self.subject = subject
        self._amount = rule.amount
        self._window: Window = rule.window
        self._buckets, self._width_ns, grace_ns = _GRIDS[rule.window]
        self._grace = -(-grace_ns // self._width_ns)  # in buckets
        self._bucket = 0  # the latest seen: time never goes back
        self._until_ns = 0  # end of that bucket
        self._total = 0  # charged in the window that ends now
        self._first: Cell | None = None
        self._last: Cell | None = None
        self._cell: Cell | None = None  # the last, if it is this bucket's
        self._held: RetrySlots | None = None
        self._remembered: dict[int, int] | None = None

    def room(self, now_ns: int, claimant: str = "") -> int:
        """Return how much can be taken now, including what is reserved for `claimant`. May be negative."""
        if now_ns >= self._until_ns:
            self._move_to(now_ns)
        if self._held is None:
            return self._amount - self._total
        return self._room_beside_held(now_ns, claimant)

    def take(self, amount: int, now_ns: int, claimant: str = "") -> Mark:
        """Charge `amount` now, first from what is reserved for `claimant`. The caller has just checked that it fits."""
        if now_ns >= self._until_ns:
            self._move_to(now_ns)
        if self._held is not None:
            self._held.claim(claimant, amount, self._not_before(now_ns))
            self._remembered = None
        return self._charge(amount)

    def undo(self, mark: Mark, amount: int) -> None:
        """Revert what `take_each` has just charged."""
        self.settle(mark, amount, 0, 0)

    def resets_at_ns(self) -> int:
        """Return when the amount charged just now will have left the window (Unix nanoseconds)."""
        return self._until_ns + self._buckets * self._width_ns

    def settle(self, mark: Mark, taken: int, charged: int, now_ns: int) -> None:
        """Settle the charge that `take` returned `mark` for: keep `charged` of its `taken`, refund the rest."""
        assert type(mark) is Cell
        if mark.bucket == _LEFT:
            return
        mark.settled += charged
        back = taken - charged
        if back:
            mark.amount -= back
            self._total -= back
            self._remembered = None

    def state(self, now_ns: int) -> CounterState:
        """Return the counter's state. It resets when the last bucket with a charge has left the window."""
        if now_ns >= self._until_ns:
            self._move_to(now_ns)
        if not self._total:
            return CounterState(self._amount, 0, 0, 0.0)
        reserved, cell = 0, self._first
        while cell is not None:
            reserved += cell.amount - cell.settled
            cell = cell.following
        last = self._last
        assert last is not None
        charged = last.bucket
        if not last.amount:
            cell = self._first
            while cell is not None:
                charged = cell.bucket if cell.amount else charged
                cell = cell.following
        gone_ns = (charged + self._buckets + 1) * self._width_ns
        now_ns = max(now_ns, self._bucket * self._width_ns)
        return CounterState(self._amount, self._total, reserved, (gone_ns - now_ns) / _SECOND_NS)

    def is_idle(self, now_ns: int) -> bool:
        """Return whether nothing is charged in the window that ends now, and no retry slot is reserved."""
        if now_ns >= self._until_ns:
            self._move_to(now_ns)
        return not self._total and not self.retry_slots(now_ns)

    def charges(self, now_ns: int) -> list[tuple[int, int]]:
        """Return the charges of the window that ends now, by bucket: (bucket number since 1970, amount)."""
        self.room(now_ns)  # drops what has left the window
        found: list[tuple[int, int]] = []
        cell = self._first
        while cell is not None:
            if cell.amount:
                found.append((cell.bucket, cell.amount))
            cell = cell.following
        return found

    def restore(self, charges: list[tuple[int, int]], now_ns: int) -> None:
        """Charge a new counter with the result of `charges` before a restart; amounts reserved then stay charged.

        A charge later than now comes from another clock: it counts as charged now.
        """
        for bucket, amount in sorted(charges):
            self.take(amount, min(bucket * self._width_ns, now_ns))
        cell = self._first
        while cell is not None:
            cell.settled = cell.amount
            cell = cell.following

    def adopt(self, rule: LimitSpec, now_ns: int) -> None:
        """Adopt a changed rule. Charges are kept; retry slots are dropped if the window's length changes."""
        if rule.window is not None and rule.window != self._window:
            self._regrid(rule.window, now_ns)
        self.rule = rule
        self._amount = rule.amount
        self._remembered = None

    def retry_slots(self, now_ns: int) -> int:
        """Return the number of reserved retry slots."""
        held = self._held
        if held is None:
            return 0
        if held.drop_lapsed(self._not_before(now_ns)):
            self._remembered = None
        if not held.count:
            self._held = None
        return held.count

    def may_hold(self, claimant: str, now_ns: int, due_ns: int, most: int = MAX_SLOTS_OF_ONE) -> bool:
        """Return whether a slot with this due time may be reserved for a claimant. Number and wait are bounded."""
        if not claimant or due_ns - now_ns > MAX_SECONDS_AHEAD * _SECOND_NS:
            return False
        return self._held is None or self._held.may_add(claimant, most)

    def next_slot(self, claimant: str, amount: int, now_ns: int) -> int | None:
        """Return when the claimant's first later slot with room for `amount` is due; `None` if there is none."""
        later = self._held.later(claimant, self._not_before(now_ns)) if self._held is not None else []
        return next((place.due_ns for place in later if place.amount >= amount), None)

    def make_way(self, claimant: str, amount: int, now_ns: int) -> list[RetrySlot] | None:
        """Release a claimant's later slots, as few as needed, so that `amount` fits now; return the released slots.

        A client that retries early is not blocked by its own slots. Return `None` and keep all if releasing them does
        not help.
        """
        held = self._held
        given: list[RetrySlot] = []
        for place in held.later(claimant, self._not_before(now_ns)) if held is not None else []:
            if self.room(now_ns, claimant) >= amount:
                break
            given.append(RetrySlot(claimant, place.amount, place.bucket, place.due_ns, place.until_ns))
            assert held is not None
            held.give_up(place)
            self._remembered = None
        if self.room(now_ns, claimant) >= amount:
            return given
        self.hold_again(given)
        return None

    def hold_again(self, places: list[RetrySlot]) -> None:
        """Reserve the slots that `make_way` released again."""
        for place in places:
            if self._held is None:
                self._held = RetrySlots()
            self._held.add(place)

    def hold(self, claimant: str, amount: int, due_ns: int) -> None:
        """Reserve a slot for a time that `earliest` has just returned."""
        if self._held is None:
            self._held = RetrySlots()
        until_ns = due_ns + _GRIDS[self._window][2]
        self._held.add(RetrySlot(claimant, amount, due_ns // self._width_ns, due_ns, until_ns))
        # The remembered value stays a lower bound: one more slot can only make the wait longer.

    def earliest(self, amount: int, now_ns: int, from_ns: int) -> int | None:
        """Return the earliest time, not before `from_ns`, from which on `amount` fits for the whole grace period.

        Unix nanoseconds; `None` if the amount exceeds the rule's.
        """
        if amount > self._amount:
            return None
        self.room(now_ns)  # advances time and drops expired slots
        start = max(from_ns // self._width_ns, self._bucket)
        return max(from_ns, self._first_fit(amount, start) * self._width_ns)

    def _not_before(self, now_ns: int) -> int:
        return max(now_ns, self._bucket * self._width_ns)

    def _charge(self, amount: int) -> Cell:
        """Charge `amount` to the current bucket."""
        self._total += amount
        cell = self._cell
        if cell is not None:
            cell.amount += amount
            return cell
        last = self._last
        cell = self._cell = self._last = Cell(self._bucket, amount)
        if last is None:
            self._first = cell
        else:
            last.following = cell
        return cell

    def _move_to(self, now_ns: int) -> None:
        """Advance time, and drop cells that have left every window."""
        bucket, width_ns = now_ns // self._width_ns, self._width_ns
        self._bucket, self._until_ns, self._cell = bucket, now_ns - now_ns % width_ns + width_ns, None
        oldest = bucket - self._buckets
        cell = self._first
        while cell is not None and cell.bucket < oldest:
            self._total -= cell.amount
            cell.bucket = _LEFT
            following = cell.following
            cell.following = None  # a mark that is kept for long must not keep all later cells alive
            cell = following
        self._first = cell
        if cell is None:
            self._last = None

    def _room_beside_held(self, now_ns: int, claimant: str) -> int:
        """Return the room that others' slots leave in every window that a charge now would fall into.

        No slot ends within these windows, so their sum only grows where one is due.
        """
        if not self.retry_slots(now_ns):
            return self._amount - self._total
        held = self._held
        assert held is not None
        bucket, by_bucket = self._bucket, held.by_bucket
        end = bucket + self._buckets
        if len(by_bucket) <= _FEW:
            due = sorted(by_bucket)
        else:
            due = [place for place in range(bucket - self._grace, end + 1) if place in by_bucket]
        cell, sum_now = self._first, self._total
        most = sum_now
        for place in due:
            if place > end:
                break
            while cell is not None and cell.bucket < place - self._buckets:
                sum_now -= cell.amount
                cell = cell.following
            sum_now += by_bucket[place]
            if place <= bucket or sum_now > most:
                most = sum_now
        return self._amount - most + (held.due(claimant, self._not_before(now_ns)) if claimant else 0)

    def _first_fit(self, amount: int, start: int) -> int:
        """Return the first bucket, from `start` on, for which `amount` fits into all windows that a charge in it, or
        within the grace period after it, falls into.

        The result is remembered until a window's sum may have fallen: before that time there is no room for as much or
        more. Otherwise each of a flood of refused requests would scan all cells.
        """
        remembered = self._remembered
        if remembered is None or len(remembered) > _MAX_REMEMBERED:
            remembered = self._remembered = {}
        known = max((first for asked, first in remembered.items() if asked <= amount), default=self._bucket)
        first = self._scan(amount, max(known, start))
        if start <= known:
            remembered[amount] = first
        return first

    def _scan(self, amount: int, start: int) -> int:
        """Scan the windows' sums for enough consecutive ones with room. Terminates: eventually all sums are 0."""
        by_bucket: dict[int, int] = self._held.by_bucket if self._held is not None else {}
        buckets, span = self._buckets, self._grace + self._buckets + 1
        free = self._amount - amount
        cell, charged = self._first, self._total
        held = sum(by_bucket.get(bucket, 0) for bucket in range(start - span, start))
        first = window = start
        while True:
            while cell is not None and cell.bucket < window - buckets:
                charged -= cell.amount
                cell = cell.following
            if by_bucket:
                held += by_bucket.get(window, 0) - by_bucket.get(window - span, 0)
            window += 1
            if charged + held > free:
                first = window
            elif window - first == span:
                return first

    def _regrid(self, window: Window, now_ns: int) -> None:
        """Move charges into buckets of another length, each to the latest time at which it may have happened."""
        self._window, old_width_ns = window, self._width_ns
        self._buckets, self._width_ns, grace_ns = _GRIDS[window]
        self._grace = -(-grace_ns // self._width_ns)
        self._held = None
        self._bucket = max(now_ns, self._bucket * old_width_ns) // self._width_ns
        self._until_ns = (self._bucket + 1) * self._width_ns
        cell = self._first
        while cell is not None:
            cell.bucket = min(((cell.bucket + 1) * old_width_ns - 1) // self._width_ns, self._bucket)
            cell = cell.following
        last = self._last
        self._cell = last if last is not None and last.bucket == self._bucket else None


WindowLine: TypeAlias = tuple[SlidingCounter, int]  # a counter, and the index of its metric among the amounts


def take_each(lines: list[WindowLine], amounts: Amounts, now_ns: int, left: list[int], marks: list[Mark]) -> bool:
    """Charge each counter its amount now, and append its remaining amount and its mark to the lists.

    Stops at the first counter that lacks room or has a retry slot reserved for anyone; return whether there was none.
    One call serves all counters, because a call costs as much as a charge.
    """
    for counter, place in lines:
        if now_ns >= counter._until_ns:
            counter._move_to(now_ns)
        amount = amounts[place]
        total = counter._total + amount
        rest = counter._amount - total
        if rest < 0 or counter._held is not None:
            return False
        cell = counter._cell
        if cell is None:
            cell = counter._charge(amount)
        else:
            counter._total, cell.amount = total, cell.amount + amount
        left.append(rest)
        marks.append(cell)
    return True


def settle_each(lines: list[WindowLine], marks: Sequence[Mark | None], taken: Amounts, used: Amounts) -> None:
    """Settle what each counter was charged under its mark; the first of `marks` belongs to the first counter."""
    for number, (counter, place) in enumerate(lines):  # `marks` continues with those of other counters
        cell = marks[number]
        if type(cell) is not Cell or cell.bucket == _LEFT:
            continue
        amount, charged = taken[place], used[place]
        if charged >= amount:
            cell.settled += amount
            continue
        cell.settled += charged
        back = amount - charged
        cell.amount -= back
        counter._total -= back
        counter._remembered = None
