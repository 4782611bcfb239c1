"""What this gateway was granted of one period of a shared budget, concurrency limit or conversation, and its usage."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from backends.counters.amounts import joined, split
from backends.counters.batch_sender import Keys
from contracts.rules.limits import Rule
from gateway.limits.budgets.budget import PeriodLedger
from gateway.limits.counters.escrow import Ledger
from gateway.limits.counters.lease_connection import Consumption, LeaseConnection, Pace

if TYPE_CHECKING:
    from gateway.limits.counters.leased_escrow import LeasedEscrow

_SECOND_NS: Final = 1_000_000_000
_ESCROW: Final = 2  # the script's code for this kind of line
_AHEAD_SECONDS: Final = 0.3
_KEPT_SECONDS: Final = 1.0  # grants without demand are returned after this time
_EVERY_SECONDS: Final = 0.1
_LEAST_SECONDS: Final = 0.05
_WATCHED_SECONDS: Final = 2.0  # interval for checking grants, and counts on behalf of others
_LEASE_WATCHED_SECONDS: Final = 1.0  # the same for a lease that others may be short of
_RESTING_WATCHED_SECONDS: Final = 10.0  # the same for a small lease of an unused budget
_LEASED_PART: Final = 4  # a lease is at most this fraction of a budget's remaining amount,
_RESTING_PART: Final = 100  # and this fraction if the budget is not in use


class LeaseGrant:
    """What this gateway was granted of one period, and what all other gateways have of it."""

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

    def __init__(self, counter: "LeasedEscrow", ledger: Ledger, key: str, link: LeaseConnection) -> None:
        self.counter = counter
        self.ledger = ledger
        self.key = key
        self._link = link
        self._clock = link.clock
        self.pace = Pace()
        self.consumption = Consumption()
        self.granted = 0  # of what was reserved and settled since this process started to count
        self.base = 0  # settled under this gateway's name before that
        self.others = 0  # maximum that all others may use
        self.theirs = 0  # settled by all others
        self.alone: int | None = None  # what this gateway may use while Redis is unreachable
        self.is_fresh = True  # Redis has not yet returned what was settled under this name
        self.is_short = False
        self.is_refused = False  # a request was refused for lack of a lease since Redis became unreachable
        self._told: tuple[int, int, int] | None = None
        self._told_ns = 0
        self.changed_ns = link.clock.now_ns()  # time of the last reservation or settlement (monotonic)
        self._own_sent = self._reserved_sent = 0

    @property
    def _rule(self) -> Rule:
        rule: Rule = self.counter.rule
        return rule

    @property
    def restored(self) -> int:
        """Return the part of the ledger's total that was settled before this process started."""
        return self.ledger.restored if isinstance(self.ledger, PeriodLedger) else 0

    @property
    def settled_before(self) -> int:
        """Return what was settled under this gateway's name before this process, by its own ledger or by Redis."""
        return max(self.base, self.restored)

    @property
    def own(self) -> int:
        """Return the amount that this process has settled."""
        return self.ledger.settled - self.restored

    @property
    def spare(self) -> int:
        """Return the amount that is granted and not in use."""
        return self.granted - self.own - self.ledger.reserved

    @property
    def used(self) -> int:
        """Return this gateway's usage: settled under its name, and reserved."""
        return self.settled_before + self.own + self.ledger.reserved

    def note_taken(self, amount: int) -> None:
        """Record that an amount was reserved. If the counter is leased, it also counts as a budget's consumption."""
        now_ns = self.changed_ns = self._clock.now_ns()
        self.pace.take(amount, now_ns)
        if self.counter.is_leased:
            reserved = self.ledger.reserved - amount
            self.consumption.note(amount, self.own + reserved, reserved, now_ns)
        self._link.active[self] = None
        self._link.takes += 1

    def note_settled(self) -> None:
        """Record that a reservation has ended."""
        self.changed_ns = self._clock.now_ns()
        self.give_up_excess()
        self._link.active[self] = None

    def pack(self, keys: Keys, need: int, is_seek: bool) -> list[object]:
        """Return the line to send. From now on no more is used than will certainly remain."""
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
        """Accept what was granted, and the state of all gateways."""
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
        """Mark the packed changes as not reported."""
        self._told = None
        self._link.active[self] = None

    @property
    def total(self) -> int:
        """Return what all gateways have settled, as far as known."""
        return self.theirs + self.settled_before + self.own

    def target(self, now_ns: int) -> int:
        """Return the amount that should be leased and unused."""
        if self.is_short or self._link.is_closing:
            return 0
        soon = min(self.pace.expected(_AHEAD_SECONDS, _KEPT_SECONDS, now_ns), self._rule.amount)
        if not self.counter.is_leased:
            return soon
        left = max(self.counter.amount_of(self.ledger) - self.others - self.used, 0)
        minute = min(self.consumption.minute(self.own + self.ledger.reserved, now_ns), left // _LEASED_PART)
        return max(soon, minute, min(self.consumption.resting(now_ns), left // _RESTING_PART))

    def is_due(self, now_ns: int) -> bool:
        """Return whether grants run low or exceed the target, or usage has waited long enough to be reported."""
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
        """Return whether the granted amount equals the settled amount, and all of it is reported."""
        return not self.ledger.reserved and self.spare <= 0 and self._told == (self.own, 0, self.settled_before)

    def forget_grants(self, *, keeps_lease: bool = False) -> None:
        """Stop using granted amounts until Redis grants them again. With `keeps_lease` budget leases stay valid."""
        if not (keeps_lease and self.counter.is_leased):
            self.granted = self.own + self.ledger.reserved
        self._told = None
        self._link.active[self] = None

    def forget_data(self) -> None:
        """Mark everything that this gateway has settled as not reported."""
        self.forget_grants()
        self.others = self.theirs = 0

    def give_up_excess(self) -> None:
        """Release the granted amount above the rule's current amount, if the rule was lowered."""
        excess = self.spare - max(self.counter.amount_of(self.ledger) - self.used, 0)
        if excess > 0 and not self.counter.is_counting_only:
            self.granted -= excess

    def room(self, mono_ns: int) -> int:
        """Return how much may be used now."""
        if not self._link.is_away:
            self.alone = None
        until_ns = self._link.lease_until_ns if self.counter.is_leased else self._link.usable_until_ns
        usable = self.spare if mono_ns < until_ns else min(self.spare, 0)
        if self._link.is_away and self._rule.when_away == "share":
            return max(usable, self._share())
        return usable

    def is_used_up(self, away_ns: int, now_ns: int) -> bool | None:
        """Return whether requests are refused while Redis is unreachable (since `away_ns`); `None` without requests."""
        if self.consumption.is_resting(away_ns) and not self.is_refused:
            return None
        return self.room(now_ns) < max(int(self.pace.portion), 1)

    def _share(self) -> int:
        """Return the rest of this gateway's share, set when Redis became unreachable: of all slots, else of the
        remaining amount.
        """
        if self.alone is None:
            remained = max(self.counter.amount_of(self.ledger) - self.others - self.used, 0)
            self.alone = self.used + remained // self._link.gateways
        if self.counter.has_slots:
            return self._rule.amount // self._link.gateways - self.ledger.reserved
        return self.alone - self.used
