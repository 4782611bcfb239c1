"""Reports budget spending: totals to the ledger on disk, states and passed thresholds to the publisher."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol, cast

from backends.processes.beat import until_beat
from contracts.errors import TollkeeperError
from contracts.rules.limits import BudgetSpec
from gateway.limits.budgets.budget_ledger import BudgetCounter, BudgetLedger
from gateway.limits.counters.base import Counter

_log = logging.getLogger(__name__)

_EVERY_SECONDS: Final = 1.0
NOW_REFUSING: Final = 100  # percent that stands for a hard budget's first refusal, whatever is spent by then
_MAX_WAITING: Final = 10_000  # thresholds waiting to be published; the log has all of them


@dataclass(frozen=True, slots=True)
class SubjectSpending:
    """What this gateway has charged to one subject of a budget in one period, in the budget's base unit."""

    budget: str
    subject: str
    period_start_ns: int
    settled: int
    reserved: int
    overdraft: int = 0  # usage that could not be charged


@dataclass(frozen=True, slots=True)
class ThresholdPassed:
    """A subject of a budget has used `percent` of its amount in a period."""

    budget: str
    subject: str
    period_start_ns: int
    percent: int
    amount: int
    spent: int


class CountedPeriod(Protocol):
    """One period of a budget's counter, as far as this module uses it."""

    @property
    def period_start_ns(self) -> int: ...
    @property
    def settled(self) -> int: ...
    @property
    def reserved(self) -> int: ...
    @property
    def overdraft(self) -> int: ...


class WatchedCounter(BudgetCounter, Protocol):
    """A budget's counter, as far as this module uses it."""

    @property
    def period_start_ns(self) -> int | None: ...
    @property
    def settled_by_all(self) -> int: ...
    def ledgers(self) -> Iterable[CountedPeriod]: ...


Publish = Callable[[list[SubjectSpending], list[ThresholdPassed]], None]
"""Writes standings and thresholds where others see them. Blocks; raises TollkeeperError if that cannot be now."""


class BudgetWatch:
    """Watches all budget counters of this process."""

    def __init__(self, ledger: BudgetLedger, publish: Publish | None) -> None:
        self._ledger = ledger
        self._note = ledger.note  # called for each budget of each request
        self._publish = publish
        self._moved: set[WatchedCounter] = set()
        self._passed: list[ThresholdPassed] = []
        self._refused: set[tuple[str, str, int, int]] = set()  # budget, subject, period, amount: each is reported once
        self.is_away = False  # the last publication failed

    def on_settled(self, counter: WatchedCounter, before: int, after: int) -> None:
        """Record that a budget's spending, by all gateways as far as known, has changed."""
        self._note(counter)
        self._moved.add(counter)
        rule = counter.rule
        amount = rule.amount
        cent = amount // 100
        if cent and before // cent == after // cent and not amount % 100:
            return  # the usual case: no percentage is reached, so no threshold either
        if not rule.thresholds and not rule.is_hard:
            return
        start_ns = counter.period_start_ns
        if start_ns is None:
            return
        for passed in thresholds_between(rule, before, after):
            self._note_passed(counter, start_ns, passed, after)

    def on_refused(self, counter: Counter) -> None:
        """Record that a rule refused a request. A hard budget's first refusal is reported, whatever thresholds it has.

        It may occur below 100 %: a budget refuses requests that would not fit.
        """
        rule = counter.rule
        if not isinstance(rule, BudgetSpec) or not rule.is_hard:
            return
        watched = cast(WatchedCounter, counter)
        start_ns = watched.period_start_ns
        if start_ns is None:
            return
        told = (rule.id, counter.subject, start_ns, rule.amount)
        if told not in self._refused and len(self._refused) < _MAX_WAITING:
            self._refused.add(told)
            self._moved.add(watched)
            self._note_passed(watched, start_ns, NOW_REFUSING, watched.settled_by_all)

    def _note_passed(self, counter: WatchedCounter, start_ns: int, percent: int, spent: int) -> None:
        passed = ThresholdPassed(counter.rule.id, counter.subject, start_ns, percent, counter.rule.amount, spent)
        _log.warning(
            "budget threshold passed",
            extra={"budget": passed.budget, "subject": passed.subject[:80], "percent": percent},
        )
        if len(self._passed) < _MAX_WAITING:
            self._passed.append(passed)

    def on_settled_late(self, counter: WatchedCounter, period: CountedPeriod, before: int, after: int) -> None:
        """Record that an ended period was charged once more, by a request that started in it."""
        self._note(counter)
        self._moved.add(counter)

    async def run(self) -> None:
        """Write and publish until cancelled."""
        while True:
            await asyncio.sleep(until_beat(_EVERY_SECONDS))
            await self.tell()

    async def tell(self) -> None:
        """Write and publish what has changed since the last call."""
        self._ledger.flush()
        if self._publish is None:
            self._moved.clear()
            self._passed.clear()
            return
        if not self._moved and not self._passed:
            return
        moved, passed = self._moved, self._passed
        self._moved, self._passed = set(), []
        standings = [
            SubjectSpending(one.rule.id, one.subject, part.period_start_ns, part.settled, part.reserved, part.overdraft)
            for one in moved
            for part in one.ledgers()
        ]
        try:
            await asyncio.to_thread(self._publish, standings, passed)
        except TollkeeperError as error:
            if not self.is_away:
                _log.warning("budget states cannot be published", extra={"reason": error.message})
            self.is_away = True
            self._moved |= moved
            self._passed = passed + self._passed
            return
        self.is_away = False


def thresholds_between(rule: BudgetSpec, before: int, after: int) -> list[int]:
    """Return the thresholds (percent) that spending reached by growing from `before` to `after`.

    A hard budget always has a threshold of 100 %: from there on it refuses.
    """
    thresholds = {*rule.thresholds, NOW_REFUSING} if rule.is_hard else set(rule.thresholds)
    return [percent for percent in sorted(thresholds) if before * 100 < percent * rule.amount <= after * 100]
