"""Whatever several gateways do with the same counters and in whatever order: never more is charged than is allowed."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from backends.counters.address import CountersAddress
from backends.counters.connection import CountersConnection
from contracts.errors import CountersUnavailable
from contracts.rules.limits import BudgetSpec, LimitSpec, Rule
from gateway.limits.counters.base import Counter, Mark, Shortage
from gateway.limits.counters.lease_commands import SyncCommand
from gateway.limits.counters.leased_sliding import LeasedSliding
from gateway.limits.counters.redis_store import RedisStore
from tests.backends.counters.redis_server import RedisServer
from tests.gateway.limits.conftest import START_NS
from tests.gateway.limits.counting import SECOND_NS, ManualClock, budget, limit, slots
from tests.gateway.limits.told_clock import ToldClock

pytestmark = pytest.mark.service

quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
share = st.floats(0, 1)
asks = st.tuples(st.integers(0, 2), st.integers(1, 31), st.integers(1, 40), st.booleans())
step = st.one_of(
    st.tuples(st.just("ask"), asks),
    st.tuples(st.just("ask"), asks),
    st.tuples(st.just("rush"), st.lists(asks, min_size=2, max_size=6)),
    st.tuples(st.just("settle"), share, share),
    st.tuples(st.just("work"), st.integers(0, 2)),
    st.tuples(st.just("pass"), st.sampled_from([0.01, 0.024, 0.06, 0.2, 0.5, 0.976, 1.0, 1.5, 2.3])),
    st.tuples(st.just("lapse"), st.integers(0, 2)),
    st.tuples(st.just("cut"), st.integers(0, 2), st.lists(asks, max_size=3), st.integers(1, 2)),
)


@dataclass
class Charge:
    """One amount that was taken from all counters of a gateway. It is lost where that lapsed before it was settled."""

    which: int
    counters: list[Counter]
    marks: list[Mark]
    taken: int
    at_ns: int
    amount: int = field(init=False)
    is_open: bool = True
    is_lost: bool = False

    def __post_init__(self) -> None:
        self.amount = self.taken


class OneWay:
    """A connection over which batches may arrive and their answers not."""

    def __init__(self, connection: CountersConnection) -> None:
        self._connection = connection
        self.is_cut = False

    async def run_batch(self, keys: Sequence[str], payload: bytes) -> bytes:
        reply = await self._connection.run_batch(keys, payload)
        if self.is_cut:
            raise CountersUnavailable("the answer was lost")
        return reply

    async def close(self) -> None:
        await self._connection.close()


class Schedule:
    """Three gateways with the same rules under one clock that is moved by hand."""

    def __init__(self, server: RedisServer) -> None:
        self.clock = ManualClock(START_NS)
        windows = [limit(100, "second"), limit(150, "minute", name="min"), limit(200, "hour", name="hour")]
        rules: list[LimitSpec | BudgetSpec] = [*windows, slots(60), budget(300)]
        # Shares while Redis is away come on top of what others were granted, and are not what is tested.
        self.rules: list[Rule] = [replace(rule, when_away="refuse") for rule in rules]
        self._url = server.url
        namespace = server.namespace()
        self.stores = [
            RedisStore(
                CountersAddress(server.url),
                name,
                namespace=namespace,
                timeout_seconds=2.0,
                clock=ToldClock(self.clock),
                wall_ns=self.clock.now_ns,
            )
            for name in ("a", "b", "c")
        ]
        self.ways = []
        for store in self.stores:
            self.ways.append(way := OneWay(store._sender._connection))
            store._sender._connection = way  # type: ignore[assignment]  # all that the courier uses
        self.charges: list[Charge] = []

    async def do(self, kind: str, *given_) -> None:
        if kind == "ask":
            await self.ask(*given_[0])
        elif kind == "rush":
            await asyncio.gather(*(self.ask(*each) for each in given_[0]))
        elif kind == "settle":
            self.settle(*given_)
        elif kind == "work":
            self.stores[given_[0]]._tell_due()
            await self.rest(given_[0])
        elif kind == "pass":
            await self.clock.advance(given_[0])
            await self.beat()
        elif kind == "cut":
            await self.cut_off(*given_)
        else:
            await self.let_expire([other for other in range(3) if other != given_[0]])

    async def ask(self, which: int, choice: int, amount: int, has_name: bool) -> None:
        store = self.stores[which]
        counters = [store.open(rule, "") for place, rule in enumerate(self.rules) if choice >> place & 1]
        lines = [(counter, amount) for counter in counters]
        now_ns = self.clock.now_ns()
        claimant = "key" if has_name else ""
        if any(counter.room(now_ns, claimant) < amount for counter in counters):
            shortage = await store.seek_room(lines, claimant, now_ns)
            if isinstance(shortage, Shortage):
                return
        marks = [counter.take(amount, now_ns, claimant) for counter in counters]
        self.charges.append(Charge(which, counters, marks, amount, now_ns))
        self.check()

    def settle(self, which: float, part: float) -> None:
        still_open = [charge for charge in self.charges if charge.is_open]
        if still_open:
            charge = still_open[int(which * (len(still_open) - 1))]
            charge.amount, charge.is_open = int(charge.taken * part), False
            for counter, mark in zip(charge.counters, charge.marks, strict=True):
                counter.settle(mark, charge.taken, charge.amount, self.clock.now_ns())

    async def beat(self, lapsing: Sequence[int] = ()) -> None:
        """Let the gateways be heard of that were not for long, as they do in the background."""
        for which, store in enumerate(self.stores):
            if which not in lapsing and self.clock.now_ns() - store._sender.answered_ns > 2 * SECOND_NS:
                store._sender.beat()
                await self.rest(which)

    async def tell(self, gateways: Sequence[int]) -> None:
        """Let gateways report all that they have to."""
        for _ in range(2):  # who has lapsed hears of it with the first
            await self.clock.advance(0.3)  # what was settled is told within this time
            for which in gateways:
                self.stores[which]._tell_due()
                await self.rest(which)

    async def let_expire(self, lapsing: Sequence[int]) -> None:
        """Let some gateways not be heard of for longer than their life, with all that runs there."""
        await self.tell(range(3))
        await self.expire(lapsing)
        await self.check_what_is_counted(lapsing)

    async def expire(self, lapsing: Sequence[int]) -> None:
        for _ in range(2):
            await self.clock.advance(5.05)
            await self.beat(lapsing)
        for charge in self.charges:
            charge.is_lost = charge.is_lost or (charge.is_open and charge.which in lapsing)

    async def cut_off(self, which: int, asked: Sequence[tuple[int, int, int, bool]], step: int) -> None:
        """Let what a gateway asks be done and never answered until it has lapsed and another took what was free."""
        await self.tell(range(3))
        self.ways[which].is_cut = True
        for each in asked:
            await self.ask(which, *each[1:])
        await self.expire([which])
        other = (which + step) % 3
        for choice, amount in ((31, 40), (4, 60), (4, 30), (4, 15), (4, 8), (4, 4), (4, 2), (4, 1)):
            await self.ask(other, choice, amount, False)
        await self.ask(which, 4, 5, False)
        self.ways[which].is_cut = False
        await self.rest(which)
        for gateway in (which, other):
            await self.ask(gateway, 31, 20, False)
            await self.ask(gateway, 4, 20, False)

    async def check_what_is_counted(self, lapsed: Sequence[int]) -> None:
        """What was reserved and leased by gateways that lapsed is not counted; what they settled is."""
        for place, bucket_seconds in ((1, 1), (2, 60)):
            rule = self.rules[place]
            expected, key = 0, ""
            for which in set(range(3)) - set(lapsed):
                counter = self.stores[which].open(rule, "")
                assert isinstance(counter, LeasedSliding)
                self.stores[which]._sender.post(SyncCommand(counter))
                await self.rest(which)
                expected, key = expected + counter._pool, counter.key
            oldest = self.clock.now_ns() // SECOND_NS // bucket_seconds - 60
            for charge in self.charges:
                if charge.at_ns // SECOND_NS // bucket_seconds < oldest:
                    continue
                if any(each.rule is rule for each in charge.counters):
                    expected += 0 if charge.is_open and charge.which in lapsed else charge.amount
            async with Redis.from_url(self._url, decode_responses=False) as client:
                window = await client.hgetall(key)
            assert sum(int(amount) for name, amount in window.items() if name[:1] in (b"c", b"l")) == expected

    async def rest(self, which: int) -> None:
        pump = self.stores[which]._sender._pump
        if pump is not None:
            await pump

    def check(self) -> None:
        now_ns = self.clock.now_ns()
        for rule in self.rules:
            own = [charge for charge in self.charges if not charge.is_lost]
            own = [charge for charge in own if any(counter.rule is rule for counter in charge.counters)]
            if isinstance(rule, LimitSpec) and rule.window is not None:
                seconds = {"second": 1, "minute": 60, "hour": 3600}[rule.window]
                oldest_ns = now_ns - seconds * SECOND_NS
                own = [charge for charge in own if charge.at_ns > oldest_ns]
            elif isinstance(rule, LimitSpec):
                own = [charge for charge in own if charge.is_open]
            assert sum(charge.amount for charge in own) <= rule.amount


@quick
@given(steps=st.lists(step, max_size=50))
def test_gateways_together_never_charge_more_than_is_allowed(redis_server: RedisServer, steps):
    async def run() -> None:
        schedule = Schedule(redis_server)
        for kind, *given_ in steps:
            await schedule.do(kind, *given_)
            schedule.check()
        for store in schedule.stores:
            await store.close()

    # Who had no answer asks again at once: the clock stands still meanwhile.
    with patch.multiple("backends.counters.batch_sender", _FIRST_PAUSE_SECONDS=0.001, _LONGEST_PAUSE_SECONDS=0.002):
        asyncio.run(run())
