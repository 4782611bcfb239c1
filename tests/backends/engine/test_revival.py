"""A model whose engine died is loaded again, later each time, and never one that someone unloaded."""

import asyncio
from types import SimpleNamespace

import pytest

from backends.engine.base import ModelOrder
from backends.engine.revival import FIRST_SECONDS, MOST_SECONDS, Revival


class Host:
    """One model, its clock, and when it was loaded again."""

    def __init__(self) -> None:
        self.time = 0.0
        self.loaded: list[float] = []
        closed = asyncio.get_running_loop().create_future()
        self.model = SimpleNamespace(order=ModelOrder("m", "/m"), state="loading", closed=closed)
        self.models = [self.model]
        self.revival = Revival(self.models, self.load, lambda: self.time)

    def load(self, order: ModelOrder) -> None:
        assert order.name == "m"
        self.loaded.append(self.time)
        self.model.state = "loading"

    def become(self, state: str, *, closed: bool = False) -> None:
        self.model.state = state
        if closed and not self.model.closed.done():
            self.model.closed.set_result(None)
        self.revival.look()

    def wait(self, seconds: float) -> None:
        self.time += seconds
        self.revival.look()


@pytest.fixture
async def host() -> Host:
    return Host()


async def test_a_death_is_followed_by_a_load_after_a_second_and_not_before(host: Host) -> None:
    host.become("ready")
    host.become("failed", closed=True)
    host.wait(FIRST_SECONDS - 0.01)
    assert host.loaded == []
    host.wait(0.01)
    assert host.loaded == [FIRST_SECONDS]


async def test_waits_double_up_to_a_minute_while_it_keeps_dying(host: Host) -> None:
    host.become("ready")
    waits: list[float] = []
    for _ in range(9):
        host.become("failed", closed=True)
        died = host.time
        while len(host.loaded) == len(waits):
            host.wait(0.5)
        waits.append(host.loaded[-1] - died)
    assert waits == [1, 2, 4, 8, 16, 32, MOST_SECONDS, MOST_SECONDS, MOST_SECONDS]


async def test_one_that_has_served_for_a_minute_begins_anew(host: Host) -> None:
    for served, wait in ((1.0, 1.0), (MOST_SECONDS - 0.5, 2.0), (MOST_SECONDS, 1.0)):
        host.become("ready")
        host.wait(served)
        host.become("failed", closed=True)
        died = host.time
        before = len(host.loaded)
        while len(host.loaded) == before:
            host.wait(0.25)
        assert host.loaded[-1] - died == wait, f"after {served} s"


async def test_one_that_never_served_is_left_to_whoever_loaded_it(host: Host) -> None:
    host.become("failed", closed=True)
    host.wait(1000)
    assert host.loaded == []


async def test_one_that_is_stuck_but_not_gone_is_left_alone(host: Host) -> None:
    host.become("ready")
    host.become("failed")
    host.wait(1000)
    assert host.loaded == []


async def test_one_that_was_unloaded_meanwhile_stays_so(host: Host) -> None:
    host.become("ready")
    host.become("failed", closed=True)
    host.models.clear()
    host.wait(1000)
    host.models.append(host.model)
    host.wait(1000)
    assert host.loaded == []


async def test_a_revived_engine_knows_since_when_the_one_before_is_dead(host: Host) -> None:
    orders: list[ModelOrder] = []
    host.revival.load = orders.append
    host.become("ready")
    host.wait(5.0)
    host.become("failed", closed=True)
    host.wait(FIRST_SECONDS)
    host.model.state = "loading"
    host.wait(3.0)
    host.become("failed", closed=True)  # it died again before it served: nothing was served since the first death
    host.wait(2 * FIRST_SECONDS)
    host.become("ready")
    host.wait(1.0)
    host.become("failed", closed=True)
    host.wait(4 * FIRST_SECONDS)
    assert [order.died_ns for order in orders] == [5_000_000_000, 5_000_000_000, 12_000_000_000]
