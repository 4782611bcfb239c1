"""Whatever gateways do with one budget, and however Redis, its clock and gateways fail: the sum is exact."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from backends.counters.address import CountersAddress
from backends.counters.connection import CountersConnection
from backends.counters.server_clock import ServerClock
from contracts.errors import CountersUnavailable
from gateway.limits.counters.base import Mark, Shortage
from gateway.limits.counters.leased_escrow import LeasedBudget
from gateway.limits.counters.redis_store import RedisStore
from tests.backends.counters.redis_server import RedisServer
from tests.gateway.limits.conftest import START_NS
from tests.gateway.limits.counting import SECOND_NS, ManualClock, budget

pytestmark = pytest.mark.service

AMOUNT = 1000
NAMES = ("a", "b", "c")
TOLD_TIME = 7  # its place in a batch
PARTS = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])

which = st.integers(0, 2)
asks = st.tuples(which, st.integers(1, 120))
step = st.one_of(
    st.tuples(st.just("ask"), asks),
    st.tuples(st.just("ask"), asks),
    st.tuples(st.just("settle"), st.floats(0, 1), st.floats(0, 1)),
    st.tuples(st.just("work"), which),
    st.tuples(st.just("pass"), st.sampled_from([0.06, 0.2, 1.1, 5.0, 12.0, 61.0, 100.0])),
    st.tuples(st.just("freeze")),
    st.tuples(st.just("thaw"), st.permutations(range(3))),
    st.tuples(st.just("partition"), which),
    st.tuples(st.just("crash"), which, st.lists(asks, max_size=4)),
    st.tuples(st.just("set Redis' clock"), st.sampled_from([-7200, -61, -0.4, 0.4, 61, 3600])),
)


@dataclass
class Charge:
    name: str
    counter: LeasedBudget
    mark: Mark
    taken: int


class World:
    """Three gateways, one Redis that may stand still, and the time."""

    def __init__(self, server: RedisServer) -> None:
        self.clock = ManualClock(START_NS)
        self.rule = budget(AMOUNT, "total")
        self._server = server
        self._namespace = server.namespace()
        self.is_frozen = False
        self.cut: set[str] = set()
        self.set_ns = 0  # by how much Redis' own clock was set
        self.waiting: list[tuple[Sequence[str], bytes]] = []
        self.stores = {name: self.store(name) for name in NAMES}
        self.open: list[Charge] = []
        self.settled = dict.fromkeys(NAMES, 0)  # in all, by a gateway's name: what its journal knows

    def store(self, name: str) -> RedisStore:
        store = RedisStore(
            CountersAddress(self._server.url),
            name,
            namespace=self._namespace,
            clock=ServerClock(self.clock.now_ns, self.clock.now_ns),
            wall_ns=self.clock.now_ns,
        )
        store._sender._connection = Way(store._sender._connection, name, self)  # type: ignore[assignment]
        return store

    def told(self, payload: bytes) -> bytes:
        """Return a batch that tells Redis what its own clock shows now."""
        batch = msgspec.msgpack.decode(payload)
        batch[TOLD_TIME] = (self.clock.now_ns() + self.set_ns) // 1000
        return msgspec.msgpack.encode(batch)

    def counter(self, name: str) -> LeasedBudget:
        return self.stores[name].open_budget(self.rule, "")

    async def rest(self, name: str) -> None:
        """Let a gateway say what it has to say, as far as anybody listens."""
        pump = self.stores[name]._sender._pump
        for _ in range(400):
            if pump is None or pump.done():
                return
            if (self.is_frozen or name in self.cut) and self.stores[name]._link.is_away:
                return
            await asyncio.sleep(0.0005)
        raise AssertionError("a gateway does not come to rest")

    async def work(self, name: str) -> None:
        store = self.stores[name]
        if store._link.is_away and not self.is_frozen:
            await self.rest(name)
        store._tell_due()
        await self.rest(name)

    async def go_through(self, seconds: float) -> None:
        """Let time pass, in which gateways are heard of."""
        left = seconds
        while left > 0:
            await self.clock.advance(min(left, 1.9))
            left -= 1.9
            for store in self.stores.values():
                store._sender.beat()
            for name in NAMES:
                await self.work(name)
            self.check()

    async def ask(self, gateway: int, amount: int) -> bool:
        name = NAMES[gateway]
        store, counter, now_ns = self.stores[name], self.counter(name), self.clock.now_ns()
        if counter.room(now_ns) < amount:
            shortage = await store.seek_room([(counter, amount)], "", now_ns)
            if isinstance(shortage, Shortage):
                return False
        self.open.append(Charge(name, counter, counter.take(amount, now_ns), amount))
        self.check()
        return True

    def settle(self, place: float, part: float) -> None:
        if self.open:
            charge = self.open.pop(int(place * (len(self.open) - 1)))
            charged = int(charge.taken * part)
            charge.counter.settle(charge.mark, charge.taken, charged, self.clock.now_ns())
            self.settled[charge.name] += charged
            self.check()

    async def thaw(self, order: Sequence[int]) -> None:
        """Redis goes on: it does what came meanwhile, and gateways come back in any order."""
        connection = CountersConnection(CountersAddress(self._server.url), 2.0)
        for keys, payload in self.waiting:
            await connection.run_batch(keys, self.told(payload))
        await connection.close()
        self.is_frozen, self.waiting, self.cut = False, [], set(NAMES)
        for place in order:
            self.cut.discard(NAMES[place])
            await self.rest(NAMES[place])
            await self.ask(place, 40)

    async def crash(self, gateway: int, asked: Sequence[tuple[int, int]]) -> None:
        """Kill a gateway and start it again under its name before its lease ends; it reads what it had spent."""
        name = NAMES[gateway]
        old = self.stores[name]
        if old._sender._pump is not None:
            old._sender._pump.cancel()
        await old._sender._connection.close()
        for charge in [charge for charge in self.open if charge.name == name]:
            self.open.remove(charge)
            self.settled[name] += charge.taken  # what ran is estimated, up to what was reserved
        self.stores[name] = self.store(name)
        self.cut.add(name)  # it starts slowly
        for each in asked:
            if each[0] != gateway:
                await self.ask(*each)
        await self.go_through(11.0)  # its former life has ended
        self.counter(name).restore(self.counter(name).period_start_ns or 0, self.settled[name])
        self.cut.discard(name)
        if not self.is_frozen:
            self.stores[name]._sender.beat()
            await self.rest(name)
            await self.go_through(0.3)

    async def do(self, kind: str, *given_) -> None:
        if kind == "ask":
            await self.ask(*given_[0])
        elif kind == "settle":
            self.settle(*given_)
        elif kind == "work":
            await self.work(NAMES[given_[0]])
        elif kind == "pass":
            await self.go_through(given_[0])
        elif kind == "freeze":
            self.is_frozen = True
        elif kind == "thaw" and self.is_frozen:
            await self.thaw(given_[0])
        elif kind == "crash":
            await self.crash(*given_)
        elif kind == "set Redis' clock":
            self.set_ns += int(given_[0] * SECOND_NS)
        elif kind == "partition" and not self.is_frozen:
            await self.partition(NAMES[given_[0]])

    async def partition(self, name: str) -> None:
        """Keep one gateway from Redis until after its lease has ended; what ran there has ended before that."""
        await self.go_through(0.3)
        for charge in [charge for charge in self.open if charge.name == name]:
            self.open.remove(charge)
            charge.counter.settle(charge.mark, charge.taken, 0, self.clock.now_ns())
        self.cut.add(name)
        await self.go_through(80.0)
        assert self.counter(name).room(self.clock.now_ns()) <= 0
        await self.go_through(20.0)
        for amount in (AMOUNT // 2, 120, 60, 30, 8, 4, 2, 1) * 2:  # what it held may be used by others now
            await self.ask((NAMES.index(name) + 1) % 3, amount)
        self.cut.discard(name)
        await self.rest(name)
        await self.ask(NAMES.index(name), 40)

    def check(self) -> None:
        used = sum(self.settled.values()) + sum(charge.taken for charge in self.open)
        assert used <= AMOUNT
        can_use = sum(max(self.counter(name).room(self.clock.now_ns()), 0) for name in NAMES)
        assert used + can_use <= AMOUNT, "leases add up to more than the budget"

    async def check_the_end(self) -> None:
        """Once all are back and nothing runs, what was spent is counted to the unit, and all of the rest may be."""
        if self.is_frozen:
            await self.thaw(range(3))
        self.cut = set()
        for name in NAMES:
            self.stores[name]._sender.beat()
            await self.rest(name)
        while self.open:
            self.settle(0, 1)
        await self.go_through(13.0)
        spent = sum(self.settled.values())
        async with Redis.from_url(self._server.url) as client:
            kept = await client.hgetall(self.counter("a").grant.key)
        if spent:
            assert sum(int(amount) for name, amount in kept.items() if name[:1] == b"s") == spent
        assert {name: self.counter(name).settled for name in NAMES} == self.settled
        left = AMOUNT - spent
        for _ in range(15):  # leases are given back once anybody is short of them
            if not left or await self.ask(0, left):
                break
            await self.go_through(1.0)
        else:
            raise AssertionError(f"{left} are left, and nobody may use them")
        assert not await self.ask(1, 1)


class Way:
    """A gateway's way to a Redis that may stand still."""

    def __init__(self, connection: CountersConnection, name: str, world: World) -> None:
        self._connection, self._name, self._world = connection, name, world

    async def run_batch(self, keys: Sequence[str], payload: bytes) -> bytes:
        world = self._world
        if self._name in world.cut:
            raise CountersUnavailable("the way is cut")
        if world.is_frozen:
            world.waiting = [*world.waiting[-5:], (keys, payload)]
            raise CountersUnavailable("Redis does not answer")
        return await self._connection.run_batch(keys, world.told(payload))

    async def close(self) -> None:
        await self._connection.close()


@PARTS
@example([("ask", (0, 100)), ("pass", 1.1), ("freeze",), ("ask", (0, 90)), ("pass", 100.0), ("thaw", [1, 2, 0])])
@example([("ask", (0, 100)), ("settle", 0, 1), ("pass", 1.1), ("freeze",), ("ask", (0, 90)), ("crash", 0, [])])
@example([("ask", (0, 100)), ("pass", 1.1), ("set Redis' clock", 3600), ("ask", (1, 120)), ("pass", 5.0)])
@given(steps=st.lists(step, max_size=25))
def test_the_sum_of_what_gateways_may_spend_never_exceeds_the_budget_and_what_they_spent_is_exact(
    redis_server: RedisServer, steps
):
    async def run() -> None:
        world = World(redis_server)
        try:
            for name in NAMES:
                world.stores[name]._sender.beat()
                await world.rest(name)
            for kind, *given_ in steps:
                await world.do(kind, *given_)
                world.check()
            await world.check_the_end()
        finally:
            for store in world.stores.values():
                await store.close()

    with patch.multiple("backends.counters.batch_sender", _FIRST_PAUSE_SECONDS=0.0005, _LONGEST_PAUSE_SECONDS=0.001):
        asyncio.run(run())
