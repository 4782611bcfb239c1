"""Concurrency slots, conversations and budgets shared by several gateways: each uses what it was granted in advance.

They count as in memory (`escrow.py`, `budget.py`), but their ceiling is what this gateway was granted. Grants belong to
the gateway's session: a gateway that cannot renew it stops using them before others may.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Final, TypeAlias

from backends.processes.native import trait
from contracts.rules.limits import BudgetSpec, LimitSpec
from gateway.limits.budgets.budget import UNLIMITED, BudgetCounter, OnSettled, OnSettledLate, PeriodLedger
from gateway.limits.counters.base import CounterState, Mark
from gateway.limits.counters.escrow import ConcurrencyCounter, ConversationCounter, Ledger
from gateway.limits.counters.lease_connection import LeaseConnection
from gateway.limits.counters.lease_grant import LeaseGrant

_DAY_SECONDS: Final = 86_400
_KEEP_SLOTS_SECONDS: Final = 3600
_KEEP_BUDGET_SECONDS: Final = 400 * _DAY_SECONDS


@trait
class LeasedEscrow:
    """Behaviour shared by counters that use granted amounts: a mixin for an in-memory counter."""

    has_slots: ClassVar[bool] = False
    is_leased: ClassVar[bool] = False  # grants outlast this gateway's session: they cover a minute without Redis
    keep_seconds: ClassVar[int] = _DAY_SECONDS
    rule: Any  # a Rule: a budget's is a BudgetSpec
    subject: str
    _ceiling: int
    _ledger: Ledger
    _link: LeaseConnection
    _grant: LeaseGrant | None  # of the current period, as last requested
    _grants: dict[int, LeaseGrant]  # by the identity of its ledger, to which it holds a reference

    @property
    def is_counting_only(self) -> bool:
        """Return whether the counter never refuses, and so needs no grants."""
        return self._ceiling >= UNLIMITED

    @property
    def grant(self) -> LeaseGrant:
        """Return the grant of the current period."""
        grant, ledger = self._grant, self._ledger
        if grant is None or grant.ledger is not ledger:
            grant = self._grants.get(id(ledger))
            if grant is None or grant.ledger is not ledger:
                grant = self._grants[id(ledger)] = LeaseGrant(self, ledger, self.key_of(ledger), self._link)
            self._grant = grant
        return grant

    def grants(self) -> list[LeaseGrant]:
        """Return the grants of all periods that may still change."""
        return list(self._grants.values())

    def key_of(self, ledger: Ledger) -> str:
        """Return the key of a period in Redis."""
        rule = self.rule
        kind = "conversation" if rule.scope.level == "conversation" else "held"
        return f"{self._link.prefix}{rule.metric}.{kind}:{rule.id}:{self.subject}"

    def amount_of(self, ledger: Ledger) -> int:
        """Return the amount that all gateways together may settle and reserve in one period."""
        amount: int = self.rule.amount
        return amount

    def on_total(self, grant: LeaseGrant, before: int, after: int) -> None:
        """Record the total that all gateways have settled."""

    def earmark(self, amount: int) -> list[tuple[Ledger, int]]:
        """Set an amount aside for a request that will take it shortly."""
        self._ledger.reserved += amount
        return [(self._ledger, amount)]

    def release(self, aside: Sequence[tuple[Ledger, int]]) -> None:
        """Release what was set aside."""
        for ledger, amount in aside:
            ledger.reserved -= amount

    def _granted_room(self, now_ns: int) -> int:
        """Return how much of the grant can be taken now. May be negative."""
        return self.grant.room(self._link.clock.now_ns(now_ns))

    def _note_settled(self, mark: Mark) -> None:
        """Record that a reservation made under `mark` has ended."""
        grant = self._grant
        if grant is None or grant.ledger is not mark:
            grant = self._grants.get(id(mark))
        if grant is not None:
            grant.note_settled()

    def _state_of_all(self, own: CounterState) -> CounterState:
        """Return the counter's state over all gateways, as far as known."""
        grant = self.grant
        return CounterState(own.amount, grant.used + grant.others, own.reserved, own.reset_seconds)

    def _is_all_settled(self) -> bool:
        """Return whether nothing is granted or waiting to be reported, and forget grants of past periods."""
        for name, grant in list(self._grants.items()):
            if grant.ledger is not self._ledger and grant.is_settled():
                del self._grants[name]
                self._grant = None
        return all([grant.is_settled() for grant in self._grants.values()])

    def _amounts(self) -> list[tuple[LeaseGrant, int]]:
        """Return the amount of each period, for a comparison after the rule has changed."""
        return [(grant, self.amount_of(grant.ledger)) for grant in self._grants.values()]

    def _give_back(self, before: Sequence[tuple[LeaseGrant, int]]) -> None:
        """Return grants that are not in use, if less is allowed now than before the rule changed."""
        for grant, amount in before:
            grant.forget_grants(keeps_lease=self.amount_of(grant.ledger) >= amount)


