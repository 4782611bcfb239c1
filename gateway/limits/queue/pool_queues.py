"""The queues of all pools of a snapshot; what waits in one lives through changes of its configuration."""

from collections.abc import Iterator

from contracts.serving.configuration import Snapshot
from gateway.limits.queue.pool_queue import PoolQueue, RoomOf
from gateway.request.clock import Clock


class PoolQueues:
    """Returns a pool's queue. `room_of` says what a pool's engine hosts have room for, `None`: ask nobody."""

    def __init__(self, clock: Clock, room_of: RoomOf | None = None) -> None:
        self._clock = clock
        self._room_of = room_of
        self._queues: dict[str, PoolQueue] = {}

    def get(self, pool: str) -> PoolQueue:
        """Return a pool's queue; for a pool that has gone meanwhile one in which nobody waits."""
        found = self._queues.get(pool)
        return found if found is not None else PoolQueue(pool, None, self._clock)

    def sync(self, snapshot: Snapshot) -> None:
        """Follow a snapshot: change living queues, open new ones, let everybody in where a pool has gone."""
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
        """Return what GET /ready shows: every pool that has a queue."""
        return {queue.pool: queue.state() for queue in self.with_spec()}
