"""The queues of all pools of a snapshot; waiting requests survive changes of the configuration."""

from collections.abc import Iterator

from contracts.serving.configuration import Snapshot
from gateway.limits.queue.pool_queue import PoolQueue, RoomOf
from gateway.request.clock import Clock


class PoolQueues:
    """The queues by pool. `room_of` returns the capacity that a pool's engine hosts report; `None`: do not ask."""

    def __init__(self, clock: Clock, room_of: RoomOf | None = None) -> None:
        self._clock = clock
        self._room_of = room_of
        self._queues: dict[str, PoolQueue] = {}

    def get(self, pool: str) -> PoolQueue:
        """Return a pool's queue; for a pool that was removed meanwhile, a queue in which nothing waits."""
        found = self._queues.get(pool)
        return found if found is not None else PoolQueue(pool, None, self._clock)

    def sync(self, snapshot: Snapshot) -> None:
        """Follow a snapshot: change existing queues, open new ones, admit everything if a pool was removed."""
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
        """Return the state that GET /ready shows: every pool that has a queue."""
        return {queue.pool: queue.state() for queue in self.with_spec()}
