"""Several gateways in one process against one Redis, in the time of a loop that leaps over what nobody waits for."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from backends.counters.address import CountersAddress
from backends.counters.connection import CountersConnection
from backends.counters.server_clock import ServerClock
from contracts.errors import CountersSilent
from gateway.limits.counters.base import Line, Mark, Shortage
from gateway.limits.counters.redis_store import RedisStore
from tests.backends.counters.redis_server import RedisServer
from tests.gateway.limits.leaping_loop import LeapingLoop

_MONOTONIC_START_NS = 86_400_000_000_000
_UNIX_START_NS = 1_773_480_413_589_793_238  # 2026-03-14 09:26:53.6 UTC, in the midst of every window
_TOLD_TIME = 7  # its place in a batch
_TIMEOUT_SECONDS = 0.25


def now_ns() -> int:
    """Return the time in nanoseconds since 1970, at gateways and at Redis."""
    return _UNIX_START_NS + LeapingLoop.running().passed_ns()


def now_seconds() -> float:
    return now_ns() / 1e9


def monotonic_ns() -> int:
    """Return what a gateway takes for its monotonic clock."""
    return _MONOTONIC_START_NS + LeapingLoop.running().passed_ns()


class TellingConnection:
    """A connection to a Redis that is told with each batch what time it is when the batch arrives."""

    def __init__(self, connection: CountersConnection, redis: "FrozenRedis") -> None:
        self._connection = connection
        self._redis = redis

    async def run_batch(self, keys: Sequence[str], payload: bytes) -> bytes:
        if self._redis.is_frozen:
            self._redis.waiting.append(lambda: self._send(keys, payload))
            await asyncio.sleep(_TIMEOUT_SECONDS)
            raise CountersSilent("Redis does not answer")
        return await self._send(keys, payload)

    async def _send(self, keys: Sequence[str], payload: bytes) -> bytes:
        batch = msgspec.msgpack.decode(payload)
        batch[_TOLD_TIME] = now_ns() // 1000 + round(self._redis.set_seconds * 1e6)
        with LeapingLoop.running().in_real_time():
            return await self._connection.run_batch(keys, msgspec.msgpack.encode(batch))

    async def close(self) -> None:
        with LeapingLoop.running().in_real_time():
            await self._connection.close()


class FrozenRedis:
    """A Redis that takes what comes, answers nothing, and does all of it when it goes on, as after SIGSTOP.

    The time in which it stands still passes in no time.
    """

    def __init__(self) -> None:
        self.is_frozen = False
        self.set_seconds = 0.0  # by how much its own clock was set
        self.waiting: list[Callable[[], Awaitable[bytes]]] = []

    async def go_on(self) -> None:
        """Do what has come meanwhile, for nobody, before anything else."""
        waiting, self.waiting = self.waiting, []
        for send in waiting:
            await send()
        self.is_frozen = False


class Gateways:
    """Stores that share a namespace, each at work in the background."""

    def __init__(self, server: RedisServer, **settings: Any) -> None:
        LeapingLoop.running().leap()
        self._address = CountersAddress(server.url)
        self._settings = {"namespace": server.namespace(), "expiry_seconds": 4.0, "timeout_seconds": 1.0, **settings}
        self._running: dict[RedisStore, asyncio.Task[None]] = {}
        self.redis = FrozenRedis()

    async def start(self, name: str, **settings: Any) -> RedisStore:
        clock = ServerClock(monotonic_ns, now_ns)
        store = RedisStore(self._address, name, **{"clock": clock, "wall_ns": now_ns, **self._settings, **settings})
        store._sender._connection = TellingConnection(store._sender._connection, self.redis)  # type: ignore[assignment]
        try:
            await store.start()
        except BaseException:
            await store.close()
            raise
        self._running[store] = asyncio.create_task(store.run())
        return store

    async def stop(self, store: RedisStore) -> None:
        self._running.pop(store).cancel()
        await store.close()

    async def kill(self, store: RedisStore) -> None:
        """Let a gateway fall silent from one moment to the next."""
        under_way = [self._running.pop(store)]
        sender = store._sender
        if sender._pump is not None:
            under_way.append(sender._pump)
        for task in under_way:
            task.cancel()
        await asyncio.wait(under_way)
        await sender._connection.close()

    async def close(self) -> None:
        for store in list(self._running):
            await self.stop(store)


async def admit(store: RedisStore, lines: list[Line], claimant: str = "") -> list[Mark] | Shortage:
    """Accept all lines or none, as a gateway does."""
    at_ns = now_ns()
    if any(counter.room(at_ns, claimant) < amount for counter, amount in lines):
        shortage = await store.seek_room(lines, claimant, at_ns)
        if shortage is not None:
            return shortage
        at_ns = now_ns()
    return [counter.take(amount, at_ns, claimant) for counter, amount in lines]


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Return the message that something takes no longer."""
    began = now_seconds()
    yield
    taken = now_seconds() - began
    assert taken <= seconds, f"it took {taken:.3f} s, at most {seconds:g} were allowed"
