"""A request's reservation at every counter: all or nothing, extendable, settled once."""

from collections.abc import Sequence

import msgspec

from backends.processes.native import mypyc_attr
from gateway.limits.budgets.budget import BudgetCounter, reserve_each
from gateway.limits.counters.base import Mark
from gateway.limits.counters.sliding import settle_each, take_each
from gateway.limits.demand import CONCURRENCY, NOTHING, TOKENS, Amounts, Rates, fits
from gateway.limits.headers import Headers
from gateway.limits.limit_plan import Lines


@mypyc_attr(acyclic=True)  # it leads to nothing that leads back
class Portion:
    """An amount taken at one moment from every counter: the reservation at admission, or one extension of it.

    `left` is what each counter had left at that moment, where it is known.
    """

    __slots__ = ("amounts", "marks", "at_ns", "charged_tokens", "has_more", "left")

    def __init__(
        self,
        amounts: Amounts,
        marks: Sequence[Mark | None],
        at_ns: int,  # Unix
        charged_tokens: int,
        has_more: bool = False,  # all that it may need beyond this was there too
        left: Sequence[int] | None = None,
    ) -> None:
        self.amounts = amounts
        self.marks = marks
        self.at_ns = at_ns
        self.charged_tokens = charged_tokens
        self.has_more = has_more
        self.left = left


def take(
    lines: Lines, amounts: Amounts, now_ns: int, claimant: str = "", more: Amounts | None = None
) -> Portion | None:
    """Remove and return the amounts from all counters; `None`, with nothing taken, where any of them lacks the room.

    `more` is what could be needed on the way: the portion says whether it was there as well.
    """
    portion = take_at_once(lines, amounts, now_ns, more)
    return take_after_look(lines, amounts, now_ns, claimant, more) if portion is None else portion


def take_after_look(
    lines: Lines,
    amounts: Amounts,
    now_ns: int,
    claimant: str = "",
    more: Amounts | None = None,
    *,
    needs_more: bool = False,
) -> Portion | None:
    """Remove and return the amounts from all counters once each has been seen to have the room; else `None`.

    `needs_more`: also where one of them lacks what could be needed on the way.
    """
    has_more = more is not None
    for counter, place in lines.in_turn:
        wanted = amounts[place]
        if wanted:
            left = counter.room(now_ns, claimant) - wanted
            if left < 0:
                return None
            if has_more and more is not None and left < more[place]:
                has_more = False
        elif more is not None and more[place]:
            has_more = False
    if needs_more and not has_more:
        return None
    marks = [
        counter.take(amounts[place], now_ns, claimant) if amounts[place] else None for counter, place in lines.in_turn
    ]
    return Portion(amounts, marks, now_ns, amounts[TOKENS], has_more)


def take_at_once(lines: Lines, amounts: Amounts, now_ns: int, more: Amounts | None = None) -> Portion | None:
    """Remove and return the amounts where each counter has the room and holds nothing for anyone; else leave all as it
    was.
    """
    if lines.quick is None:
        return None
    left: list[int] = []
    marks: list[Mark] = []
    has_taken = take_each(lines.windows, amounts, now_ns, left, marks)
    if not has_taken or not reserve_each(lines.budgets, amounts, now_ns, left, marks):
        _undo(lines, marks, amounts)
        return None
    for counter, place in lines.others:
        taken = counter.take_at_once(amounts[place], now_ns)
        if taken is None:
            _undo(lines, marks, amounts)
            return None
        left.append(taken[0])
        marks.append(taken[1])
    return Portion(amounts, marks, now_ns, amounts[TOKENS], more is not None and _leaves(left, lines, more), left)


def _leaves(left: list[int], lines: Lines, more: Amounts) -> bool:
    """Return whether every counter has as much left."""
    for number, place in enumerate(lines.places):
        if left[number] < more[place]:
            return False
    return True


def _undo(lines: Lines, marks: Sequence[Mark | None], amounts: Amounts) -> None:
    """Undo what the first counters of these lines were charged, as many as there are marks."""
    assert lines.quick is not None
    for number, mark in enumerate(marks):
        assert mark is not None
        lines.quick[number].undo(mark, amounts[lines.in_turn[number][1]])