class LeasedConcurrency(ConcurrencyCounter, LeasedEscrow):
    """Concurrency slots. This gateway uses the slots that Redis granted to it."""

    __slots__ = ("_grant", "_grants", "_link")

    takes_at_once: ClassVar[bool] = False
    has_slots: ClassVar[bool] = True
    keep_seconds: ClassVar[int] = _KEEP_SLOTS_SECONDS

    def __init__(self, rule: LimitSpec, subject: str, link: LeaseConnection) -> None:
        super().__init__(rule, subject)
        self._link, self._grants, self._grant = link, {}, None

    def adopt(self, rule: LimitSpec, now_ns: int) -> None:
        """Adopt a changed rule. If less is allowed now, what is granted and not in use is given back."""
        before = self._amounts()
        super().adopt(rule, now_ns)
        self._give_back(before)

    def room(self, now_ns: int, claimant: str = "") -> int:
        """Return how much of the grant can be taken now. May be negative."""
        return self._granted_room(now_ns)

    def take(self, amount: int, now_ns: int, claimant: str = "") -> Mark:
        """Reserve slots. The caller has checked that they fit."""
        mark = super().take(amount, now_ns, claimant)
        self.grant.note_taken(amount)
        return mark

    def settle(self, mark: Mark, taken: int, charged: int, now_ns: int) -> None:
        """Release slots."""
        super().settle(mark, taken, charged, now_ns)
        self._note_settled(mark)

    def state(self, now_ns: int) -> CounterState:
        """Return the counter's state over all gateways, as far as known."""
        return self._state_of_all(super().state(now_ns))

    def is_idle(self, now_ns: int) -> bool:
        """Return whether nothing is granted, reserved, or waiting to be reported."""
        is_idle = super().is_idle(now_ns)
        return self._is_all_settled() and is_idle


class LeasedConversation(ConversationCounter, LeasedEscrow):
    """One conversation, whose requests may reach several gateways. It is forgotten after a day without a charge."""

    __slots__ = ("_grant", "_grants", "_link")

    takes_at_once: ClassVar[bool] = False

    def __init__(self, rule: LimitSpec, subject: str, link: LeaseConnection) -> None:
        super().__init__(rule, subject)
        self._link, self._grants, self._grant = link, {}, None

    def adopt(self, rule: LimitSpec, now_ns: int) -> None:
        """Adopt a changed rule. If less is allowed now, what is granted and not in use is given back."""
        before = self._amounts()
        super().adopt(rule, now_ns)
        self._give_back(before)

    def room(self, now_ns: int, claimant: str = "") -> int:
        """Return how much of the grant can be taken now. May be negative."""
        if now_ns >= self._until_ns:
            self._turn(now_ns)
        return self._granted_room(now_ns)

    def take(self, amount: int, now_ns: int, claimant: str = "") -> Mark:
        """Reserve `amount` now. The caller has checked that it fits."""
        mark = super().take(amount, now_ns, claimant)
        self.grant.note_taken(amount)
        return mark

    def settle(self, mark: Mark, taken: int, charged: int, now_ns: int) -> None:
        """Settle the reservation that `take` returned `mark` for: charge `charged` of its `taken`, release the rest."""
        super().settle(mark, taken, charged, now_ns)
        self._note_settled(mark)

    def state(self, now_ns: int) -> CounterState:
        """Return the conversation's state over all gateways, as far as known."""
        return self._state_of_all(super().state(now_ns))

    def is_idle(self, now_ns: int) -> bool:
        """Return whether nothing is granted, reserved, or waiting to be reported."""
        is_idle = super().is_idle(now_ns)
        return self._is_all_settled() and is_idle


