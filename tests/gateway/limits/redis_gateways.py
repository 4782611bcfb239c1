"""Several gateways in one process against one Redis, in real time."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gateway.limits.base import Line, Mark, Shortage
from gateway.limits.redis_store import RedisStore
from tests.backends.counters.redis_server import RedisServer


class Gateways:
    """Stores that share a namespace, each at work in the background."""

    def __init__(self, server: RedisServer, **settings: Any) -> None:
        self._url = server.url
        self._settings = {"namespace": server.namespace(), "expiry_seconds": 4.0, "timeout_seconds": 1.0, **settings}
        self._running: dict[RedisStore, asyncio.Task[None]] = {}

    async def start(self, name: str, **settings: Any) -> RedisStore:
        store = RedisStore(self._url, name, **{**self._settings, **settings})
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
        self._running.pop(store).cancel()
        courier = store._courier
        if courier._pump is not None:
            courier._pump.cancel()
        await courier._connection.close()

    async def close(self) -> None:
        for store in list(self._running):
            await self.stop(store)


async def admit(store: RedisStore, lines: list[Line], claimant: str = "") -> list[Mark] | Shortage:
    """Take all lines or none, as a gateway does."""
    now_ns = time.time_ns()
    if any(counter.room(now_ns, claimant) < amount for counter, amount in lines):
        shortage = await store.seek_room(lines, claimant, now_ns)
        if shortage is not None:
            return shortage
        now_ns = time.time_ns()
    return [counter.take(amount, now_ns, claimant) for counter, amount in lines]


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Say that something takes no longer."""
    began = time.monotonic()
    yield
    taken = time.monotonic() - began
    assert taken <= seconds, f"it took {taken:.3f} s, at most {seconds:g} were allowed"
