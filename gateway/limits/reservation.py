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


@mypyc_attr(acyclic=True)  # holds no references that could form a cycle
class Portion:
    """An amount taken from every counter at one time: the reservation at admission, or one extension of it.

    `left` is each counter's remaining amount at that time, if known.
    """

    __slots__ = ("amounts", "marks", "at_ns", "charged_tokens", "has_more", "left")

    def __init__(
        self,
        amounts: Amounts,
        marks: Sequence[Mark | None],
        at_ns: int,  # Unix
        charged_tokens: int,
        has_more: bool = False,  # everything that it may need beyond this was available too
        left: list[int] | None = None,
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
    """Take the amounts from all counters and return the portion; `None`, with nothing taken, if one lacks room.

    `more` is what the request may need later: the portion says whether that was available as well.
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
    """Take the amounts from all counters after checking that each has room, and return the portion; else `None`.

    With `needs_more`, return `None` also if one of them lacks what the request may need later.
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
    """Take the amounts and return the portion if each counter has room and no retry slots are reserved; else change
    nothing and return `None`.
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
    """Return whether every counter has at least `more` left."""
    for number, place in enumerate(lines.places):
        if left[number] < more[place]:
            return False
    return True


def _undo(lines: Lines, marks: Sequence[Mark | None], amounts: Amounts) -> None:
    """Revert the charges of the first counters of these lines, as many as there are marks."""
    assert lines.quick is not None
    for number, mark in enumerate(marks):
        assert mark is not None
        lines.quick[number].undo(mark, amounts[lines.in_turn[number][1]])


@mypyc_attr(acyclic=True)  # holds no references that could form a cycle
class Reservation:
    """One request's reservation at its counters. `settle` ends it; later calls do nothing."""

    __slots__ = ("lines", "portions", "overdraft", "_is_settled")

    def __init__(
        self,
        lines: Lines,
        portions: list[Portion],
        overdraft: Amounts = NOTHING,  # usage that could not be charged
        is_settled: bool = False,
    ) -> None:
        self.lines = lines
        self.portions = portions
        self.overdraft = overdraft
        self._is_settled = is_settled

    def undo(self) -> None:
        """Revert what `take_at_once` has just taken."""
        self._is_settled = True
        _undo(self.lines, self.portions[0].marks, self.portions[0].amounts)

    def extend(self, amounts: Amounts, now_ns: int) -> bool:
        """Reserve more; return whether all counters had room. If one had not, nothing is taken."""
        if self._is_settled:
            return False
        portion = take(self.lines, amounts, now_ns)
        if portion is None:
            return False
        self.portions.append(portion)
        return True

    def reserved(self, place: int) -> int:
        """Return the total amount taken of one metric."""
        if len(self.portions) == 1:
            return self.portions[0].amounts[place]
        return sum(portion.amounts[place] for portion in self.portions)

    def lacking(self, used: Amounts) -> Amounts:
        """Return the usage beyond everything that was taken, excluding concurrency slots."""
        return tuple(
            0 if place == CONCURRENCY else max(wanted - self.reserved(place), 0) for place, wanted in enumerate(used)
        )

    def free_slots(self, now_ns: int) -> None:
        """Release the concurrency slots; everything else stays reserved until it is settled."""
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
        """Return whether the usage was entirely reserved at admission: `settle` then charges exactly that."""
        return len(self.portions) == 1 and fits(used, self.portions[0].amounts)

    def settle(self, used: Amounts, now_ns: int) -> Amounts:
        """Charge the usage and refund the rest, each to the window it was taken in; return what was charged.

        Usage beyond the reservation is charged now, as far as every counter of its metric has room, so that all are
        charged the same; the rest is `overdraft`. Concurrency slots are returned whole. Only the first call has an
        effect.
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
        """Charge a portion up to its amount, and refund the rest."""
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


@mypyc_attr(acyclic=True)  # holds no references that could form a cycle
class Grant:
    """The reservations of an admitted request. `max_output`: maximum tokens of a choice, if it was lowered."""

    __slots__ = ("clipped_by", "headers", "input_tokens", "max_output", "output_tokens", "rates", "reservation")

    def __init__(self, reservation: Reservation, rates: Rates, input_tokens: int, output_tokens: int) -> None:
        """Accept `output_tokens`: reserved, over all choices."""
        self.reservation = reservation
        self.rates = rates
        self.input_tokens = input_tokens
        self.output_tokens = output_tokens
        self.max_output: int | None = None
        self.clipped_by = ""  # the rule that lowered `max_output`
        self.headers: Headers = ()


class Size(msgspec.Struct, frozen=True):
    """How large a request is expected to be, in tokens."""

    input_tokens: int
    output_tokens: int
