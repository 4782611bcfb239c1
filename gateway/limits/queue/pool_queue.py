"""The queues of pools as requests use them: enter and wait, report output, leave.

Used within one event loop. A pool without a queue, or with room and no waiting requests, is entered at once. Deadlines
count the time in which this process ran, and pass only in the timer that waits for them.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from backends.processes.running_time import LATE_SECONDS
from contracts.errors import QueueFull
from contracts.rules.limits import QueueSpec
from contracts.serving.configuration import Snapshot
from gateway.limits.queue.drain_rate import DrainRate
from gateway.limits.queue.fair_queue import FairQueue
from gateway.limits.queue.request import PoolRoom, QueuedRequest
from gateway.request.clock import Clock

RoomOf = Callable[[str], PoolRoom | None]

_LONGEST_AUTOMATIC_WAIT_SECONDS: Final = 120.0  # beyond this, clients are told not to retry automatically
_POLL_SECONDS: Final = 0.05  # interval for checking others' use of a pool while a request waits for it
_NANO: Final = 1e-9
_LOOK_SECONDS: Final = 0.02  # to read what arrived while this process was held up: it may be what frees a place


class Place:
    """The right to use a pool. Call `leave` exactly once; further calls do nothing.

    `wait_ns` is the time waited for it; 0 if it was entered at once.
    """

    __slots__ = ("_queue", "_request", "wait_ns")

    def __init__(self, queue: "PoolQueue | None", request: QueuedRequest, wait_ns: int = 0) -> None:
        self._queue = queue
        self._request = request
        self.wait_ns = wait_ns

    def produced(self, tokens: int) -> None:
        """Count output tokens as they pass, in batches as they arrive."""
        if self._queue is not None:
            self._queue.fair.charge(self._request, tokens)

    def leave(self, *, input_tokens: int | None = None, output_tokens: int | None = None) -> None:
        """Release the place with the actual usage, if known; `None` keeps what was counted."""
        if self._queue is not None:
            queue, self._queue = self._queue, None
            queue.take_back(self._request, input_tokens, output_tokens)


class PoolQueue:
    """The queue of one pool. `spec` `None`: nothing waits and nothing is counted."""

    def __init__(self, pool: str, spec: QueueSpec | None, clock: Clock, room_of: RoomOf | None = None) -> None:
        self.pool = pool
        self.spec = spec
        self.fair = FairQueue(spec or QueueSpec())
        self._monotonic_ns = clock.monotonic_ns
        self._held_up_ns = 0  # so long this process did not run while somebody waited
        self._room_of = room_of
        self._stated: PoolRoom | None = None  # the last report, and its effect within the spec
        self._bounded: PoolRoom | None = None
        self._rate = DrainRate()
        self._turns: dict[QueuedRequest, asyncio.Future[QueueFull | None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = 0.0  # by the event loop's clock
        self._is_looking = False  # at what arrived while this process was held up

    async def enter(self, request: QueuedRequest) -> Place:
        """Wait for a request's turn. Raises QueueFull if it is shed; cancelling removes it from the queue."""
        if self.spec is None:
            return Place(None, request)
        room = None if self._room_of is None else self._room()
        if self.fair.begin_at_once(request, self._now_ns(), room):
            return Place(self, request)
        return await self._wait(request)

    async def _wait(self, request: QueuedRequest) -> Place:
        arrived_ns = self._monotonic_ns()
        turn = self._turns[request] = asyncio.get_running_loop().create_future()
        victim = self.fair.arrive(request, arrived_ns - self._held_up_ns)
        if victim is not None:
            self._refuse(victim, "its queue is full")
        self._serve()
        try:
            refusal = await turn
        except asyncio.CancelledError:
            self._give_up(request)
            raise
        if refusal is not None:
            raise refusal
        return Place(self, request, self._monotonic_ns() - arrived_ns)

    def take_back(self, request: QueuedRequest, input_tokens: int | None, output_tokens: int | None) -> None:
        """Release a place and give it to the next request; called by `Place.leave`."""
        now_ns = self._now_ns()
        self.fair.leave(request, now_ns, input_tokens=input_tokens, output_tokens=output_tokens)
        if self.fair.waiting:
            self._serve()

    def reconfigure(self, spec: QueueSpec | None) -> None:
        """Adopt another spec for everything that waits and runs; without a spec, everything is admitted."""
        self.spec = spec
        self._stated = None
        self.fair.reconfigure(spec or QueueSpec())
        self._serve()

    def state(self) -> dict[str, object]:
        """Return the state that GET /ready shows."""
        load, shed_order = self.fair.load, self.fair.shed_order
        rate = self._rate.per_second(self._now_ns())
        return {
            "waiting": shed_order.waiting_by_class(),
            "backlogged_tenants": shed_order.backlogged_tenants,
            "in_flight": load.in_flight,
            "tokens_in_flight": load.tokens_in_flight,
            "max_in_flight": load.max_in_flight,
            "max_tokens_in_flight": load.max_tokens,
            "shed": dict(self.fair.shed_by_class),
            "begun_per_second": None if rate is None else round(rate, 3),
        }

    def _serve(self) -> None:
        """Admit the requests whose turn it is, and schedule the next check."""
        now_ns = self._now_ns()
        room = self._room()
        while (request := self.fair.next(now_ns, room)) is not None:
            self._rate.note(now_ns)
            self._resolve(request, None)
        if not self.fair.waiting:
            self._rate.pause(now_ns)
        self._set_timer(now_ns)

    def _room(self) -> PoolRoom | None:
        """Return what the engine hosts report, within the spec's bound on requests; `None` if they report nothing."""
        stated = None if self._room_of is None else self._room_of(self.pool)
        if stated is None or self.spec is None:
            return None
        if stated is not self._stated:
            self._stated = stated
            self._bounded = _within(stated, self.spec)
        return self._bounded

    def _set_timer(self, now_ns: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self.fair.waiting:
            return
        due_ns = self.fair.shed_order.next_deadline_ns
        waits = [] if due_ns is None else [max(due_ns - now_ns, 0) * _NANO]
        if self._room_of is not None:
            waits.append(_POLL_SECONDS)
        if waits:
            self._wait_for_ring(min(waits))

    def _wait_for_ring(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._rings_at = loop.time() + seconds
        self._timer = loop.call_at(self._rings_at, self._ring)

    def _ring(self) -> None:
        """Shed the requests whose deadlines have passed, and let in those that are next."""
        late = asyncio.get_running_loop().time() - self._rings_at
        if late > LATE_SECONDS and not self._is_looking:
            self._held_up_ns += round(late / _NANO)
            self._is_looking = True
            self._wait_for_ring(_LOOK_SECONDS)
            return
        self._is_looking = False
        for request in self.fair.expire(self._now_ns()):
            self._refuse(request, f"the request waited longer than the {self._deadline_of(request):g} s allowed")
        self._serve()

    def _now_ns(self) -> int:
        """Return the time by which requests wait: it stands still while this process is held up."""
        return self._monotonic_ns() - self._held_up_ns

    def _give_up(self, request: QueuedRequest) -> None:
        """Remove a request whose client has disconnected, even if its turn had just come."""
        now_ns = self._now_ns()
        self._turns.pop(request, None)
        if request.state == "running":
            self.fair.leave(request, now_ns, input_tokens=0, output_tokens=0)
        else:
            self.fair.withdraw(request, now_ns)
        self._serve()

    def _refuse(self, request: QueuedRequest, reason: str) -> None:
        ahead = self.fair.shed_order.waiting_ahead_of(request.rank) + 1
        wait = self._rate.wait_seconds(ahead, self._now_ns())
        error = QueueFull(
            f"pool {self.pool!r} is overloaded: {reason} ({self.fair.waiting} waiting, class {request.priority}); "
            f"estimated wait: {wait:.1f} s",
            retry_after_seconds=wait,
            should_retry=False if wait > _LONGEST_AUTOMATIC_WAIT_SECONDS else None,
        )
        self._resolve(request, error)

    def _resolve(self, request: QueuedRequest, outcome: QueueFull | None) -> None:
        turn = self._turns.pop(request, None)
        if turn is not None and not turn.done():
            turn.set_result(outcome)

    def _deadline_of(self, request: QueuedRequest) -> float:
        return self.fair.spec.deadline_seconds.get(request.priority, 0.0)


def _within(stated: PoolRoom, spec: QueueSpec) -> PoolRoom:
    bounds = [one for one in (spec.max_in_flight, stated.max_in_flight) if one is not None]
    tokens = spec.max_tokens_in_flight if stated.max_tokens is None else stated.max_tokens
    return PoolRoom(min(bounds, default=None), tokens, stated.others_in_flight, stated.others_tokens)


class PoolQueues:
    """The queues of a snapshot's pools. Requests that wait stay in their queue when the configuration changes.
    `room_of` returns the capacity that a pool's engine hosts report; `None`: no host is asked.
    """

    def __init__(self, clock: Clock, room_of: RoomOf | None = None) -> None:
        self._clock = clock
        self._room_of = room_of
        self._queues: dict[str, PoolQueue] = {}

    def get(self, pool: str) -> PoolQueue:
        """Return a pool's queue. For a pool that was removed meanwhile, return one that admits every request at
        once.
        """
        found = self._queues.get(pool)
        return found if found is not None else PoolQueue(pool, None, self._clock)

    def sync(self, snapshot: Snapshot) -> None:
        """Apply a snapshot: reconfigure existing queues, create new ones, and admit all waiting requests of removed
        pools.
        """
        for pool in self._queues.keys() - snapshot.pools.keys():
            self._queues.pop(pool).reconfigure(None)
        for name, pool_spec in snapshot.pools.items():
            queue = self._queues.get(name)
            if queue is None:
                self._queues[name] = PoolQueue(name, pool_spec.queue, self._clock, self._room_of)
            elif queue.spec != pool_spec.queue:
                queue.reconfigure(pool_spec.queue)

    def with_spec(self) -> Iterator[PoolQueue]:
        """Return the queues of the pools that have one."""
        return (queue for queue in self._queues.values() if queue.spec is not None)

    def state(self) -> dict[str, object]:
        """Return the state of every pool that has a queue, as GET /ready shows it."""
        return {queue.pool: queue.state() for queue in self.with_spec()}