@mypyc_attr(acyclic=True)  # it leads to nothing that leads back
class Reservation:
    """One request's hold on its counters. `settle` ends it; what follows does nothing."""

    __slots__ = ("lines", "portions", "overdraft", "_is_settled")

    def __init__(
        self,
        lines: Lines,
        portions: list[Portion],
        overdraft: Amounts = NOTHING,  # used beyond what could be charged
        is_settled: bool = False,
    ) -> None:
        self.lines = lines
        self.portions = portions
        self.overdraft = overdraft
        self._is_settled = is_settled

    def undo(self) -> None:
        """Undo what `take_at_once` has just taken, as if it had not been."""
        self._is_settled = True
        _undo(self.lines, self.portions[0].marks, self.portions[0].amounts)

    def extend(self, amounts: Amounts, now_ns: int) -> bool:
        """Reserve more; return whether all counters had the room. Nothing is taken where one had not."""
        if self._is_settled:
            return False
        portion = take(self.lines, amounts, now_ns)
        if portion is None:
            return False
        self.portions.append(portion)
        return True

    def reserved(self, place: int) -> int:
        """Return what has been taken so far of one metric."""
        if len(self.portions) == 1:
            return self.portions[0].amounts[place]
        return sum(portion.amounts[place] for portion in self.portions)

    def lacking(self, used: Amounts) -> Amounts:
        """Return what was used beyond all that has been taken, slots aside."""
        return tuple(
            0 if place == CONCURRENCY else max(wanted - self.reserved(place), 0) for place, wanted in enumerate(used)
        )

    def free_slots(self, now_ns: int) -> None:
        """Release the slots; all else stays held until it is settled."""
        if self._is_settled:
            return
        first = len(self.lines.windows) + len(self.lines.budgets)
        for portion in self.portions:
            marks = list(portion.marks)
            for number, (counter, place) in enumerate(self.lines.others, first):
                mark = marks[number]
                if place == CONCURRENCY and mark is not None:
                    counter.settle(mark, portion.amounts[place], 0, now_ns)
                    marks[number] = None
            portion.marks = marks

    def covers(self, used: Amounts) -> bool:
        """Return whether what was used was all reserved at admission: `settle` then charges just that."""
        return len(self.portions) == 1 and fits(used, self.portions[0].amounts)

    def settle(self, used: Amounts, now_ns: int) -> Amounts:
        """Charge what was used and give back the rest, each to the window it was taken in; return what was charged.

        What was used beyond the reservation is charged now as far as every counter of its metric has room, so that all
        of them are charged the same; the rest is `overdraft`. Slots are given back whole. Happens once.
        """
        if self._is_settled:
            return NOTHING
        self._is_settled = True
        if self.covers(used):
            self._charge(self.portions[0], used, now_ns)
            return used
        left: Amounts = (*used[:CONCURRENCY], 0, *used[CONCURRENCY + 1 :])
        for portion in self.portions:
            self._charge(portion, left, now_ns)
            left = tuple([max(wanted - held, 0) for wanted, held in zip(left, portion.amounts, strict=True)])
        if left == NOTHING:
            return used
        more = self._take_late(left, now_ns)
        self.overdraft = tuple(wanted - taken for wanted, taken in zip(left, more, strict=True))
        for counter, place in self.lines.all:
            if self.overdraft[place] and isinstance(counter, BudgetCounter):
                counter.overdraw(self.overdraft[place], now_ns)
        return tuple(wanted - lost for wanted, lost in zip(used, self.overdraft, strict=True))

    def _charge(self, portion: Portion, used: Amounts, now_ns: int) -> None:
        """Charge a portion with as much as it holds, give back what it holds beyond."""
        amounts = portion.amounts
        if amounts[TOKENS] > used[TOKENS]:
            portion.charged_tokens = used[TOKENS]
        lines, marks = self.lines, portion.marks
        settle_each(lines.windows, marks, amounts, used)
        number = len(lines.windows)
        for budget, place in lines.budgets:
            mark = marks[number]
            number += 1
            if mark is not None:
                taken, kept = amounts[place], used[place]
                budget.settle(mark, taken, kept if kept < taken else taken, now_ns)
        for counter, place in lines.others:
            mark = marks[number]
            number += 1
            if mark is not None:
                taken, kept = amounts[place], used[place]
                counter.settle(mark, taken, kept if kept < taken else taken, now_ns)

    def _take_late(self, lacking: Amounts, now_ns: int) -> Amounts:
        room = list(lacking)
        for counter, place in self.lines.all:
            if room[place]:
                room[place] = max(min(room[place], counter.room(now_ns)), 0)
        amounts = tuple(room)
        portion = Portion(amounts, [], now_ns, amounts[TOKENS])
        for counter, place in self.lines.all:
            if amounts[place]:
                mark = counter.take(amounts[place], now_ns)
                counter.settle(mark, amounts[place], amounts[place], now_ns)
        self.portions.append(portion)
        return amounts


class Grant(msgspec.Struct):
    """What an admitted request holds. `max_output` is the most tokens a choice may have, where that had to be cut."""

    reservation: Reservation
    rates: Rates
    input_tokens: int
    output_tokens: int  # reserved, over all choices
    max_output: int | None = None
    clipped_by: str = ""  # the rule that cut `max_output`
    headers: Headers = ()


class Size(msgspec.Struct, frozen=True):
    """How large a request is expected to be, in tokens."""

    input_tokens: int
    output_tokens: int
