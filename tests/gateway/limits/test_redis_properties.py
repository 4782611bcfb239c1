"""Whatever several gateways do with the same counters and in whatever order: never more is charged than is allowed."""

import asyncio
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contracts.limits import LimitSpec, Rule
from gateway.limits.base import Counter, Mark, Shortage
from gateway.limits.redis_store import RedisStore
from tests.backends.counters.redis_server import RedisServer
from tests.gateway.limits.conftest import START_NS
from tests.gateway.limits.counting import SECOND_NS, ManualClock, budget, limit, slots
from tests.gateway.limits.told_clock import ToldClock

pytestmark = pytest.mark.service

quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
share = st.floats(0, 1)
asks = st.tuples(st.integers(0, 2), st.integers(1, 15), st.integers(1, 40), st.booleans())
step = st.one_of(
    st.tuples(st.just("ask"), asks),
    st.tuples(st.just("ask"), asks),
    st.tuples(st.just("rush"), st.lists(asks, min_size=2, max_size=6)),
    st.tuples(st.just("settle"), share, share),
    st.tuples(st.just("work"), st.integers(0, 2)),
    st.tuples(st.just("pass"), st.sampled_from([0.01, 0.024, 0.06, 0.2, 0.5, 0.976, 1.0, 1.5, 2.3])),
    st.tuples(st.just("lapse"), st.integers(0, 2)),
)


@dataclass
class Charge:
    """One amount that was taken from all counters of a gateway."""

    counters: list[Counter]
    marks: list[Mark]
    taken: int
    at_ns: int
    amount: int = field(init=False)
    is_open: bool = True

    def __post_init__(self) -> None:
        self.amount = self.taken


class Schedule:
    """Three gateways with the same rules under one clock that is moved by hand."""

    def __init__(self, server: RedisServer) -> None:
        self.clock = ManualClock(START_NS)
        self.rules: list[Rule] = [limit(100, "second"), limit(150, "minute", name="min"), slots(60), budget(120)]
        namespace = server.namespace()
        self.stores = [
            RedisStore(
                server.url,
                name,
                namespace=namespace,
                timeout_seconds=2.0,
                clock=ToldClock(self.clock),
                wall_ns=self.clock.now_ns,
            )
            for name in ("a", "b", "c")
        ]
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
        else:
            await self.let_others_expire(given_[0])

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
        self.charges.append(Charge(counters, marks, amount, now_ns))
        self.check()

    def settle(self, which: float, part: float) -> None:
        still_open = [charge for charge in self.charges if charge.is_open]
        if still_open:
            charge = still_open[int(which * (len(still_open) - 1))]
            charge.amount, charge.is_open = int(charge.taken * part), False
            for counter, mark in zip(charge.counters, charge.marks, strict=True):
                counter.settle(mark, charge.taken, charge.amount, self.clock.now_ns())

    async def let_others_expire(self, which: int) -> None:
        """Let one gateway be heard of and the others not for longer than their life; nothing of theirs runs."""
        while any(charge.is_open for charge in self.charges):
            self.settle(0, 1)
        await self.clock.advance(
            0.2
        )  # what was settled is told within this time; a stall just then is not what is tested
        for other in range(3):
            self.stores[other]._tell_due()
            await self.rest(other)
        await self.clock.advance(10.1)
        self.stores[which]._courier.beat()
        await self.rest(which)

    async def rest(self, which: int) -> None:
        pump = self.stores[which]._courier._pump
        if pump is not None:
            await pump

    def check(self) -> None:
        now_ns = self.clock.now_ns()
        for rule in self.rules:
            own = [charge for charge in self.charges if any(counter.rule is rule for counter in charge.counters)]
            if isinstance(rule, LimitSpec) and rule.window is not None:
                oldest_ns = now_ns - (SECOND_NS if rule.window == "second" else 60 * SECOND_NS)
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

    asyncio.run(run())
