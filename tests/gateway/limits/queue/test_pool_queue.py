"""The queue as requests meet it: turns, clients that leave, refusals, changes of the configuration."""

import asyncio

import pytest

from contracts.errors import QueueFull
from contracts.pricing.prices import PriceBook
from contracts.rules.limits import QueueSpec
from contracts.serving.configuration import EMPTY_SNAPSHOT, PoolSpec, Snapshot, TargetSpec
from gateway.limits.queue.pool_queue import PoolQueue, PoolQueues
from gateway.limits.queue.request import PoolRoom
from gateway.request.clock import Clock
from tests.gateway.limits.queue.queueing import SECOND_NS, request


class Hands:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now_ns = 0

    def clock(self) -> Clock:
        return Clock(monotonic_ns=lambda: self.now_ns)


def queue_of(hands=None, room_of=None, **settings) -> PoolQueue:
    return PoolQueue("pool", QueueSpec(**settings), (hands or Hands()).clock(), room_of)


async def waiting(queue: PoolQueue, *requests) -> list[asyncio.Task]:
    tasks = [asyncio.ensure_future(queue.enter(one)) for one in requests]
    await asyncio.sleep(0)
    return tasks


async def test_a_pool_with_room_is_entered_at_once() -> None:
    queue = queue_of(max_in_flight=1)
    place = await queue.enter(request())
    assert place.wait_ns == 0
    assert queue.state()["in_flight"] == 1
    place.leave()
    place.leave()
    assert queue.state()["in_flight"] == 0


async def test_without_a_queue_nothing_waits_and_nothing_is_counted() -> None:
    queue = PoolQueue("pool", None, Clock())
    places = [await queue.enter(request()) for _ in range(100)]
    places[0].produced(5)
    places[0].leave()
    assert queue.state()["in_flight"] == 0


async def test_a_place_that_is_left_goes_to_whoever_is_next_with_its_wait() -> None:
    hands = Hands()
    queue = queue_of(hands, max_in_flight=1)
    first = await queue.enter(request("a", prompt=100))
    again, other = await waiting(queue, request("a"), request("b"))
    assert queue.state()["waiting"] == {"interactive": 0, "standard": 2, "batch": 0}
    assert queue.state()["backlogged_tenants"] == 2
    hands.now_ns = 7
    first.produced(10)
    first.leave(output_tokens=10)
    assert (await other).wait_ns == 7
    assert not again.done()
    other.result().leave()
    (await again).leave()


async def test_a_client_that_leaves_while_it_waits_is_taken_out() -> None:
    queue = queue_of(max_in_flight=1)
    first = await queue.enter(request())
    gone, stays = await waiting(queue, request(), request())
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    first.leave()
    (await stays).leave()
    assert queue.state()["in_flight"] == 0


async def test_a_client_that_leaves_as_its_turn_comes_gives_the_place_to_the_next() -> None:
    queue = queue_of(max_in_flight=1)
    first = await queue.enter(request())
    gone, stays = await waiting(queue, request(), request())
    first.leave()
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    (await stays).leave()
    assert queue.state()["in_flight"] == 0


async def test_a_full_queue_says_when_it_will_have_room() -> None:
    hands = Hands()
    queue = queue_of(hands, max_in_flight=1, max_waiting=10)
    place = await queue.enter(request())
    tasks = await waiting(queue, *[request() for _ in range(10)])
    for task in tasks[:4]:  # one begins every two seconds
        hands.now_ns += 2 * SECOND_NS
        place.leave()
        place = await task
    await waiting(queue, *[request() for _ in range(4)])
    with pytest.raises(QueueFull) as refused:
        await queue.enter(request())
    assert refused.value.retry_after_seconds == pytest.approx(11 * 2)
    assert refused.value.should_retry is None
    assert "'pool'" in refused.value.message and "10 waiting" in refused.value.message


async def test_who_would_wait_over_two_minutes_is_told_not_to_retry_by_itself() -> None:
    hands = Hands()
    queue = queue_of(hands, max_in_flight=1, max_waiting=3)
    place = await queue.enter(request())
    tasks = await waiting(queue, *[request() for _ in range(3)])
    for task in tasks[:2]:
        hands.now_ns += 60 * SECOND_NS
        place.leave()
        place = await task
    await waiting(queue, request(), request())
    with pytest.raises(QueueFull) as refused:
        await queue.enter(request())
    assert refused.value.retry_after_seconds == pytest.approx(4 * 60)
    assert refused.value.should_retry is False


async def test_one_of_a_lower_class_is_refused_for_a_newcomer() -> None:
    queue = queue_of(max_in_flight=1, max_waiting=1)
    place = await queue.enter(request())
    (low,) = await waiting(queue, request(priority="batch"))
    (high,) = await waiting(queue, request(priority="interactive"))
    with pytest.raises(QueueFull):
        await low
    place.leave()
    (await high).leave()
    assert queue.state()["shed"] == {"interactive": 0, "standard": 0, "batch": 1}


async def test_a_deadline_refuses_without_anything_else_happening() -> None:
    hands = Hands()
    queue = queue_of(hands, max_in_flight=1, deadline_seconds={"standard": 0.01})
    await queue.enter(request())
    (late,) = await waiting(queue, request())
    hands.now_ns = SECOND_NS
    with pytest.raises(QueueFull, match="longer than the 0.01 s allowed"):
        await asyncio.wait_for(late, 5)


async def test_what_engine_hosts_say_bounds_the_pool_in_place_of_the_specs_tokens() -> None:
    room = PoolRoom(max_in_flight=8, max_tokens=50)
    queue = queue_of(room_of=lambda pool: room, max_in_flight=100, max_tokens_in_flight=1_000_000)
    places = [await queue.enter(request(output=15)) for _ in range(2)]
    (third,) = await waiting(queue, request(output=15))
    assert not third.done()
    room = PoolRoom(max_in_flight=8, max_tokens=500)  # another host has come: seen without a request's doing
    places.append(await asyncio.wait_for(third, 5))
    assert queue.state()["max_tokens_in_flight"] == 500
    assert queue.state()["max_in_flight"] == 8


def snapshot_of(*pools: PoolSpec) -> Snapshot:
    return Snapshot(revision=1, keys={}, models={}, pools={pool.id: pool for pool in pools}, prices=PriceBook())


def pool_of(queue: QueueSpec | None) -> PoolSpec:
    return PoolSpec("pool", (TargetSpec("one", "pool", "scripted"),), queue=queue)


async def test_a_living_queue_follows_its_configuration() -> None:
    queues = PoolQueues(Clock())
    queues.sync(snapshot_of(pool_of(QueueSpec(max_in_flight=1))))
    queue = queues.get("pool")
    await queue.enter(request())
    tasks = await waiting(queue, request(), request(), request())
    queues.sync(snapshot_of(pool_of(QueueSpec(max_in_flight=2))))
    await tasks[0]
    assert not tasks[1].done()
    queues.sync(snapshot_of(pool_of(None)))
    await tasks[1]
    await tasks[2]
    assert queues.state() == {}


async def test_who_waits_for_a_pool_that_is_removed_is_let_in() -> None:
    queues = PoolQueues(Clock())
    queues.sync(snapshot_of(pool_of(QueueSpec(max_in_flight=1))))
    queue = queues.get("pool")
    await queue.enter(request())
    (task,) = await waiting(queue, request())
    queues.sync(EMPTY_SNAPSHOT)
    (await task).leave()
    (await queues.get("pool").enter(request())).leave()
