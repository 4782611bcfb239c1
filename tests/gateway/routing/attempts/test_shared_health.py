"""What several gateways tell each other of targets: through Redis, and never beyond what each then sees itself."""

import asyncio
from dataclasses import replace

import pytest

from backends.counters.address import CountersAddress
from backends.counters.message_store import MessageStore
from contracts.errors import CountersUnavailable, UpstreamError
from contracts.serving.configuration import EMPTY_SNAPSHOT, PoolSpec, TargetSpec
from gateway.request.clock import Clock
from gateway.routing.health.breaker import CallPermission
from gateway.routing.health.health_book import HealthBook
from gateway.routing.health.shared_health import SharedHealth
from tests.backends.counters.redis_server import RedisServer

S = 1_000_000_000
SPEC = TargetSpec(id="a", pool="p", kind="scripted")


class MemoryBoard:
    """A board whose notes stay."""

    def __init__(self):
        self.notes = {}
        self.is_away = False

    async def exchange(self, posted, wanted):
        if self.is_away:
            raise CountersUnavailable("away")
        self.notes |= {name: note for name, (note, _) in posted.items()}
        return {name: self.notes[name] for name in wanted if name in self.notes}

    async def close(self): ...


class Gateway:
    """A gateway's book of one target, and its part of the board."""

    def __init__(self, name, board):
        self.now = 0
        clock = Clock(lambda: self.now, lambda: self.now)
        self.book = HealthBook(clock, lambda: 0.0)
        self.book.sync(replace(EMPTY_SNAPSHOT, pools={"p": PoolSpec("p", (SPEC,))}))
        self.shared = SharedHealth(self.book, board, name, clock)
        self.health = self.book.of(SPEC)

    def fail(self):
        for _ in range(5):
            self.health.note_failure(self.now, UpstreamError("down"))


@pytest.fixture
def pair():
    board = MemoryBoard()
    return Gateway("one", board), Gateway("two", board), board


async def test_what_one_leaves_alone_the_other_tries_once(pair):
    one, two, _ = pair
    one.fail()
    await one.shared.turn()
    await two.shared.turn()
    assert not two.health.is_plain and two.health.ask(0) is CallPermission.PROBE
    assert "at gateway one" in two.book.states()["p/a"]["why"]


async def test_a_gateway_that_alone_cannot_reach_a_target_takes_it_away_from_nobody(pair):
    one, two, _ = pair
    one.fail()
    await one.shared.turn()
    await two.shared.turn()
    two.health.ask(0)
    probes = two.health.begin()
    two.health.end_probe(probes, 0, is_good=True, took_ns=1, is_whole=False)
    for _ in range(3):
        await one.shared.turn()
        await two.shared.turn()
    assert two.health.is_plain, "it has looked into this note"


async def test_where_the_board_is_away_each_goes_by_what_it_sees(pair):
    one, two, board = pair
    board.is_away = True
    one.fail()
    await one.shared.turn()
    await two.shared.turn()
    assert one.shared.is_away and one.health.is_away and two.health.is_plain


async def test_a_note_that_cannot_be_read_is_passed_over(pair):
    _, two, board = pair
    board.notes["p/a"] = b"\xc1 of another version"
    await two.shared.turn()
    assert two.health.is_plain


@pytest.mark.service
async def test_notes_pass_through_redis_and_go_away_by_themselves(require_service):
    require_service("redis-server", RedisServer.is_installed(), "apt-get install redis-server")
    server = RedisServer()
    server.start()
    boards = [MessageStore(CountersAddress(server.url), "test") for _ in range(2)]
    try:
        assert await boards[0].exchange({"p/a": (b"down", 60_000), "p/b": (b"down", 60)}, []) == {}
        assert await boards[1].exchange({}, ["p/a", "p/c"]) == {"p/a": b"down"}
        async with asyncio.timeout(10):
            while await boards[1].exchange({}, ["p/b"]):
                await asyncio.sleep(0.02)
        assert await boards[1].exchange({}, ["p/a", "p/b"]) == {"p/a": b"down"}
        server.kill()
        with pytest.raises(CountersUnavailable):
            await boards[0].exchange({}, ["p/a"])
    finally:
        for board in boards:
            await board.close()
        server.close()