class LeasedBudget(BudgetCounter, LeasedEscrow):
    """One budget. `settled` is the amount settled by this gateway; `on_settled` receives the totals of all gateways."""

    __slots__ = ("_grant", "_grants", "_link", "_tell_total")

    takes_at_once: ClassVar[bool] = False
    is_leased: ClassVar[bool] = True
    keep_seconds: ClassVar[int] = _KEEP_BUDGET_SECONDS

    def __init__(
        self,
        rule: BudgetSpec,
        subject: str,
        link: LeaseConnection,
        on_settled: OnSettled | None = None,
        on_settled_late: OnSettledLate | None = None,
    ) -> None:
        super().__init__(rule, subject, None, on_settled_late)
        self._link, self._grants, self._grant = link, {}, None
        self._tell_total = on_settled

    @property
    def settled_by_all(self) -> int:
        """Return what all gateways have settled in the current period, as far as known."""
        return self.grant.total

    def room(self, now_ns: int, claimant: str = "") -> int:
        """Return how much of the grant can be taken now. May be negative."""
        if now_ns >= self._until_ns:
            self._turn(now_ns)
        if self._ceiling >= UNLIMITED:
            return super().room(now_ns, claimant)
        return self._granted_room(now_ns)

    def take(self, amount: int, now_ns: int, claimant: str = "") -> Mark:
        """Reserve `amount` now. The caller has checked that it fits."""
        mark = super().take(amount, now_ns, claimant)
        self.grant.note_taken(amount)
        return mark

    def settle(self, mark: Mark, taken: int, charged: int, now_ns: int) -> None:
        """Settle the reservation that `take` returned `mark` for: charge `charged` of its `taken`, release the rest."""
        super().settle(mark, taken, charged, now_ns)
        self._note_settled(mark)
        if mark is self._period:
            grant = self.grant
            total = grant.total
            self.on_total(grant, total - charged, total)

    def state(self, now_ns: int) -> CounterState:
        """Return the budget's state over all gateways, as far as known. If it is not in effect, nothing is used."""
        state = self._state_of_all(super().state(now_ns))
        if self._period is None:
            return CounterState(state.amount, 0, 0, None)
        return CounterState(state.amount, state.used + self._adjusted, state.reserved, state.reset_seconds)

    def is_idle(self, now_ns: int) -> bool:
        """Return whether nothing is granted, reserved, or waiting to be reported."""
        is_idle = super().is_idle(now_ns)
        return self._is_all_settled() and is_idle

    def amount_of(self, ledger: Ledger) -> int:
        """Return the amount that all gateways together may settle and reserve in a period, including recounts."""
        if not isinstance(ledger, PeriodLedger):
            return self.rule.amount
        return max(self.rule.amount - self.rule.adjusted(self.subject, ledger.period_start_ns), 0)

    def overdraw(self, amount: int, now_ns: int) -> None:
        """Record usage that exceeds the budget and cannot be charged to it."""
        super().overdraw(amount, now_ns)
        if self._period is not None:
            self.on_total(self.grant, self.grant.total, self.grant.total)

    def restore(self, period_start_ns: int, settled: int, overdraft: int = 0) -> bool:
        """Restore what this gateway settled before a restart; Redis keeps the greater of it and its own count.

        Return whether it was restored: False if another period has started meanwhile.
        """
        is_taken = super().restore(period_start_ns, settled, overdraft)
        if is_taken:
            self._link.active[self.grant] = None
            self.on_total(self.grant, self.grant.total, self.grant.total)
        return is_taken

    def adopt(self, rule: BudgetSpec, now_ns: int) -> None:
        """Adopt a changed rule. If its period differs, its usage is sent to Redis under the new period."""
        before = self._amounts()
        super().adopt(rule, now_ns)
        self._give_back(before)
        for name, grant in list(self._grants.items()):
            if grant.key != self.key_of(grant.ledger):
                del self._grants[name]
                self._grant = None
                self._link.active.pop(grant, None)

    def on_total(self, grant: LeaseGrant, before: int, after: int) -> None:
        """Report the total that all gateways have settled in the current period."""
        if self._tell_total is not None and grant.ledger is self._period:
            self._tell_total(self, before + self._adjusted, after + self._adjusted)

    def key_of(self, ledger: Ledger) -> str:
        """Return the key of a period in Redis, which contains its start."""
        start_ns = ledger.period_start_ns if isinstance(ledger, PeriodLedger) else "unbound"
        return f"{self._link.prefix}{self.rule.metric}.{self.rule.period}.{start_ns}:{self.rule.id}:{self.subject}"


AnyLeasedEscrow: TypeAlias = LeasedConcurrency | LeasedConversation | LeasedBudget
