"""Counts of budgets: what is settled and what is reserved within the calendar period that is in progress."""

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from backends.processes.native import mypyc_attr
from contracts.rules.limits import BudgetSpec
from contracts.rules.periods import budget_period, zone_of
from gateway.limits.counters.base import CounterState, Mark
from gateway.limits.counters.escrow import EscrowCounter, Ledger
from gateway.limits.demand import Amounts

UNLIMITED: Final = 1 << 100  # room where a budget does not refuse: it is soft, has not begun, or has ended
_SECOND_NS: Final = 1_000_000_000
_SOON_NS: Final = _SECOND_NS
_PAST_KEPT_NS: Final = 3600 * _SECOND_NS
_ALWAYS_NS: Final = 1 << 100  # later than any time
_NEVER_NS: Final = -1  # earlier than any time

OnSettled: TypeAlias = Callable[["BudgetCounter", int, int], None]  # counter, settled before, settled after
OnSettledLate: TypeAlias = Callable[["BudgetCounter", "PeriodLedger", int, int], None]


class PeriodLedger(Ledger):
    """One period of a budget: its bounds (Unix nanoseconds; `None`: no end) and what it comes to."""

    __slots__ = ("overdraft", "period_end_ns", "period_start_ns", "restored", "restored_overdraft")

    def __init__(self, period_start_ns: int, period_end_ns: int | None) -> None:
        super().__init__()
        self.period_start_ns = period_start_ns
        self.period_end_ns = period_end_ns
        self.restored = 0  # of what is settled: by whoever counted before us
        self.overdraft = 0  # used beyond what the budget could be charged: settled and this are what was spent
        self.restored_overdraft = 0


