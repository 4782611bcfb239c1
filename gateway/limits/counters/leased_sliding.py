"""Sliding windows shared by several gateways: each charges what was leased to it in advance.

Time is divided into buckets as in memory (`sliding.py`), by Redis' clock. A lease may be used until the end of its end
bucket e, and counts in every window up to the last that contains e. Once its use at bucket n is reported, it counts as
a charge in n. If a use's bucket is uncertain, because the clocks are known only within an error, it stays counted as
the lease.

Leases and unsettled charges belong to the gateway's session: Redis frees them once it has ended.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from backends.counters.amounts import deltas, joined, merge, split
from backends.counters.batch_sender import Keys
from contracts.rules.limits import LimitSpec, Window
from gateway.limits.counters.base import CounterState, Mark
from gateway.limits.counters.lease_connection import LeaseConnection, Pace
from gateway.limits.counters.open_charges import OpenCharges

_MILLISECOND_NS: Final = 1_000_000
_SECOND_NS: Final = 1_000_000_000
# Buckets in a window, one's length in us, then in buckets: how long a lease and a held place live beyond the bucket
# they begin in, and what places are aligned to. In seconds: what is leased ahead, and how often uses are reported.
_GRIDS: Final[dict[Window, tuple[int, int, int, int, int, float, float]]] = {
    "second": (40, 25_000, 8, 10, 4, 0.15, 0.05),
    "minute": (60, 1_000_000, 2, 2, 1, 0.5, 0.25),
    "hour": (60, 60_000_000, 1, 1, 1, 1.0, 0.5),
    "day": (96, 900_000_000, 1, 1, 1, 1.0, 0.5),
}
_KEPT_SECONDS: Final = 10.0  # a lease without demand is returned after this time, or at its end
_WATCHED_SECONDS: Final = 1.0  # interval for checking unused leases
_WINDOW: Final = 1  # the script's code for this kind of line


class Lease:
    """An amount that may be charged until the end of bucket `end`; `until_ns` is a safe lower bound of that
    (monotonic).
    """

    __slots__ = ("end", "left", "until_ns")

    def __init__(self, end: int, left: int, until_ns: int) -> None:
        self.end = end
        self.left = left
        self.until_ns = until_ns


class BucketCharge(Mark):
    """An amount that was charged in one bucket, as most are. All charges in a bucket share this object."""

    __slots__ = ("bucket",)

    def __init__(self, bucket: int) -> None:
        self.bucket = bucket


class Charge(Mark):
    """Where an amount was charged, in order: (is it counted as a lease, bucket, amount)."""

    __slots__ = ("pieces",)

    def __init__(self, pieces: list[tuple[bool, int, int]]) -> None:
        self.pieces = pieces


class LeasedSliding:
    """This gateway's part of one limit's count for one subject over a sliding window."""

    takes_at_once: ClassVar[bool] = False

    def __init__(self, rule: LimitSpec, subject: str, link: LeaseConnection) -> None:
        assert rule.window is not None
        self.rule = rule
        self.subject = subject
        self._link = link
        self._clock = link.clock
        self._buckets, self._bucket_us, self._life, self._hold, self._align, self._ahead, self._every = _GRIDS[
            rule.window
        ]
        self._width_ns = self._bucket_us * 1000
        self.key = f"{link.prefix}{rule.metric}.{rule.window}:{rule.id}:{subject}"
        self._pool = 0  # remaining amount of all leases
        self._leases: list[Lease] = []
        self._first_end_ns = 1 << 100
        self._pace = Pace()
        self._reserved = 0
        self._charged: dict[int, int] = {}  # by this gateway, per bucket
        self._uncertain: dict[int, int] = {}  # the part of it that is counted as a lease, per end bucket
        self._open = OpenCharges()
        self._moved: tuple[dict[int, int], dict[int, int]] = ({}, {})  # changes of both to report
        self._sent: tuple[dict[int, int], dict[int, int]] = ({}, {})
        self._own_when_sent = 0
        self._others = 0
        self._others_newest = 0
        self._told_ns = 0
        self._bucket = 0
        self._is_certain = False
        # What was charged in one bucket of one lease since `_own` or `_is_reported` last wrote the books, one of which
        # is asked before these are read: most requests change these numbers alone.
        self._run = BucketCharge(-1)
        self._run_end = 0  # of the lease
        self._run_leased = self._run_charged = self._run_open = 0
        self._certain_from_ns = self._certain_until_ns = 0  # period in which both are known to hold (monotonic)
        self._is_short = False
        self._is_asked = False  # leases were requested and not yet answered

    def room(self, now_ns: int, claimant: str = "") -> int:
        """Return how much can be taken now: from the leases, or from a share while Redis is unreachable."""
        mono_ns = self._clock.now_ns(now_ns)
        if mono_ns >= self._first_end_ns:
            self._end_leases(mono_ns)
        usable = self._pool if mono_ns < self._link.usable_until_ns else 0
        if self._link.is_away and self.rule.when_away == "share":
            return max(usable, self.rule.amount // self._link.gateways - self._own(mono_ns))
        return usable

    def take(self, amount: int, now_ns: int, claimant: str = "") -> Mark:
        """Charge `amount` now, from the leases that end first. An amount beyond them is charged as well."""
        mono_ns = self._clock.now_ns(now_ns)
        if not self._certain_from_ns <= mono_ns < self._certain_until_ns:
            self._place(mono_ns)
        self._reserved += amount
        self._pace.take(amount, mono_ns)
        self._link.takes += 1
        self._link.active[self] = None
        bucket = self._bucket
        if self._is_certain:
            for lease in self._leases:
                if lease.left >= amount and lease.end >= bucket:
                    return self._take_of(lease, amount, bucket)
                if lease.left:
                    break
        return self._take_of_several(amount, bucket, is_certain=self._is_certain)

    def _take_of(self, lease: Lease, amount: int, bucket: int) -> BucketCharge:
        run = self._run
        if run.bucket != bucket or self._run_end != lease.end:
            self._write()
            run = self._run = BucketCharge(bucket)
            self._run_end = lease.end
        lease.left -= amount
        self._pool -= amount
        self._run_leased += amount
        self._run_charged += amount
        self._run_open += amount
        return run

    def _take_of_several(self, amount: int, bucket: int, *, is_certain: bool) -> Charge:
        charges, leases = self._moved
        pieces: list[tuple[bool, int, int]] = []
        left = amount
        for lease in self._leases:
            if not left:
                break
            used = min(left, lease.left)
            if not used or lease.end < bucket:
                continue
            lease.left -= used
            left -= used
            self._pool -= used
            if is_certain:
                leases[lease.end] = leases.get(lease.end, 0) - used
                charges[bucket] = charges.get(bucket, 0) + used
                self._charged[bucket] = self._charged.get(bucket, 0) + used
                pieces.append((False, bucket, used))
            else:
                self._uncertain[lease.end] = self._uncertain.get(lease.end, 0) + used
                pieces.append((True, lease.end, used))
        if left:
            charges[bucket] = charges.get(bucket, 0) + left
            self._charged[bucket] = self._charged.get(bucket, 0) + left
            pieces.append((False, bucket, left))
        self._open.begin(pieces)
        return Charge(pieces)

    def _write(self) -> None:
        """Add the charges of the current run to the counts by bucket."""
        if not (self._run_leased or self._run_charged or self._run_open):
            return
        leases, end = self._moved[1], self._run_end
        leases[end] = leases.get(end, 0) - self._run_leased
        self._change(self._run.bucket, self._run_charged, self._run_open)
        self._run_leased = self._run_charged = self._run_open = 0

    def _change(self, bucket: int, charged: int, opened: int) -> None:
        """Add amounts to a bucket's charges, and to the part of them whose requests are still running."""
        charges = self._moved[0]
        if charged:
            charges[bucket] = charges.get(bucket, 0) + charged
            self._charged[bucket] = self._charged.get(bucket, 0) + charged
        self._open.change(bucket, opened)

    def settle(self, mark: Mark, taken: int, charged: int, now_ns: int) -> None:
        """Settle the charge that `take` returned `mark` for: keep `charged` of its `taken`, refund the rest."""
        self._reserved -= taken
        self._open.is_told = False
        self._link.active[self] = None
        back = taken - charged
        oldest = self._bucket_at(self._clock.now_ns(now_ns)) - self._buckets
        if isinstance(mark, BucketCharge):
            back = back if mark.bucket >= oldest else 0
            if mark.bucket == self._run.bucket:
                self._run_open -= taken
                self._run_charged -= back
            else:
                self._change(mark.bucket, -back, -taken)
            return
        assert isinstance(mark, Charge)
        self._open.end(mark.pieces)
        while back and mark.pieces:
            is_uncertain, bucket, amount = mark.pieces.pop()
            part = min(back, amount)
            back -= part
            if part < amount:
                mark.pieces.append((is_uncertain, bucket, amount - part))
            if bucket < oldest:
                continue
            book, moved = (self._uncertain, self._moved[1]) if is_uncertain else (self._charged, self._moved[0])
            book[bucket] = book.get(bucket, 0) - part
            moved[bucket] = moved.get(bucket, 0) - part

    def state(self, now_ns: int) -> CounterState:
        """Return the counter's state: this gateway's charges as they are, those of others as last reported."""
        mono_ns = self._clock.now_ns(now_ns)
        own = self._own(mono_ns)
        bucket = self._bucket_at(mono_ns)
        window_ns = (self._buckets + 1) * self._width_ns
        others = self._others if mono_ns - self._told_ns <= window_ns else 0
        used = own + others
        if self._charged.get(bucket):  # as after each charge: nothing is newer
            newest = bucket
        else:
            newest = max(
                (n for book in (self._charged, self._uncertain) for n, amount in book.items() if amount), default=0
            )
            newest = min(max(newest, self._others_newest if others else 0), bucket)
        gone_ns = (newest + self._buckets + 1) * self._width_ns - mono_ns - self._clock.offset_ns
        reset_seconds = max(gone_ns, 0) / _SECOND_NS if used else 0.0
        return CounterState(self.rule.amount, used, min(self._reserved, used), reset_seconds)

    def is_idle(self, now_ns: int) -> bool:
        """Return whether this gateway has nothing reserved, leased, charged or waiting to be reported."""
        mono_ns = self._clock.now_ns(now_ns)
        return not self._reserved and self.is_settled() and not self._own(mono_ns)

    def adopt(self, rule: LimitSpec) -> None:
        """Continue under a changed amount. Leases under the old amount are returned."""
        self.rule = rule
        self._reduce_to(0)

    @property
    def is_short_with_leases(self) -> bool:
        """Return whether Redis has no room in the window, and part of it is leased here."""
        return self._is_short and self._pool > 0

    def earmark(self, amount: int) -> list[tuple[Lease, int]]:
        """Set part of the leased amount aside for a request that will take it shortly."""
        aside = []
        for lease in self._leases:
            part = min(amount, lease.left)
            if part:
                lease.left -= part
                self._pool -= part
                amount -= part
                aside.append((lease, part))
        self._open.begin([(True, lease.end, part) for lease, part in aside])
        return aside

    def release(self, aside: Sequence[tuple[Lease, int]]) -> None:
        """Release an amount that was set aside."""
        mono_ns = self._clock.now_ns()
        self._open.end([(True, lease.end, part) for lease, part in aside])
        for lease, part in aside:
            if lease.until_ns > mono_ns:
                self._add(lease.end, part, lease.until_ns)
            else:
                self._give_back(lease.end, part)

    def pack(self, keys: Keys, need: int, is_seek: bool) -> list[object]:
        """Return the line to send.

        A seek requests everything that it needs. If too little is leased, or Redis has reported that the window is
        short, all leases are returned so that they are counted again; otherwise they stay, for requests that arrive
        meanwhile.
        """
        mono_ns = self._clock.now_ns()
        self._end_leases(mono_ns)
        target = 0 if self._is_short else self._target(mono_ns)
        self._reduce_to(0 if is_seek and (self._is_short or self._pool < need) else 2 * target)
        self._own_when_sent = self._own(mono_ns) + self._pool
        charges, leases = self._moved
        merge(charges, self._sent[0])
        merge(leases, self._sent[1])
        self._moved = ({}, {})
        self._told_ns = mono_ns
        want = 0 if self._is_asked else max(target - self._pool, 0)
        self._is_asked = True
        return [
            _WINDOW,
            keys.place(self.key),
            keys.place(f"{self.key}:places"),
            split(self.rule.amount),
            self._buckets,
            self._bucket_us,
            self._life,
            self._hold,
            self._align,
            deltas(charges),
            deltas(leases),
            split(need),
            split(want),
            *self._open.pack(
                self._bucket_at(mono_ns) - self._buckets, [(each.end, each.left) for each in self._leases]
            ),
        ]

    def deliver(self, result: Sequence[Any]) -> None:
        """Accept an answer of Redis: the amounts leased, and the usage of all gateways in the window."""
        granted, used, self._others_newest, _, is_short, _ = result
        mono_ns = self._clock.now_ns()
        gained: dict[int, int] = {}
        for end, *parts in granted:
            amount = joined(parts)
            merge({end: amount}, gained)
            end_ns = (end + 1) * self._width_ns - self._clock.offset_ns
            until_ns = end_ns - 2 * self._clock.error_ns(mono_ns) - max(end_ns - mono_ns, 0) // 2500
            self._add(end, amount, until_ns)
        self._open.deliver(gained)
        self._others = max(joined(used) - sum(gained.values()) - self._own_when_sent, 0)
        self._is_short = bool(is_short)
        self._is_asked = False
        self._sent = ({}, {})
        if gained:
            self._link.active[self] = None

    def undo(self) -> None:
        """Mark the changes in the last `pack` as not reported."""
        for sent, moved in zip(self._sent, self._moved, strict=True):
            merge(sent, moved)
        self._sent = ({}, {})
        self._open.undo()
        self._is_asked = False
        self._link.active[self] = None

    def is_due(self, now_ns: int) -> bool:
        """Return whether leases run low or exceed the target, or usage has waited long enough to be reported."""
        if now_ns >= self._first_end_ns:
            self._end_leases(now_ns)
        passed_seconds = (now_ns - self._told_ns) / _SECOND_NS
        if passed_seconds < _GRIDS["second"][6]:
            return False
        if not self._is_reported():
            if passed_seconds >= self._every:
                return True
        if self._is_short:
            return self._pool > 0 or passed_seconds >= 1.0
        target = self._target(now_ns)
        if self._pool and passed_seconds >= _WATCHED_SECONDS:
            return True  # to learn whether others are short
        return 2 * self._pool < target or self._pool > 3 * target

    def is_settled(self) -> bool:
        """Return whether there is nothing to report, nothing leased and nothing expected."""
        return not self._pool and self._is_reported() and not self._target(self._clock.now_ns())

    def forget_grants(self, *, keeps_lease: bool = False) -> None:
        """Drop the leases of a session that Redis has ended, and report the usage of running requests again.

        Redis released that usage together with the leases.
        """
        self._reduce_to(0)
        for told, moved in zip(self._open.forget_told(), self._moved, strict=True):
            merge(told, moved)
        if not self._is_reported():
            self._link.active[self] = None

    def forget_data(self) -> None:
        """Drop leases that Redis does not know, and report all charges that still count."""
        self._leases, self._pool, self._first_end_ns = [], 0, 1 << 100
        self._own(self._clock.now_ns())
        self._moved = (dict(self._charged), dict(self._uncertain))
        self._open.forget_told()
        self._open.is_told = False
        self._others = 0
        self._link.active[self] = None

    def wait_alone(self, amount: int) -> float | None:
        """Return in how many seconds this gateway's share has room for an amount; `None` if it never has.

        Used while Redis is unreachable and the rule says `share`.
        """
        share = self.rule.amount // self._link.gateways
        if self.rule.when_away != "share" or amount > share:
            return None
        mono_ns = self._clock.now_ns()
        lacking = amount - (share - self._own(mono_ns))
        gone_ns = mono_ns
        for bucket, charged in sorted([*self._charged.items(), *self._uncertain.items()]):
            if lacking <= 0:
                break
            lacking -= charged
            gone_ns = (bucket + self._buckets + 1) * self._width_ns - self._clock.offset_ns
        return max(gone_ns - mono_ns, 0) / _SECOND_NS

    def _is_reported(self) -> bool:
        self._write()
        return self._open.is_told and not any(self._moved[0].values()) and not any(self._moved[1].values())

    def _target(self, now_ns: int) -> int:
        if self._link.is_closing:
            return 0
        kept_seconds = min(_KEPT_SECONDS, self._life * self._width_ns / _SECOND_NS)
        return min(self._pace.expected(self._ahead, kept_seconds, now_ns), self.rule.amount)

    def _place(self, mono_ns: int) -> None:
        """Compute the current bucket, and until when the result is valid."""
        error_ns = self._clock.error_ns(mono_ns)
        server_ns = mono_ns + self._clock.offset_ns
        self._bucket = (server_ns + error_ns) // self._width_ns
        self._is_certain = (server_ns - error_ns) // self._width_ns == self._bucket
        self._certain_from_ns = self._certain_until_ns = mono_ns
        if self._is_certain:
            # The error grows by less than a thousandth of what passes meanwhile.
            left_ns = (self._bucket + 1) * self._width_ns - server_ns - error_ns
            self._certain_until_ns = mono_ns + min(left_ns - left_ns // 1000, _SECOND_NS)

    def _bucket_at(self, mono_ns: int) -> int:
        return (mono_ns + self._clock.offset_ns) // self._width_ns

    def _own(self, mono_ns: int) -> int:
        """Return what this gateway has charged in the window that ends now, and drop what has left it."""
        self._write()
        oldest = self._bucket_at(mono_ns) - self._buckets
        total = 0
        for book in (self._charged, self._uncertain):
            for bucket in [bucket for bucket in book if bucket < oldest]:
                del book[bucket]
            total += sum(book.values())
        return total

    def _add(self, end: int, amount: int, until_ns: int) -> None:
        self._pool += amount
        for lease in self._leases:
            if lease.end == end:
                lease.left += amount
                lease.until_ns = min(lease.until_ns, until_ns)
                break
        else:
            self._leases.append(Lease(end, amount, until_ns))
        self._leases.sort(key=_end)
        self._first_end_ns = self._leases[0].until_ns

    def _give_back(self, end: int, amount: int) -> None:
        leases = self._moved[1]
        leases[end] = leases.get(end, 0) - amount
        self._link.active[self] = None

    def _end_leases(self, mono_ns: int) -> None:
        while self._leases and (self._leases[0].until_ns <= mono_ns or not self._leases[0].left):
            lease = self._leases.pop(0)
            if lease.left:
                self._pool -= lease.left
                self._give_back(lease.end, lease.left)
        self._first_end_ns = self._leases[0].until_ns if self._leases else 1 << 100

    def _reduce_to(self, most: int) -> None:
        for lease in self._leases:
            part = min(lease.left, self._pool - most)
            if part <= 0:
                break
            lease.left -= part
            self._pool -= part
            self._give_back(lease.end, part)


def _end(lease: Lease) -> int:
    return lease.until_ns
