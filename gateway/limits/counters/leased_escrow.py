"""Slots, conversations and budgets that several gateways share: this one uses what it was granted beforehand.

They count as in memory (`escrow.py`, `budget.py`), except that the ceiling is what this gateway was granted. Grants
bind to the gateway's life: one that cannot renew it stops using them before others may take them.
"""

from collections.abc import Sequence
from typing import Any, Final

from backends.counters.amounts import joined, split
from backends.counters.courier import Keys
from contracts.rules.limits import BudgetSpec, LimitSpec
from gateway.limits.budgets.budget import UNLIMITED, BudgetCounter, OnSettled, OnSettledLate, PeriodLedger
from gateway.limits.counters.base import CounterState, Mark
from gateway.limits.counters.escrow import ConcurrencyCounter, ConversationCounter, EscrowCounter, Ledger
from gateway.limits.counters.lease_link import Consumption, Link, Pace

_SECOND_NS: Final = 1_000_000_000
_ESCROW: Final = 2  # what the script calls this kind of line
_AHEAD_SECONDS: Final = 0.3
_KEPT_SECONDS: Final = 1.0  # what is granted without demand is given back after this
_EVERY_SECONDS: Final = 0.1
_LEAST_SECONDS: Final = 0.05
_WATCHED_SECONDS: Final = 2.0  # what is granted or counted for others is looked at this often
_LEASE_WATCHED_SECONDS: Final = 1.0  # a lease that others may be short of
_RESTING_WATCHED_SECONDS: Final = 10.0  # a small one, of a budget that nobody uses now
_LEASED_PART: Final = 4  # a lease is at most this part of what is left of a budget,
_RESTING_PART: Final = 100  # and of one that nobody uses now this part
_DAY_SECONDS: Final = 86_400
_KEEP_SLOTS_SECONDS: Final = 3600
_KEEP_BUDGET_SECONDS: Final = 400 * _DAY_SECONDS


