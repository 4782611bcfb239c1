"""Room for large bodies: bounded in all and by tenant, waited for in turn, held until the work has ended."""

import asyncio

import pytest

from backends.llm.encoding_room import LARGE_BODY_BYTES, EncodingRoom, RoomBounds
from contracts.errors import LimitExceeded, Unavailable

MB = 1 << 20
BOUNDS = RoomBounds(most_bytes=4 * MB, tenant_bytes=2 * MB, wait_seconds=30)


class Work:
    """Work that goes on until it is told to end."""

    def __init__(self, room: EncodingRoom) -> None:
        self.room = room
        self.begun: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}

    def start(self, name: str, size: int, *, tenant: str = "", is_parsed: bool = False) -> "asyncio.Task[str]":
        self.ends[name] = asyncio.Event()

        async def work() -> str:
            self.begun.append(name)
            await self.ends[name].wait()
            return name

        return asyncio.create_task(self.room.run(tenant or name[0], size, work, is_parsed=is_parsed))

    async def turn(self) -> list[str]:
        for _ in range(5):
            await asyncio.sleep(0)
        return self.begun

    async def end(self, name: str) -> list[str]:
        self.ends[name].set()
        return await self.turn()


@pytest.fixture
def work() -> Work:
    return Work(EncodingRoom(BOUNDS))


async def test_small_bodies_never_wait(work):
    tasks = [work.start(f"a{number}", LARGE_BODY_BYTES) for number in range(100)]
    assert len(await work.turn()) == 100
    for end in work.ends.values():
        end.set()
    assert await asyncio.gather(*tasks) == list(work.ends)


async def test_a_tenant_has_its_own_bound_and_all_have_one_together(work):
    for name, size in (("a1", MB), ("a2", MB), ("a3", MB), ("b1", 2 * MB), ("c1", MB)):
        work.start(name, size)
        await work.turn()
    assert work.begun == ["a1", "a2", "b1"]  # b does not wait for a; c finds no room at all
    assert await work.end("b1") == ["a1", "a2", "b1", "c1"]
    assert await work.end("a1") == ["a1", "a2", "b1", "c1", "a3"]


async def test_a_body_above_a_bound_is_let_in_alone(work):
    work.start("a1", 100 * MB)
    work.start("a2", MB)
    assert await work.turn() == ["a1"]
    assert await work.end("a1") == ["a1", "a2"]


async def test_what_is_parsed_goes_first(work):
    work.start("a1", 2 * MB)
    work.start("a2", 2 * MB)
    await work.turn()
    work.start("a3", 2 * MB, is_parsed=True)
    await work.turn()
    assert await work.end("a1") == ["a1", "a3"]


async def test_a_tenant_that_sends_too_many_is_told_so_and_the_others_go_on(work):
    for number in range(5):  # one is in, four wait
        work.start(f"a{number}", 2 * MB)
    await work.turn()
    with pytest.raises(LimitExceeded) as refused:
        await work.room.run("a", LARGE_BODY_BYTES + 1, pytest.fail)
    assert refused.value.status == 429 and refused.value.retry_after_seconds
    assert "TOLLKEEPER_ENCODING_TENANT_MAX_BYTES" in refused.value.message
    work.start("b1", 2 * MB)
    assert await work.turn() == ["a0", "b1"]


async def test_where_all_together_send_too_many_the_gateway_is_overloaded(work):
    for tenant in "abcdefghij":  # two are in, eight wait
        work.start(tenant, 2 * MB)
    await work.turn()
    with pytest.raises(Unavailable) as refused:
        await work.room.run("k", 2 * MB, pytest.fail)
    assert (refused.value.status, refused.value.error_code) == (503, "overloaded")


async def test_nobody_waits_for_ever():
    work = Work(EncodingRoom(RoomBounds(most_bytes=2 * MB, tenant_bytes=2 * MB, wait_seconds=0.01)))
    work.start("a1", 2 * MB)
    await work.turn()
    with pytest.raises(LimitExceeded):
        await work.start("a2", 2 * MB)
    with pytest.raises(Unavailable):
        await work.start("b1", 2 * MB)
    await work.end("a1")
    work.start("c1", 2 * MB)
    assert await work.turn() == ["a1", "c1"]


async def test_a_client_that_leaves_frees_its_room_when_its_work_has_ended(work):
    first, waiting = work.start("a1", 2 * MB), work.start("a2", 2 * MB)
    work.start("a3", 2 * MB)
    await work.turn()
    first.cancel()
    waiting.cancel()
    assert await work.turn() == ["a1"]
    assert await work.end("a1") == ["a1", "a3"]


async def test_work_that_fails_gives_its_room_back(work):
    async def fail() -> None:
        raise ValueError

    for _ in range(5):
        with pytest.raises(ValueError):
            await work.room.run("a", 2 * MB, fail)