@mypyc_attr(allow_interpreted_subclasses=True)  # those whose counts are leased have two bases
class BudgetCounter(EscrowCounter):
    """One budget's count of one subject. A reservation is settled in the period it was made in, however late.

    A soft budget counts and never refuses; one that does not bind now (not begun, or ended) counts nothing.
    `on_settled` is called when more is settled in the period in progress, `on_settled_late` when in an earlier one.
    Raises ConfigurationError, when made or given another rule and not later, where the time zone is unknown.
    """

    __slots__ = ("_adjusted", "_on_settled", "_on_settled_late", "_past", "_period")

    rule: BudgetSpec

    def __init__(
        self,
        rule: BudgetSpec,
        subject: str,
        on_settled: OnSettled | None = None,
        on_settled_late: OnSettledLate | None = None,
    ) -> None:
        super().__init__(rule, subject)
        zone_of(rule.time_zone)
        self._on_settled = on_settled
        self._on_settled_late = on_settled_late
        self._period: PeriodLedger | None = None  # in progress; `_ledger` too, unless the budget does not bind
        self._past: tuple[PeriodLedger, ...] = ()
        self._adjusted = 0  # by recounts, of what is settled in the period in progress
        self._until_ns = _NEVER_NS

    @property
    def period_start_ns(self) -> int | None:
        """Return when the period in progress began (Unix); `None` if the budget does not bind."""
        return None if self._period is None else self._period.period_start_ns

    @property
    def period_end_ns(self) -> int | None:
        """Return when the period in progress ends (Unix); `None` if it has no end or the budget does not bind."""
        return None if self._period is None else self._period.period_end_ns

    @property
    def settled(self) -> int:
        """Return what is settled in the period in progress."""
        return 0 if self._period is None else self._period.settled

    @property
    def settled_by_all(self) -> int:
        """Return what all gateways that share the budget have settled in the period in progress: here, this one."""
        return self.settled

    @property
    def reserved(self) -> int:
        """Return what is reserved in the period in progress."""
        return 0 if self._period is None else self._period.reserved

    def ledgers(self) -> Iterator[PeriodLedger]:
        """Yield the periods whose totals may still move: past ones not yet settled for good, and the one in progress.

        A past period is given until an hour after its end at the least, so that the one that keeps totals sees its
        last.
        """
        yield from self._past
        if self._period is not None:
            yield self._period

    def restore(self, period_start_ns: int, settled: int, overdraft: int = 0) -> bool:
        """Add what had been settled before this counter was opened; a second call replaces what the first added.

        Says whether the total was taken: it is not where another period is in progress by now.
        """
        if self._until_ns == _NEVER_NS:
            self._turn(period_start_ns)
        period = self._period
        if period is None or period.period_start_ns != period_start_ns:
            return False
        period.settled += settled - period.restored
        period.restored = settled
        period.overdraft += overdraft - period.restored_overdraft
        period.restored_overdraft = overdraft
        if self._on_settled is not None:  # who reports what is spent may know less: the last report died with a process
            self._on_settled(self, period.settled + self._adjusted, period.settled + self._adjusted)
        return True

    @property
    def overdraft(self) -> int:
        """Return what was used in the period in progress beyond what the budget could be charged."""
        return 0 if self._period is None else self._period.overdraft

    def overdraw(self, amount: int, now_ns: int) -> None:
        """Record what was used and cannot be charged, because the budget lacks the room for it."""
        if now_ns >= self._until_ns:
            self._turn(now_ns)
        period = self._period
        if period is None or amount <= 0:
            return
        period.overdraft += amount
        if self._on_settled is not None:
            self._on_settled(self, period.settled + self._adjusted, period.settled + self._adjusted)

    def adopt(self, rule: BudgetSpec, now_ns: int) -> None:
        """Adopt a changed rule. Where its period is another one, what is counted so far counts in that:
        rather too much than an overspent budget."""
        zone_of(rule.time_zone)
        if now_ns >= self._until_ns:
            self._turn(now_ns)
        before, self.rule = self.rule, rule
        if (before.period, before.time_zone, before.starts_at_ns, before.ends_at_ns) == (
            rule.period,
            rule.time_zone,
            rule.starts_at_ns,
            rule.ends_at_ns,
        ):
            self._set_ceiling()
            return
        counted = self._period
        self._begin(now_ns)
        begun = self._period
        if begun is None:
            if counted is not None:
                self._past = (*self._past, counted)
            return
        if counted is None:  # it had ended and now goes on: perhaps in a period it has counted before
            counted = next((past for past in self._past if past.period_start_ns == begun.period_start_ns), None)
            self._past = tuple(past for past in self._past if past is not counted)
        if counted is not None:
            counted.period_start_ns, counted.period_end_ns = begun.period_start_ns, begun.period_end_ns
            self._period = self._ledger = counted
            self._set_ceiling()

    def settle(self, mark: Mark, taken: int, charged: int, now_ns: int) -> None:
        """End a reservation of `taken` made under `mark`: `charged` (0 to `taken`) stays, the rest is given back."""
        assert isinstance(mark, Ledger)
        mark.reserved -= taken
        if not charged:
            if mark is self._period and self._on_settled is not None:  # what is reserved has moved
                self._on_settled(self, mark.settled + self._adjusted, mark.settled + self._adjusted)
            return
        before = mark.settled
        mark.settled = after = before + charged
        if mark is self._period:
            if self._on_settled is not None:
                self._on_settled(self, before + self._adjusted, after + self._adjusted)
        elif type(mark) is PeriodLedger and self._on_settled_late is not None:
            self._on_settled_late(self, mark, before, after)

    def state(self, now_ns: int) -> CounterState:
        """Return how the budget stands. It resets when the period ends; nothing is used if it does not bind."""
        if now_ns >= self._until_ns:
            self._turn(now_ns)
        period = self._period
        if period is None:
            return CounterState(self.rule.amount, 0, 0, None)
        end_ns = period.period_end_ns
        reset_seconds = None if end_ns is None else max(end_ns - now_ns, 0) / _SECOND_NS
        used = period.settled + period.reserved + self._adjusted
        return CounterState(self.rule.amount, used, period.reserved, reset_seconds)

    def is_idle(self, now_ns: int) -> bool:
        """Return whether nothing is counted in the period in progress, and no past period may still change."""
        if now_ns >= self._until_ns:
            self._turn(now_ns)
        if self._past:
            self._past = tuple(past for past in self._past if not _is_over(past, now_ns))
        return (
            not self._past
            and not self._ledger.reserved
            and (self._period is None or not (self._period.settled or self._period.overdraft))
        )

    def earliest(self, amount: int, now_ns: int, from_ns: int) -> int | None:
        """Return when the next period begins where this one lacks the room; `None` if no other follows.

        Where it lacks it only until requests that run have been settled, when may not be known: soon.
        """
        if self.room(now_ns) >= amount:
            return from_ns
        period = self._period
        if period is not None and self.settled_by_all + amount <= self._ceiling:
            return max(from_ns, now_ns + _SOON_NS)
        if amount > self.rule.amount or period is None or period.period_end_ns is None:
            return None
        end_ns = period.period_end_ns
        if self.rule.ends_at_ns is not None and end_ns >= self.rule.ends_at_ns:
            return None
        return max(from_ns, end_ns)

    def _turn(self, now_ns: int) -> None:
        ended = self._period
        if ended is not None and (ended.reserved or ended.settled or ended.overdraft):
            self._past = (*(past for past in self._past if not _is_over(past, now_ns)), ended)
        self._begin(now_ns)

    def _begin(self, now_ns: int) -> None:
        """Open the books of the period that holds `now_ns`, or set all limits aside until the budget binds."""
        rule = self.rule
        bounds = budget_period(rule, now_ns)
        if bounds is None:
            self._period = None
            self._adjusted = 0
            self._ledger = Ledger()  # what is reserved now is settled in a book that nobody reads
            self._ceiling = UNLIMITED
            has_begun = rule.starts_at_ns is None or now_ns >= rule.starts_at_ns
            self._until_ns = _ALWAYS_NS if has_begun or rule.starts_at_ns is None else rule.starts_at_ns
            return
        start_ns, end_ns = bounds
        self._period = self._ledger = PeriodLedger(start_ns, end_ns)
        self._set_ceiling()
        self._until_ns = _ALWAYS_NS if end_ns is None else end_ns

    def _set_ceiling(self) -> None:
        """Set how much may be settled and reserved in the period in progress, by the rule and its recounts."""
        period, rule = self._period, self.rule
        if period is None:
            return
        self._adjusted = rule.adjusted(self.subject, period.period_start_ns)
        self._ceiling = rule.amount - self._adjusted if rule.is_hard else UNLIMITED


def reserve_each(
    lines: list[tuple[BudgetCounter, int]], amounts: Amounts, now_ns: int, left: list[int], marks: list[Mark]
) -> bool:
    """Reserve each budget's amount now, and add what it has left and its mark to the lists, as `sliding.take_each`."""
    for counter, place in lines:
        if now_ns >= counter._until_ns:
            counter._turn(now_ns)
        ledger, amount = counter._ledger, amounts[place]
        rest = counter._ceiling - ledger.settled - ledger.reserved - amount
        if rest < 0:
            return False
        ledger.reserved += amount
        left.append(rest)
        marks.append(ledger)
    return True


def _is_over(past: PeriodLedger, now_ns: int) -> bool:
    return not past.reserved and past.period_end_ns is not None and now_ns >= past.period_end_ns + _PAST_KEPT_NS