class Grant:
    """What this gateway was granted of one stretch of time, and what all others have of it."""

    __slots__ = (
        "_clock",
        "_link",
        "_own_sent",
        "_reserved_sent",
        "_told",
        "_told_ns",
        "alone",
        "changed_ns",
        "consumption",
        "base",
        "counter",
        "granted",
        "is_fresh",
        "is_refused",
        "is_short",
        "key",
        "ledger",
        "others",
        "pace",
        "theirs",
    )

    def __init__(self, counter: "LeasedEscrow", ledger: Ledger, key: str, link: Link) -> None:
        self.counter = counter
        self.ledger = ledger
        self.key = key
        self._link = link
        self._clock = link.clock
        self.pace = Pace()
        self.consumption = Consumption()
        self.granted = 0  # of what is reserved and settled since this process began to count
        self.base = 0  # settled under this gateway's name before
        self.others = 0  # all that others may use
        self.theirs = 0  # what they have settled
        self.alone: int | None = None  # what this gateway may use while Redis is away
        self.is_fresh = True  # Redis has not yet said what was settled under this name
        self.is_short = False
        self.is_refused = False  # a request, for want of a lease, since Redis has been away
        self._told: tuple[int, int, int] | None = None
        self._told_ns = 0
        self.changed_ns = link.clock.now_ns()  # when anything was last reserved or settled (monotonic)
        self._own_sent = self._reserved_sent = 0

    @property
    def restored(self) -> int:
        """Return what of the ledger's total was settled before this process."""
        return self.ledger.restored if isinstance(self.ledger, PeriodLedger) else 0

    @property
    def settled_before(self) -> int:
        """Return what was settled under this gateway's name before this process, by its own books or by Redis'."""
        return max(self.base, self.restored)

    @property
    def own(self) -> int:
        """Return the amount that this process has settled."""
        return self.ledger.settled - self.restored

    @property
    def spare(self) -> int:
        """Return what is granted and not in use."""
        return self.granted - self.own - self.ledger.reserved

    @property
    def used(self) -> int:
        """Return what counts of this gateway: settled by its name, and reserved."""
        return self.settled_before + self.own + self.ledger.reserved

    def pack(self, keys: Keys, need: int, is_seek: bool) -> list[object]:
        """Return the line to send. From this moment on no more is used than will surely be left."""
        mono_ns = self._clock.now_ns()
        ahead = 0 if self.counter.is_counting_only else self.target(mono_ns)
        own, reserved = self.own, self.ledger.reserved
        kept = max(need, ahead) if is_seek and self.counter.is_leased else max(need, 0) if is_seek else ahead
        self.granted = own + reserved + min(self.spare, kept)
        self._own_sent, self._reserved_sent = own, reserved
        self._told_ns = mono_ns
        self._told = (own, reserved, self.settled_before)
        return [
            _ESCROW,
            keys.place(self.key),
            0,
            split(self.counter.amount_of(self.ledger)),
            self.counter.keep_seconds,
            int(self.is_fresh),
            max(mono_ns - self.changed_ns, 0) // 1000,
            split(self.settled_before),
            split(own),
            split(reserved),
            split(need),
            split(max(need, 0) + ahead if is_seek else ahead),
            int(self.counter.is_leased),
        ]

    def deliver(self, result: Sequence[Any]) -> None:
        """Receive what was granted, and how it stands for all gateways."""
        base, spare, others, settled, is_short, _ = result
        before = None if self.is_fresh else self.total
        self.base = joined(base)
        self.is_fresh = False
        self.granted = self._own_sent + self._reserved_sent + joined(spare)
        self.others = joined(others)
        self.theirs = joined(settled) - self.base - self._own_sent
        self.is_short = bool(is_short)
        if before is not None and self.total > before:
            self.counter.on_total(self, before, self.total)

    def undo(self) -> None:
        """Report again what was not taken."""
        self._told = None
        self._link.active[self] = None

    @property
    def total(self) -> int:
        """Return what all gateways have settled, as far as is known."""
        return self.theirs + self.settled_before + self.own

    def target(self, now_ns: int) -> int:
        """Return the amount that should be leased and unused."""
        if self.is_short or self._link.is_closing:
            return 0
        soon = min(self.pace.expected(_AHEAD_SECONDS, _KEPT_SECONDS, now_ns), self.counter.rule.amount)
        if not self.counter.is_leased:
            return soon
        left = max(self.counter.amount_of(self.ledger) - self.others - self.used, 0)
        minute = min(self.consumption.minute(self.own + self.ledger.reserved, now_ns), left // _LEASED_PART)
        return max(soon, minute, min(self.consumption.resting(now_ns), left // _RESTING_PART))

    def is_due(self, now_ns: int) -> bool:
        """Return whether grants run low or are too many, or uses have waited long enough to be told."""
        passed = (now_ns - self._told_ns) / _SECOND_NS
        if passed < _LEAST_SECONDS:
            return False
        if self._told != (self.own, self.ledger.reserved, self.settled_before) and passed >= _EVERY_SECONDS:
            return True
        if passed >= self._watched_seconds(now_ns) or self._told is None:
            return True
        if self.counter.is_counting_only:
            return False
        target = self.target(now_ns)
        if self.is_short:
            return self.spare > 0 or passed >= 1.0
        return 2 * self.spare < target or self.spare > 3 * target

    def _watched_seconds(self, now_ns: int) -> float:
        if not self.counter.is_leased or self.counter.is_counting_only:
            return _WATCHED_SECONDS
        return _RESTING_WATCHED_SECONDS if self.consumption.is_resting(now_ns) else _LEASE_WATCHED_SECONDS

    def is_settled(self) -> bool:
        """Return whether nothing is granted beyond what was settled, and all of that told."""
        return not self.ledger.reserved and self.spare <= 0 and self._told == (self.own, 0, self.settled_before)

    def forget_grants(self, *, keeps_lease: bool = False) -> None:
        """Use no more of what was granted until it is granted again."""
        if not (keeps_lease and self.counter.is_leased):
            self.granted = self.own + self.ledger.reserved
        self._told = None
        self._link.active[self] = None

    def forget_data(self) -> None:
        """Report again what this gateway has settled, whatever it was before."""
        self.forget_grants()
        self.others = self.theirs = 0

    def give_up_excess(self) -> None:
        """Release what the rule, lowered since, does not allow any more."""
        excess = self.spare - max(self.counter.amount_of(self.ledger) - self.used, 0)
        if excess > 0 and not self.counter.is_counting_only:
            self.granted -= excess

    def room(self, mono_ns: int) -> int:
        """Return how much may be used now."""
        if not self._link.is_away:
            self.alone = None
        until_ns = self._link.lease_until_ns if self.counter.is_leased else self._link.usable_until_ns
        usable = self.spare if mono_ns < until_ns else min(self.spare, 0)
        if self._link.is_away and self.counter.rule.when_away == "share":
            return max(usable, self._share())
        return usable

    def is_used_up(self, away_ns: int, now_ns: int) -> bool | None:
        """Return whether requests are refused while Redis is away (since `away_ns`); `None` if there were none."""
        if self.consumption.is_resting(away_ns) and not self.is_refused:
            return None
        return self.room(now_ns) < max(int(self.pace.portion), 1)

    def _share(self) -> int:
        """Return what is left of this gateway's share, set when Redis went away: of all slots, else of what
        remained.
        """
        if self.alone is None:
            remained = max(self.counter.amount_of(self.ledger) - self.others - self.used, 0)
            self.alone = self.used + remained // self._link.gateways
        if self.counter.has_slots:
            return self.counter.rule.amount // self._link.gateways - self.ledger.reserved
        return self.alone - self.used


class LeasedEscrow(EscrowCounter):
    """What all counters on grants do alike. Comes before a counter in memory among the bases, and replaces its room."""

    __slots__ = ()

    takes_at_once = False
    has_slots = False
    is_leased = False  # what is granted outlasts this gateway's life, so that it covers a minute without Redis
    keep_seconds = _DAY_SECONDS
    _link: Link
    _grants: dict[int, Grant]  # by the identity of its ledger, which it holds

    @property
    def is_counting_only(self) -> bool:
        """Return whether it never refuses, and so needs no grants."""
        return self._ceiling >= UNLIMITED

    @property
    def grant(self) -> Grant:
        """Return the grant of the time that is under way."""
        grant = self._grants.get(id(self._ledger))
        if grant is None or grant.ledger is not self._ledger:
            grant = self._grants[id(self._ledger)] = Grant(self, self._ledger, self.key_of(self._ledger), self._link)
        return grant

    def adopt(self, rule: Any, now_ns: int) -> None:
        """Go on under a changed rule. If less is allowed now, what is granted and not in use is given back."""
        before = {grant: self.amount_of(grant.ledger) for grant in self._grants.values()}
        super().adopt(rule, now_ns)  # type: ignore[misc]  # the counter in memory that stands beside this base
        for grant, amount in before.items():
            grant.forget_grants(keeps_lease=self.amount_of(grant.ledger) >= amount)

    def grants(self) -> list[Grant]:
        """Return the grants of all stretches of time that may still move."""
        return list(self._grants.values())

    def key_of(self, ledger: Ledger) -> str:
        """Return the key of a stretch of time."""
        rule = self.rule
        kind = "conversation" if rule.scope.level == "conversation" else "held"
        return f"{self._link.prefix}{rule.metric}.{kind}:{rule.id}:{self.subject}"

    def amount_of(self, ledger: Ledger) -> int:
        """Return the amount that all gateways together may settle and reserve in one period."""
        return self.rule.amount

    def room(self, now_ns: int, claimant: str = "") -> int:
        """Return how much could be taken at this moment of what was granted. May be negative."""
        mono_ns = self._link.clock.now_ns(now_ns)
        if now_ns >= self._until_ns:
            self._turn(now_ns)
        if self._ceiling >= UNLIMITED:
            return super().room(now_ns, claimant)
        return self.grant.room(mono_ns)

    def take(self, amount: int, now_ns: int, claimant: str = "") -> Mark:
        """Reserve `amount` now. The caller has checked that it fits."""
        mark = super().take(amount, now_ns, claimant)
        grant = self.grant
        grant.changed_ns = self._link.clock.now_ns(now_ns)
        grant.pace.take(amount, grant.changed_ns)
        if self.is_leased:
            reserved = grant.ledger.reserved - amount
            grant.consumption.note(amount, grant.own + reserved, reserved, grant.changed_ns)
        self._link.active[grant] = None
        self._link.takes += 1
        return mark

    def settle(self, mark: Mark, taken: int, charged: int, now_ns: int) -> None:
        """End a reservation of `taken` made under `mark`: `charged` (0 to `taken`) stays, the rest is given back."""
        super().settle(mark, taken, charged, now_ns)
        grant = self._grants.get(id(mark))
        if grant is not None:
            grant.changed_ns = self._link.clock.now_ns(now_ns)
            grant.give_up_excess()
            self._link.active[grant] = None

    def state(self, now_ns: int) -> CounterState:
        """Return how the counter stands for all gateways, as far as is known."""
        own = super().state(now_ns)
        grant = self.grant
        used = grant.used + grant.others
        return CounterState(own.amount, used, own.reserved, own.reset_seconds)

    def is_idle(self, now_ns: int) -> bool:
        """Return whether nothing is granted, reserved, or still to be told."""
        idle = super().is_idle(now_ns)
        for name, grant in list(self._grants.items()):
            if grant.ledger is not self._ledger and grant.is_settled():
                del self._grants[name]
        return idle and all(grant.is_settled() for grant in self._grants.values())

    def on_total(self, grant: Grant, before: int, after: int) -> None:
        """Record the total that all gateways have settled."""

    def earmark(self, amount: int) -> list[tuple[Ledger, int]]:
        """Set an amount aside for a request that will take it in a moment."""
        self._ledger.reserved += amount
        return [(self._ledger, amount)]

    def release(self, aside: Sequence[tuple[Ledger, int]]) -> None:
        """Put back what was set aside."""
        for ledger, amount in aside:
            ledger.reserved -= amount


class LeasedConcurrency(LeasedEscrow, ConcurrencyCounter):
    """Slots, of which this gateway uses those it was granted."""

    __slots__ = ("_grants", "_link")

    has_slots = True
    keep_seconds = _KEEP_SLOTS_SECONDS

    def __init__(self, rule: LimitSpec, subject: str, link: Link) -> None:
        super().__init__(rule, subject)
        self._link, self._grants = link, {}


class LeasedConversation(LeasedEscrow, ConversationCounter):
    """One conversation, which may come to one gateway and to another. It ends when nothing was charged for a day."""

    __slots__ = ("_grants", "_link")

    def __init__(self, rule: LimitSpec, subject: str, link: Link) -> None:
        super().__init__(rule, subject)
        self._link, self._grants = link, {}


class LeasedBudget(LeasedEscrow, BudgetCounter):
    """One budget. `settled` is this gateway's part; `on_settled` is told of the totals of all gateways."""

    __slots__ = ("_grants", "_link", "_tell_total")

    is_leased = True
    keep_seconds = _KEEP_BUDGET_SECONDS

    def __init__(
        self,
        rule: BudgetSpec,
        subject: str,
        link: Link,
        on_settled: OnSettled | None = None,
        on_settled_late: OnSettledLate | None = None,
    ) -> None:
        super().__init__(rule, subject, None, on_settled_late)
        self._link, self._grants = link, {}
        self._tell_total = on_settled

    @property
    def settled_by_all(self) -> int:
        """Return what all gateways have settled in the period under way, as far as is known."""
        return self.grant.total

    def settle(self, mark: Mark, taken: int, charged: int, now_ns: int) -> None:
        """End a reservation of `taken` made under `mark`: `charged` (0 to `taken`) stays, the rest is given back."""
        super().settle(mark, taken, charged, now_ns)
        if mark is self._period:
            total = self.grant.total
            self.on_total(self.grant, total - charged, total)

    def state(self, now_ns: int) -> CounterState:
        """Return how the budget stands for all gateways, as far as is known; nothing is used where it does not bind."""
        state = super().state(now_ns)
        if self._period is None:
            return CounterState(state.amount, 0, 0, None)
        return CounterState(state.amount, state.used + self._adjusted, state.reserved, state.reset_seconds)

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
        super().adopt(rule, now_ns)
        for name, grant in list(self._grants.items()):
            if grant.key != self.key_of(grant.ledger):
                del self._grants[name]
                self._link.active.pop(grant, None)

    def on_total(self, grant: Grant, before: int, after: int) -> None:
        """Report the total that all gateways have settled in the current period."""
        if self._tell_total is not None and grant.ledger is self._period:
            self._tell_total(self, before + self._adjusted, after + self._adjusted)

    def key_of(self, ledger: Ledger) -> str:
        """Return the key of a period, which carries its start."""
        start_ns = ledger.period_start_ns if isinstance(ledger, PeriodLedger) else "unbound"
        return f"{self._link.prefix}{self.rule.metric}.{self.rule.period}.{start_ns}:{self.rule.id}:{self.subject}"
