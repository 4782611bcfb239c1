"""Every store of counters behind one fixture, so that each promise is tested on each of them."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

from backends.counters.address import CountersAddress
from gateway.limits.counters.memory_store import MemoryStore
from gateway.limits.counters.redis_store import RedisStore
from tests.backends.counters.redis_server import RedisServer
from tests.gateway.limits.counting import Counting, CountingFactory, ManualClock
from tests.gateway.limits.leaping_loop import LeapingLoop
from tests.gateway.limits.told_clock import ToldClock

START_NS = 1_773_480_413_589_793_238  # 2026-03-14 09:26:53.6 UTC, in the midst of every window


def pytest_asyncio_loop_factories(config, item):
    """asyncio's loop, which tests of several gateways let leap over what they would wait for."""
    return {"asyncio": LeapingLoop}


@asynccontextmanager
async def memory_counting() -> AsyncIterator[Counting]:
    """Provide a store in this process's memory under a clock that is moved by hand."""
    clock = ManualClock(START_NS)
    store = MemoryStore(clock=clock.now_ns)
    yield Counting(store, clock.now_ns, clock.advance)
    await store.close()


@asynccontextmanager
async def redis_counting(server: RedisServer) -> AsyncIterator[Counting]:
    """Provide a store of one gateway in Redis, which is told the time of a clock that is moved by hand."""
    clock = ManualClock(START_NS)
    store = RedisStore(
        CountersAddress(server.url),
        "one",
        namespace=server.namespace(),
        timeout_seconds=2.0,  # a busy machine is not what is tested
        clock=ToldClock(clock),
        wall_ns=clock.now_ns,
    )
    yield Counting(store, clock.now_ns, clock.advance)
    await store.close()


@pytest.fixture(scope="session")
def redis_server(require_service: Callable[[str, bool, str], None]) -> Iterator[RedisServer]:
    require_service("redis-server", RedisServer.is_installed(), "apt-get install redis-server")
    server = RedisServer()
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture(scope="module", params=["memory", pytest.param("redis", marks=pytest.mark.service)])
def counting_of(request: pytest.FixtureRequest) -> CountingFactory:
    """Provide what opens a fresh store, for tests that need one for each example (`async with counting_of() as c`)."""
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        return lambda: redis_counting(server)
    return memory_counting


@pytest.fixture
async def counting(counting_of: CountingFactory) -> AsyncIterator[Counting]:
    """Provide a fresh store with its clock."""
    async with counting_of() as fresh:
        yield fresh
