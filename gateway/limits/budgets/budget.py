"""Budget counters: settled and reserved amounts of the current calendar period."""

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from backends.processes.native import mypyc_attr
from contracts.rules.limits import BudgetSpec
from contracts.rules.periods import budget_period, zone_of
from gateway.limits.counters.base import CounterState, Mark
from gateway.limits.counters.escrow import EscrowCounter, Ledger
from gateway.limits.demand import Amounts

UNLIMITED: Final = 1 << 100  # room of a budget that refuses nothing: it is soft, not started, or ended
_SECOND_NS: Final = 1_000_000_000
_SOON_NS: Final = _SECOND_NS
_PAST_KEPT_NS: Final = 3600 * _SECOND_NS
_ALWAYS_NS: Final = 1 << 100  # later than any time
_NEVER_NS: Final = -1  # earlier than any time

OnSettled: TypeAlias = Callable[["BudgetCounter", int, int], None]  # counter, settled before, settled after
OnSettledLate: TypeAlias = Callable[["BudgetCounter", "PeriodLedger", int, int], None]


class PeriodLedger(Ledger):
    """One period of a budget: its bounds (Unix nanoseconds; `None`: no end) and its settled and reserved amounts."""

    __slots__ = ("overdraft", "period_end_ns", "period_start_ns", "restored", "restored_overdraft")

    def __init__(self, period_start_ns: int, period_end_ns: int | None) -> None:
        super().__init__()
        self.period_start_ns = period_start_ns
        self.period_end_ns = period_end_ns
        self.restored = 0  # part of `settled` that was counted before this process started
        self.overdraft = 0  # usage that could not be charged; spent = settled + overdraft
        self.restored_overdraft = 0


@mypyc_attr(allow_interpreted_subclasses=True)  # the leased counters inherit from this class and another
class BudgetCounter(EscrowCounter):
    """The count of one budget for one subject. A reservation is settled in the period in which it was made, however
    late.

    A soft budget counts but never refuses. A budget that is not in effect (not started, or ended) counts nothing.
    `on_settled` is called when the settled amount of the current period changes, `on_settled_late` when that of an
    earlier period does. Construction and `adopt` raise ConfigurationError if the time zone is unknown.
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
        self._period: PeriodLedger | None = None  # current; same as `_ledger` unless the budget is not in effect
        self._past: tuple[PeriodLedger, ...] = ()
        self._adjusted = 0  # change of the current period's settled amount by recounts
        self._until_ns = _NEVER_NS

    @property
    def period_start_ns(self) -> int | None:
        """Return when the current period started (Unix nanoseconds); `None` if the budget is not in effect."""
        return None if self._period is None else self._period.period_start_ns

    @property
    def period_end_ns(self) -> int | None:
        """Return when the current period ends (Unix nanoseconds); `None` without an end, or if the budget is not in
        effect.
        """
        return None if self._period is None else self._period.period_end_ns

    @property
    def settled(self) -> int:
        """Return the amount settled in the current period."""
        return 0 if self._period is None else self._period.settled

    @property
    def settled_by_all(self) -> int:
        """Return what all gateways sharing the budget have settled in the current period: here, only this gateway."""
        return self.settled

    @property
    def reserved(self) -> int:
        """Return the amount reserved in the current period."""
        return 0 if self._period is None else self._period.reserved

    def ledgers(self) -> Iterator[PeriodLedger]:
        """Yield the periods whose totals may still change: earlier ones with open reservations, and the current one.

        An earlier period is yielded for at least an hour after its end, so that its final total is written.
        """
        yield from self._past
        if self._period is not None:
            yield self._period

    def restore(self, period_start_ns: int, settled: int, overdraft: int = 0) -> bool:
        """Add what was settled before this counter was opened. A second call replaces the amount of the first.

        Return whether the total was added: False if another period has started meanwhile.
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
        if self._on_settled is not None:  # the observer may know less: the last report was lost with the process
            self._on_settled(self, period.settled + self._adjusted, period.settled + self._adjusted)
        return True

    @property
    def overdraft(self) -> int:
        """Return the usage of the current period that could not be charged to the budget."""
        return 0 if self._period is None else self._period.overdraft

    def overdraw(self, amount: int, now_ns: int) -> None:
        """Record usage that cannot be charged because the budget lacks room for it."""
        if now_ns >= self._until_ns:
            self._turn(now_ns)
        period = self._period
        if period is None or amount <= 0:
            return
        period.overdraft += amount
        if self._on_settled is not None:
            self._on_settled(self, period.settled + self._adjusted, period.settled + self._adjusted)

    def adopt(self, rule: BudgetSpec, now_ns: int) -> None:
        """Adopt a changed rule.

        If its period differs, the amounts counted so far count in the new period: this may count too much, but never
        overspends the budget.
        """
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
        if counted is None:  # it had ended and continues now, perhaps in a period that it has counted before
            counted = next((past for past in self._past if past.period_start_ns == begun.period_start_ns), None)
            self._past = tuple(past for past in self._past if past is not counted)
        if counted is not None:
            counted.period_start_ns, counted.period_end_ns = begun.period_start_ns, begun.period_end_ns
            self._period = self._ledger = counted
            self._set_ceiling()

    def settle(self, mark: Mark, taken: int, charged: int, now_ns: int) -> None:
        """Settle the reservation that `take` returned `mark` for: charge `charged` of its `taken`, release the rest."""
        assert isinstance(mark, Ledger)
        mark.reserved -= taken
        if not charged:
            if mark is self._period and self._on_settled is not None:  # the reserved amount has changed
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
        """Return the budget's state. It resets when the period ends. A budget that is not in effect has no usage."""
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
        """Return whether nothing is counted in the current period, and no earlier period can still change."""
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
        """Return when the next period starts, if the current one lacks room; `None` if none follows.

        If running requests may still release enough, the time is unknown and a short wait is returned.
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
        """Start the period that contains `now_ns`, or lift all limits until the budget is in effect."""
        rule = self.rule
        bounds = budget_period(rule, now_ns)
        if bounds is None:
            self._period = None
            self._adjusted = 0
            self._ledger = Ledger()  # reservations made now are settled in a ledger that is discarded
            self._ceiling = UNLIMITED
            has_begun = rule.starts_at_ns is None or now_ns >= rule.starts_at_ns
            self._until_ns = _ALWAYS_NS if has_begun or rule.starts_at_ns is None else rule.starts_at_ns
            return
        start_ns, end_ns = bounds
        self._period = self._ledger = PeriodLedger(start_ns, end_ns)
        self._set_ceiling()
        self._until_ns = _ALWAYS_NS if end_ns is None else end_ns

    def _set_ceiling(self) -> None:
        """Set how much may be settled and reserved in the current period, by the rule and its recounts."""
        period, rule = self._period, self.rule
        if period is None:
            return
        self._adjusted = rule.adjusted(self.subject, period.period_start_ns)
        self._ceiling = rule.amount - self._adjusted if rule.is_hard else UNLIMITED


def reserve_each(
    lines: list[tuple[BudgetCounter, int]], amounts: Amounts, now_ns: int, left: list[int], marks: list[Mark]
) -> bool:
    """Reserve each budget's amount now, and append its remaining amount and its mark to the lists, as
    `sliding.take_each`.
    """
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
